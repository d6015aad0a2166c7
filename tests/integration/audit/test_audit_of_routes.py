"""Every route and form that changes something leaves one row, in the transaction of the change.

The routes are read from the app itself, so that a new one fails here until it has a row. Not here:
what is read of rows (`test_audit_lists`), or seals (`test_audit_seals`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, AuditOutcome, SubjectKind
from app.domain.audit.audit_entry import LOOKED_UP, digest_of_values
from app.domain.deployment.credentials import digest
from app.orchestration.agents.read_workdir import workdir_key
from app.storage.schema import tables
from app.storage.schema.tables import audit_entries
from tests.integration.access.test_roles_of_routes import pages, routes
from tests.support.api.agent_api import wait_until
from tests.support.api.audit_scenes import PaperLocalCloud, Scene, Send, packed
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    browser_of,
    hidden_field,
    make_key,
)
from tests.support.servers.table_rows import execute, fetch_value, rows_of

A: Final = AuditAction
AUDITED: Final[dict[tuple[str, str], AuditAction | None]] = {
    ("POST", "/api/v1/jobs"): A.JOB_SUBMIT,
    ("POST", "/api/v1/jobs/check"): None,
    ("POST", "/api/v1/estimates"): None,
    ("PUT", "/api/v1/workdirs/{digest}"): A.WORKDIR_UPLOAD,
    ("POST", "/api/v1/jobs/{job}/cancel"): A.JOB_CANCEL,
    ("POST", "/api/v1/jobs/{job}/pause"): A.JOB_PAUSE,
    ("POST", "/api/v1/jobs/{job}/resume"): A.JOB_RESUME,
    ("POST", "/api/v1/jobs/batch"): A.JOB_CANCEL,
    ("POST", "/api/v1/instances/{instance_id}/interrupt"): A.MACHINE_INTERRUPT,
    ("POST", "/api/v1/keys"): A.KEY_CREATE,
    ("POST", "/api/v1/keys/{key}/rotate"): A.KEY_ROTATE,
    ("POST", "/api/v1/keys/{key}/revoke"): A.KEY_REVOKE,
    ("POST", "/api/v1/projects"): A.PROJECT_CREATE,
    ("POST", "/api/v1/projects/{project}/archive"): A.PROJECT_ARCHIVE,
    ("POST", "/api/v1/projects/{project}/restore"): A.PROJECT_RESTORE,
    ("PUT", "/api/v1/projects/{project}/rules"): A.PROJECT_RULES,
    ("POST", "/api/v1/projects/apply"): A.PROJECT_RULES,
    ("PUT", "/api/v1/secrets/{secret}"): A.SECRET_SET,
    ("POST", "/api/v1/secrets/{secret}/rotate"): A.SECRET_SET,
    ("POST", "/api/v1/secrets/{secret}/remove"): A.SECRET_REMOVE,
    ("PUT", "/api/v1/notifications/channels/{channel}"): A.CHANNEL_SET,
    ("POST", "/api/v1/notifications/channels/{channel}/remove"): A.CHANNEL_REMOVE,
    ("POST", "/api/v1/notifications/channels/{channel}/test"): A.CHANNEL_TEST,
    ("POST", "/api/v1/notifications/rules"): A.RULE_ADD,
    ("POST", "/api/v1/notifications/rules/{rule}/remove"): A.RULE_REMOVE,
    ("POST", "/api/v1/notifications/deliveries/{delivery}/resend"): A.DELIVERY_RESEND,
    ("POST", "/projects/{project}/notifications/{delivery}/resend"): A.DELIVERY_RESEND,
    ("POST", "/api/v1/projects/{project}/freeze"): A.LAUNCHES_FREEZE,
    ("POST", "/api/v1/projects/{project}/thaw"): A.LAUNCHES_THAW,
    ("PUT", "/api/v1/limits"): A.LAUNCHES_LIMIT,
    ("PUT", "/api/v1/budget"): A.DEPLOYMENT_BUDGET,
    ("PUT", "/api/v1/projects/{project}/budget"): A.PROJECT_BUDGET,
    ("POST", "/api/v1/freezes"): A.LAUNCHES_FREEZE,
    ("POST", "/api/v1/freezes/thaw"): A.LAUNCHES_THAW,
    ("POST", "/api/v1/members/{member}/role"): A.MEMBER_ROLE,
    ("POST", "/api/v1/members/{member}/remove"): A.MEMBER_REMOVE,
    ("POST", "/api/v1/invitations"): A.INVITATION_CREATE,
    ("POST", "/api/v1/invitations/{invitation}/revoke"): A.INVITATION_REVOKE,
    ("POST", "/api/v1/people/{person}/disable"): A.PERSON_DISABLE,
    ("POST", "/api/v1/people/{person}/enable"): A.PERSON_ENABLE,
    ("POST", "/api/v1/people/{person}/anonymise"): A.PERSON_ANONYMISE,
    ("POST", "/api/v1/people/{person}/keys/{key}/revoke"): A.KEY_REVOKE,
    ("POST", "/api/v1/me/keys"): A.KEY_CREATE,
    ("POST", "/api/v1/me/keys/{key}/rotate"): A.KEY_ROTATE,
    ("POST", "/api/v1/me/keys/{key}/revoke"): A.KEY_REVOKE,
    ("POST", "/api/v1/me/sessions/{session}/end"): A.SESSION_END,
    ("POST", "/api/v1/sweep"): A.SWEEP_ASK,
    ("POST", "/api/v1/destroy"): A.DEPLOYMENT_DESTROY,
    ("POST", "/jobs/{job}/cancel"): A.JOB_CANCEL,
    ("POST", "/jobs/{job}/pause"): A.JOB_PAUSE,
    ("POST", "/jobs/{job}/resume"): A.JOB_RESUME,
    ("POST", "/jobs/-/question"): None,
    ("POST", "/jobs/-/command"): A.JOB_CANCEL,
    ("POST", "/jobs/{job}/clone"): A.JOB_SUBMIT,
    ("POST", "/jobs/{job}/run-again"): A.JOB_SUBMIT,
    ("POST", "/account/sessions/{session}/end"): A.SESSION_END,
    ("POST", "/account/keys/{key}/revoke"): A.KEY_REVOKE,
    ("POST", "/login"): A.LOGIN_CONFIRM,
    ("POST", "/sign-in"): A.SESSION_BEGIN,
    ("POST", "/sign-out"): A.SESSION_END,
}
SHOWN_ONLY: Final = {("POST", "/account/project")}
"""What changes nothing but which project one's own pages show."""
WITHOUT_KEY: Final = {("POST", "/invitation"), ("POST", "/api/v1/login")}
"""Who signs in by them has no key yet; their rows are looked at in `test_people`. The answer of an
issuer is the one GET that changes something; its rows are looked at in `test_issuer_sign_in`.
"""
OF_A_PERSON: Final = (SubjectKind.INVITATION, SubjectKind.MEMBER, SubjectKind.PERSON)
CHANGING: Final = sorted(route for route, action in AUDITED.items() if action is not None)
_READS: Final = {"GET", "HEAD"}


