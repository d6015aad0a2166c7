"""Logins of machines: a key by the browser or a typed code, asked about, rotated and ended."""

from __future__ import annotations

import io
import re
import secrets
import sys
import threading
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import typer
from sqlalchemy import select

from app.cli.access import browser_login
from app.cli.access.browser_login import CodeListener, log_in_by_browser
from app.cli.access.login import login
from app.cli.client.api_client import ApiClient
from app.cli.client.failures import CommandFailed
from app.cli.client.server_address import Server, default_config_file, write_config
from app.cli.client.terminal import Terminal
from app.storage.schema import tables
from tests.support.api.agent_api import wait_until
from tests.support.api.invited_people import Invited, confirm_login, confirmed, invited, redeem
from tests.support.api.people_api import PeopleApi, bearer, hidden_field
from tests.support.cli.command_line import CommandLine
from tests.support.servers.table_rows import fetch_value, rows_of

_REFRESH = re.compile(r'content="0; url=(http://127\.0\.0\.1:\d+/\?code=[A-Z2-9]{8})"')
ATTEMPTS = tables.sign_in_attempts


@pytest.fixture(scope="module")
def lea(api: PeopleApi) -> Invited:
    return invited(api, "Lea")


def clicks(person: Invited) -> Callable[[str], bool]:
    """Opens a page, confirms it, and goes where it leads, as a browser does for a person."""

    def open_page(address: str) -> bool:
        asked = urlsplit(address)
        page = person.browser.get(f"{asked.path}?{asked.query}").text
        names = ("form_token", "challenge", "machine", "port")
        answer = person.browser.post("/login", {name: hidden_field(page, name) for name in names})
        found = _REFRESH.search(answer.text)
        assert found is not None
        assert httpx.get(found[1], timeout=20).status_code == 200
        return True

    return open_page


def test_the_command_gets_its_key_by_the_browser(
    api: PeopleApi, lea: Invited, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(webbrowser, "open", clicks(lea))
    terminal = Terminal(out=io.StringIO(), errors=io.StringIO())
    with ApiClient(Server(api.url, None)) as client:
        made = log_in_by_browser(client, terminal, opens_browser=True)
    assert made["person"] == "Lea"
    assert api.client.get("/api/v1/jobs", headers=bearer(made["key"])).status_code == 200


def test_a_code_that_another_page_sends_does_not_end_the_command(
    api: PeopleApi, lea: Invited, monkeypatch: pytest.MonkeyPatch
):
    opened = threading.Event()
    pages: list[str] = []

    def open_page(address: str) -> bool:
        pages.append(address)
        opened.set()
        return True

    monkeypatch.setattr(webbrowser, "open", open_page)
    terminal = Terminal(out=io.StringIO(), errors=io.StringIO())
    with ApiClient(Server(api.url, None)) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log_in_by_browser, client, terminal, opens_browser=True)
        assert opened.wait(20)
        port = re.search(r"port=(\d+)", pages[0])
        assert port is not None
        sent = httpx.get(f"http://127.0.0.1:{port[1]}/?code=BBBBBBBB", timeout=20)
        assert sent.status_code == 200
        of_login = partial(rows_of, api.engine, ATTEMPTS, subject="login:127.0.0.1")
        wait_until(lambda: bool(of_login()), seconds=20)
        clicks(lea)(pages[0])
        assert waiting.result(60)["person"] == "Lea"


class Keyboard(io.StringIO):
    """A person's answers, at a terminal."""

    def isatty(self) -> bool:
        return True


class TypingHand(Keyboard):
    """Types the code that the page shows, and then another answer as often as it is asked for."""

    def __init__(self, person: Invited, errors: io.StringIO, then: str = "") -> None:
        super().__init__()
        self._person, self._errors, self._then, self._typed = person, errors, then, 0

    # What a stand-in of text reads is bytes to the stubs.
    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        self._typed += 1
        page = re.search(r"(/login\?\S+)", self._errors.getvalue())
        assert page is not None
        assert "port=" not in page[1]
        if self._typed > 1:
            return f"{self._then}\n"
        return f"  {confirm_login(self._person.browser, page[1]).lower()} \n"


