"""Sessions of browsers, kept by the database: ended by a sign-out, a key's end and their time.

Two api processes on one database. Not here: what a browser shows (tests/browser/test_sign_in.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import insert, select, update

from app.domain.access.principal import Origin
from app.domain.deployment.credentials import digest
from app.storage.access.web_sessions import NewSession, WebSessions
from app.storage.schema import tables
from app.web.session import COOKIE, SESSION_SECONDS
from tests.support.api.agent_api import wait_until
from tests.support.api.people_api import (
    PeopleApi,
    make_key,
    people_api_with_sessions,
    revoke_key,
    settings_for,
)
from tests.support.servers.free_port import free_port
from tests.support.servers.postgres import PostgresForTests

_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


@pytest.fixture(scope="module")
def apis(
    postgres: PostgresForTests, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PeopleApi, str]]:
    """An api, and the address of another one on the same database."""
    url, folder = postgres.clone(), tmp_path_factory.mktemp("s")
    with (
        people_api_with_sessions(settings_for(url, valkey_url, folder)) as first,
        another_process(url, valkey_url, folder) as other,
    ):
        yield first, other


@contextmanager
def another_process(database_url: str, redis_url: str, folder: Path) -> Iterator[str]:
    """The address of an api in a process of its own."""
    port = free_port()
    settings = {
        "LOWTIDE_DATABASE_URL": database_url,
        "LOWTIDE_REDIS_URL": redis_url,
        "LOWTIDE_STATE_DIR": str(folder),
    }
    command = [sys.executable, "-m", "uvicorn", "app.api.main:app", "--port", str(port)]
    command += ["--http", "app.api.serving.connection_limits:LimitedHttp"]
    process = subprocess.Popen([*command, "--log-level", "warning"], env={**os.environ, **settings})

    def answers() -> bool:
        assert process.poll() is None
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        return False

    try:
        wait_until(answers)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def signed_in(api: PeopleApi, key: str) -> str:
    """The cookie of a new session."""
    shown = page(api.url, None)
    form = {"key": key, "form_token": form_token(shown)}
    answer = httpx.post(f"{api.url}/sign-in", data=form, cookies=shown.cookies)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    return answer.cookies[COOKIE]


def page(url: str, cookie: str | None) -> httpx.Response:
    """The sign-in page, or for who is signed in the jobs."""
    cookies = {} if cookie is None else {COOKIE: cookie}
    return httpx.get(f"{url}/sign-in", cookies=cookies, follow_redirects=True)


def form_token(page: httpx.Response) -> str:
    found = _TOKEN.search(page.text)
    assert found is not None, page.text
    return found[1]


def opens(url: str, cookie: str) -> bool:
    """Whether the cookie still shows the jobs; else it leads to the sign-in."""
    answer = httpx.get(f"{url}/jobs", cookies={COOKIE: cookie})
    assert answer.status_code == 200 or answer.headers["location"].startswith("/sign-in")
    return answer.status_code == 200


def test_a_cookie_is_worth_nothing_after_signing_out_on_any_api(apis: tuple[PeopleApi, str]):
    api, other = apis
    cookie, second = signed_in(api, api.key), signed_in(api, api.key)
    assert opens(api.url, cookie)
    assert opens(other, cookie)
    form = {"form_token": form_token(page(api.url, cookie))}
    ended = httpx.post(f"{api.url}/sign-out", data=form, cookies={COOKIE: cookie})
    assert ended.status_code == 303
    assert not opens(api.url, cookie)
    assert not opens(other, cookie)
    assert opens(other, second)
    part = httpx.get(f"{other}/jobs", cookies={COOKIE: cookie}, headers={"HX-Request": "true"})
    assert part.status_code == 401
    # Signing out once more, with the old cookie, is no error and no other's end.
    again = httpx.post(f"{other}/sign-out", cookies={COOKIE: cookie}, data=form)
    assert again.status_code == 303
    assert opens(api.url, second)


def test_only_a_page_shown_to_this_session_can_end_it(apis: tuple[PeopleApi, str]):
    """Each session's forms carry a token of its own, which another page or person cannot know."""
    api, _ = apis
    shown = page(api.url, None)
    before = form_token(shown)
    form = {"key": api.key, "form_token": before}
    cookie = httpx.post(f"{api.url}/sign-in", data=form, cookies=shown.cookies).cookies[COOKIE]
    others = form_token(page(api.url, signed_in(api, api.key)))
    for token in ("", before, others):
        data = {"form_token": token} if token else {}
        answer = httpx.post(f"{api.url}/sign-out", data=data, cookies={COOKIE: cookie})
        assert not answer.is_success
        assert opens(api.url, cookie)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_script_and_no_other_site_gets_the_cookie(apis: tuple[PeopleApi, str], scheme: str):
    """And it ends with its session: nothing else ends a cookie in a browser that stays open."""
    api, _ = apis
    behind, week = {"x-forwarded-proto": scheme}, SESSION_SECONDS
    usual = {"HttpOnly", "Path=/", "SameSite=lax", *(["Secure"] if scheme == "https" else [])}
    shown = httpx.get(f"{api.url}/sign-in", headers=behind)
    form = {"key": api.key, "form_token": form_token(shown)}
    cookies = {COOKIE: shown.cookies[COOKIE]}
    answer = httpx.post(f"{api.url}/sign-in", data=form, cookies=cookies, headers=behind)
    assert attributes(shown) == attributes(answer) == {f"Max-Age={week}", *usual}
    assert week == 7 * 24 * 3600
    cookie = answer.cookies[COOKIE]
    with api.engine.connect() as connection:
        lives = tables.sessions.c.expires_at - tables.sessions.c.created_at
        newest = select(lives).order_by(tables.sessions.c.created_at.desc()).limit(1)
        assert connection.scalar(newest) == timedelta(seconds=week)
    form = {"form_token": form_token(page(api.url, cookie))}
    url = f"{api.url}/sign-out"
    gone = httpx.post(url, data=form, cookies={COOKIE: cookie}, headers=behind)
    assert {"Max-Age=0", *usual} <= attributes(gone)
    assert gone.headers["set-cookie"].startswith(f'{COOKIE}="";')