@pytest.fixture(scope="module")
def admin(api: PeopleApi) -> str:
    return make_key(api.engine, api.project_id, "root", Role.ADMIN)


@pytest.fixture(scope="module")
def cloud(api: PeopleApi) -> PaperLocalCloud:
    found = PaperLocalCloud([])
    api.app.state.parts = replace(api.parts, local_cloud=found)
    return found


@pytest.fixture
def scene(api: PeopleApi, admin: str, cloud: PaperLocalCloud) -> Iterator[Scene]:
    made = Scene(api, admin, cloud)
    with made.stack:
        yield made


def entries(api: PeopleApi) -> dict[UUID, Any]:
    return {row.id: row for row in rows_of(api.engine, audit_entries)}


def test_every_route_and_form_that_may_change_something_is_listed():
    found = {route for route in routes() if route[0] not in _READS}
    forms = {("POST", path) for path in (*pages("POST"), "/sign-in", "/sign-out")}
    assert found | forms == set(AUDITED) | SHOWN_ONLY
    assert not WITHOUT_KEY & (found | forms)


@pytest.mark.parametrize(("method", "path"), CHANGING)
def test_a_change_leaves_one_row(scene: Scene, method: str, path: str):
    send, before = scene.send(method, path), entries(scene.api)
    answer = send()
    assert answer.status_code < 400, answer.text
    [row] = [row for row_id, row in entries(scene.api).items() if row_id not in before]
    assert row.action is AUDITED[method, path]
    [key] = rows_of(scene.api.engine, tables.api_keys, key_hash=digest(scene.key))
    assert (row.key_id, row.address) == (key.id, "127.0.0.1")
    assert row.person_id == key.person_id
    assert row.request_id == answer.headers["x-request-id"]
    assert row.number is None
    is_person_s_session = row.subject_kind is SubjectKind.SESSION and key.person_id is not None
    assert (row.subject_name == LOOKED_UP) is (
        row.subject_kind in OF_A_PERSON or is_person_s_session
    )
    outside = row.action in (A.MACHINE_INTERRUPT, A.WORKDIR_UPLOAD)
    assert row.outcome is (AuditOutcome.BEGUN if outside else AuditOutcome.DONE)
    of_deployment = row.subject_kind in (SubjectKind.DEPLOYMENT, SubjectKind.PERSON)
    assert (row.project_id is None) is of_deployment
    assert row.digest_after is not None
    assert row.digest_after != row.digest_before