@pytest.mark.parametrize(
    ("before", "typed", "stored"),
    [("", "y", True), ("", "n", False), ("Lea", "n", True), ("Other", "n", False)],
)
def test_the_command_asks_before_it_stores_another_person_s_key(
    api: PeopleApi, lea: Invited, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    before: str, typed: str, stored: bool,
):  # fmt: skip
    known = lea if before == "Lea" else invited(api, before) if before else None
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("LOWTIDE_SERVER_URL", "LOWTIDE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    if known is not None:
        monkeypatch.setenv("LOWTIDE_SERVER_URL", api.url)
        monkeypatch.setenv("LOWTIDE_API_KEY", known.key)
    errors = io.StringIO()
    for name, stream in (
        ("stdin", TypingHand(lea, errors, typed)), ("stdout", Keyboard()), ("stderr", errors)
    ):  # fmt: skip
        monkeypatch.setattr(sys, name, stream)
    with nullcontext() if stored else pytest.raises(typer.Exit):
        login(
            url=api.url, browser=False, with_key=False, yes=False,
            project=None, as_json=False, quiet=False, no_color=True,
        )  # fmt: skip
    assert ("the key is revoked" in errors.getvalue()) is not stored
    assert default_config_file().exists() is stored
    keys = tables.api_keys.c
    made = (
        select(keys.revoked_at).where(keys.person_id.is_not(None)).order_by(keys.created_at.desc())
    )
    assert (fetch_value(api.engine, made.limit(1)) is None) is stored


def test_the_command_gets_its_key_by_a_code_that_is_typed(
    api: PeopleApi, lea: Invited, monkeypatch: pytest.MonkeyPatch
):
    errors = io.StringIO()
    monkeypatch.setattr("sys.stdin", TypingHand(lea, errors))
    terminal = Terminal(out=io.StringIO(), errors=errors)
    with ApiClient(Server(api.url, None)) as client:
        made = log_in_by_browser(client, terminal, opens_browser=False, projects=["admin"])
    assert (made["person"], made["projects"]) == ("Lea", ["admin"])


def machine_of(person: Invited, api: PeopleApi, home: Path) -> tuple[CommandLine, Path, str]:
    """Commands with a key of a confirmed login, the file that has it, and the key's name."""
    verifier = secrets.token_urlsafe(32)
    made = redeem(api, verifier, confirmed(person, verifier)).json()
    stored = home / ".config" / "lowtide" / "config.toml"
    write_config(stored, Server(api.url, made["key"], login_key=made["name"]))
    return CommandLine(home, {}), stored, made["name"]


def test_the_machine_goes_on_with_a_rotated_key_and_logging_out_ends_it(
    api: PeopleApi, lea: Invited, tmp_path: Path
):
    cli, stored, name = machine_of(lea, api, tmp_path)
    assert "name the key" in cli.fails(2, "key", "rotate").errors
    rotated = cli.ok("key", "rotate", "--mine", "--overlap", "0s")
    assert f"it is stored in {stored}" in rotated.errors
    assert rotated.out.strip() in stored.read_text()
    cli.ok("jobs")
    assert f"The key {name} is revoked." in cli.ok("logout").out
    assert not stored.exists()
    [row] = rows_of(api.engine, tables.api_keys, own_name=name)
    assert row.revoked_at is not None
    write_config(stored, Server(api.url, rotated.out.strip(), login_key=name))
    wait_until(lambda: cli.run("jobs").exit_code == 2, seconds=20)
    assert "opened nothing any more" in cli.ok("logout").out
    # As `--with-key` stores one: others may use it.
    write_config(stored, Server(api.url, lea.key))
    assert "Its key stays good" in cli.ok("logout").out
    assert api.client.get("/api/v1/me", headers=lea.headers).status_code == 200
    assert "No key of `lowtide login`" in cli.ok("logout").out


def test_a_new_login_revokes_the_key_of_the_one_before(
    api: PeopleApi, lea: Invited, tmp_path: Path
):
    cli, _, name = machine_of(lea, api, tmp_path)
    cli.fails(2, "login", api.url, stdin="lt_wrong\n")
    cli.ok("jobs")
    told = cli.ok("login", api.url, stdin=f"{lea.key}\n").errors
    assert f"{name}, the key of the login before, is revoked." in " ".join(told.split())
    [row] = rows_of(api.engine, tables.api_keys, own_name=name)
    assert row.revoked_at is not None
    # A key that the page did not give, others may use: it stays.
    assert "revoked" not in cli.ok("login", api.url, stdin=f"{lea.key}\n").errors
    cli.ok("jobs")


def test_codes_that_nobody_gave_end_the_command(api: PeopleApi, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("BBBB-BBBB\n" * 9))
    terminal = Terminal(out=io.StringIO(), errors=io.StringIO())
    with ApiClient(Server(api.url, None)) as client, pytest.raises(CommandFailed) as failed:
        log_in_by_browser(client, terminal, opens_browser=False)
    assert "not confirmed" in failed.value.message


def test_only_a_code_is_taken_from_the_port(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(browser_login, "_WAIT_SECONDS", 1.0)
    with CodeListener() as listener:
        url = f"http://127.0.0.1:{listener.port}"
        for path in ("/", "/?code=short", f"/?code={'x' * 99}", "/favicon.ico"):
            assert httpx.get(url + path, timeout=20).status_code == 404
        assert httpx.post(f"{url}/?code=BBBBBBBB", timeout=20).status_code == 501
        assert httpx.get(f"{url}/?code=BBBBBBBB", timeout=20).status_code == 200
        assert list(listener.codes()) == ["BBBBBBBB"]