def attributes(answer: httpx.Response) -> set[str]:
    """Of the one cookie that an answer sets."""
    [told] = answer.headers.get_list("set-cookie")
    return {part.strip() for part in told.split(";")[1:]}


def test_signing_in_again_ends_the_session_that_is_left_behind(apis: tuple[PeopleApi, str]):
    api, _ = apis
    left = signed_in(api, api.key)
    form = {"key": api.key, "form_token": form_token(page(api.url, left))}
    answer = httpx.post(f"{api.url}/sign-in", data=form, cookies={COOKIE: left})
    assert opens(api.url, answer.cookies[COOKIE])
    assert not opens(api.url, left)


def test_the_end_of_a_key_is_the_end_of_its_sessions(apis: tuple[PeopleApi, str]):
    api, other = apis
    key = make_key(api.engine, api.project_id, "short-lived")
    cookie = signed_in(api, key)
    assert opens(other, cookie)
    revoke_key(api.engine, key)
    assert not opens(api.url, cookie)
    assert not opens(other, cookie)


def test_the_database_holds_no_cookie_and_a_session_ends_by_its_time(
    apis: tuple[PeopleApi, str],
):
    api, _ = apis
    cookie = signed_in(api, api.key)
    sessions = tables.sessions
    with api.engine.begin() as connection:
        hashes = list(connection.execute(select(sessions.c.id_hash)).scalars())
        # A copy of the database opens no page: what a cookie names is not in it.
        content = api.app.state.pages.sessions._serializer().loads(cookie)
        assert hashes
        assert not set(hashes) & {str(value) for value in content.values()}
        assert opens(api.url, cookie)
        connection.execute(update(sessions).values(expires_at=datetime.now(UTC)))
    assert not opens(api.url, cookie)


def test_a_cookie_of_an_earlier_release_opens_nothing(apis: tuple[PeopleApi, str]):
    api, _ = apis
    keys = tables.api_keys
    with api.engine.connect() as connection:
        key_id = connection.scalar(select(keys.c.id).where(keys.c.key_hash == digest(api.key)))
    serializer = api.app.state.pages.sessions._serializer()
    assert not opens(api.url, serializer.dumps({"nonce": "n", "key": str(key_id)}))
    assert not opens(api.url, serializer.dumps({"nonce": "n", "session": str(key_id)}))


def test_new_sessions_clear_away_old_ones(apis: tuple[PeopleApi, str]):
    api, _ = apis
    keys, sessions, now = tables.api_keys, tables.sessions, datetime.now(UTC)
    with api.engine.begin() as connection:
        key_id = connection.scalar(select(keys.c.id).limit(1))
        ago = now - timedelta(days=8)
        rows = [
            {"id_hash": f"old-{n}", "key_id": key_id, "created_at": ago, "expires_at": ago}
            for n in range(150)
        ]
        connection.execute(insert(sessions), rows)
    kept = WebSessions(api.engine)
    for number in range(2):
        session = NewSession(f"new-{number}", now, now + timedelta(days=7))
        begun = kept.begin(session, digest(api.key), Origin("::1", "r"), uuid4())
        assert begun is not None
    with api.engine.connect() as connection:
        left = set(connection.execute(select(sessions.c.id_hash)).scalars())
    assert not any(each.startswith("old-") for each in left)
    assert {"new-0", "new-1"} <= left