@pytest.mark.parametrize("path", [path for (_, path), action in AUDITED.items() if action is None])
def test_a_question_leaves_none(scene: Scene, path: str):
    scene.submit()
    before = entries(scene.api)
    if path.startswith("/api/"):
        answer = httpx.post(
            f"{scene.api.url}{path}", json=SPEC, headers=bearer(scene.key), timeout=60
        )
    else:
        with browser_of(scene.api, scene.key) as browser:
            before = entries(scene.api)
            token = hidden_field(browser.get("/jobs").text, "form_token")
            form = {"form_token": token, "action": "cancel", "everything": "true"}
            answer = browser.post(path, data=form)
    assert answer.status_code == 200, answer.text
    assert entries(scene.api).keys() == before.keys()


# What is written at any time, whoever asks for what.
_ALSO_WRITTEN = {
    ("deployment", "listening_at"),
    ("deployment", "hearing_since_at"),
    ("deployment", "adopt_since_at"),
    ("deployment", "adopt_reason"),
    ("api_keys", "last_used_at"),
}
# Attempts to sign in are counted whatever becomes of them.
_APART = {"sign_in_attempts"}
_GAPS_MAX = 3


def contents(api: PeopleApi) -> dict[str, list[str]]:
    """The rows of every table."""
    found = {}
    with api.engine.connect() as connection:
        for table in tables.metadata.tables.values():
            if table.name in _APART:
                continue
            columns = ", ".join(
                f'"{column.name}"'
                for column in table.columns
                if (table.name, column.name) not in _ALSO_WRITTEN
            )
            rows = f"SELECT {columns} FROM {table.name}"
            found[table.name] = connection.execute(
                text(
                    f"SELECT coalesce(array_agg(t::text ORDER BY t::text), '{{}}') FROM ({rows}) t"
                )
            ).scalar_one()
    return found


@pytest.fixture
def no_room(api: PeopleApi) -> Iterator[Callable[[], None]]:
    """Once called, no audit row can be written, until the test ends."""
    execute(
        api.engine,
        "CREATE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no room for an audit row'; END $$",
    )
    yield lambda: execute(
        api.engine,
        "CREATE TRIGGER no_room BEFORE INSERT ON audit_entries "
        "FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_row()",
    )
    execute(api.engine, "DROP FUNCTION refuse_row() CASCADE")


def hearing_since(api: PeopleApi) -> datetime | None:
    """The end of the last gap in which no agent could be heard."""
    found: datetime | None = fetch_value(api.engine, "SELECT hearing_since_at FROM deployment")
    return found


def require_unchanged(api: PeopleApi, send: Send) -> None:
    """The request fails, and no table has another row than before.

    After a gap, as of a machine that stood still, the api counts the versions of all live jobs on,
    whoever asks for what. So a request that such a gap fell into proves nothing, and is sent again.
    """
    for _ in range(_GAPS_MAX):
        since, before = hearing_since(api), contents(api)
        assert send().status_code == 500
        after = contents(api)
        if hearing_since(api) == since:
            assert after == before
            return
    pytest.fail(f"{_GAPS_MAX} gaps in a row: this machine stands still too often")


@pytest.mark.parametrize(("method", "path"), CHANGING)
def test_without_its_row_nothing_changes(
    scene: Scene, no_room: Callable[[], None], method: str, path: str
):
    send = scene.send(method, path)
    interrupted = list(scene.cloud.interrupted)
    no_room()
    require_unchanged(scene.api, send)
    assert scene.cloud.interrupted == interrupted
    archive = hashlib.sha256(packed(scene.name)).hexdigest()
    store = scene.api.parts.runtime.object_store
    assert workdir_key(scene.api.project_id, archive) not in store.list_keys("")


def test_a_gap_of_the_api_is_no_change_of_a_request(scene: Scene, no_room: Callable[[], None]):
    send, gaps = scene.send("POST", "/api/v1/jobs/{job}/cancel"), [1]
    no_room()

    def send_after_a_gap() -> httpx.Response:
        if gaps:
            gaps.pop()
            since = hearing_since(scene.api)
            execute(scene.api.engine, "UPDATE deployment SET listening_at = now() - interval '1 h'")
            wait_until(lambda: hearing_since(scene.api) != since)
        return send()

    require_unchanged(scene.api, send_after_a_gap)
    assert not gaps


def test_what_changes_nothing_leaves_no_row(scene: Scene):
    scene.post("/api/v1/keys", name=scene.name)
    for path in (f"/api/v1/keys/{scene.name}/revoke", "/api/v1/projects/admin/restore"):
        scene.post(path)
        before = entries(scene.api)
        scene.post(path)
        assert entries(scene.api).keys() == before.keys()
    scene.submit()
    before = entries(scene.api)
    sent = {**SPEC, "name": scene.name}
    assert scene.api.submit(sent, **bearer(scene.key)).status_code == 409
    refused = httpx.post(
        f"{scene.api.url}/api/v1/jobs/{scene.name}/resume", headers=bearer(scene.key), timeout=30
    )
    assert refused.status_code == 409
    assert entries(scene.api).keys() == before.keys()


def test_digests_are_of_what_was_submitted(scene: Scene):
    job = scene.submit()
    [row] = [row for row in entries(scene.api).values() if row.subject_id == str(job["id"])]
    [stored] = rows_of(scene.api.engine, tables.jobs, id=UUID(job["id"]))
    assert row.digest_before is None
    assert row.digest_after == stored.spec_digest
    assert row.subject_name == scene.name
    values = {"b": datetime(2026, 1, 1, tzinfo=UTC), "a": None}
    canonical = b'{"a":null,"b":"2026-01-01T00:00:00Z"}'
    assert digest_of_values(values) == hashlib.sha256(canonical).hexdigest()


def test_many_jobs_have_a_row_each(scene: Scene):
    names = [f"{scene.name}-{letter}" for letter in "abc"]
    for name in names:
        scene.post("/api/v1/jobs", **SPEC, name=name)
    before = entries(scene.api)
    scene.post("/api/v1/jobs/batch", action="pause", ids=[*names, "not-there"])
    rows = [row for row_id, row in entries(scene.api).items() if row_id not in before]
    assert {row.subject_name for row in rows} == set(names)
    assert {row.action for row in rows} == {A.JOB_PAUSE}
    assert len({row.request_id for row in rows}) == 1
