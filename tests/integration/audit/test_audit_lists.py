"""The audit as it is read: filters, parts, CSV, JSON lines, refused attempts, and who sees what."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import text

from app.api.audit import audit_routes
from app.api.serving.refusal_counts import COUNTED_APART_MAX, RefusalCounts
from app.api.serving.request_origins import address_of
from app.domain.access.key_rules import beginning_of
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind, read_actions
from app.domain.audit.audit_entry import Subject, entry_of
from app.domain.deployment.credentials import digest
from app.domain.units.errors import InvalidValue
from app.orchestration.audit.seal_audit import BETWEEN_SEALS, SealAudit
from app.orchestration.frame.controller_frame import run_controller
from app.storage.audit import audit_repository
from app.storage.audit.audit_reports import (
    AuditFilter,
    AuditReports,
    AuditRow,
    _ids_of,
    _listed,
)
from app.storage.audit.audit_repository import REFUSALS_KEPT, RefusedAttempts
from app.storage.audit.audit_statements import INSERT_ENTRY, entry_parameters
from app.storage.schema import tables
from app.storage.schema.audit_tables import audit_refusals
from tests.support.api.agent_api import wait_until
from tests.support.api.people_api import (
    PeopleApi,
    bearer,
    make_key,
    make_person_key,
    make_project,
)
from tests.support.servers.table_rows import rows_of
from tests.support.stories.seal_story import SealStory

DAY = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = ("=cmd|' /C calc'!A0", "+1", "-2+3", "@sum", "ünï-名", "tab\there", '"quoted", comma', "z")


@dataclass(frozen=True)
class Kept:
    """Two projects with rows of their own, an hour apart, and one of the deployment."""

    api: PeopleApi
    keys: dict[Role, str]
    other: UUID

    def read(self, role: Role, **query: Any) -> dict[str, Any]:
        answer = self.answer(role, **query)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def answer(self, role: Role, path: str = "/audit", **query: Any) -> httpx.Response:
        headers = bearer(self.keys[role])
        return self.api.client.get(f"/api/v1{path}", params=query, headers=headers)

    def names(self, role: Role, **query: Any) -> list[str]:
        return [row["subject_name"] for row in self.read(role, **query)["items"]]


@pytest.fixture(scope="module")
def kept(api: PeopleApi) -> Kept:
    other = make_project(api.engine, "elsewhere")
    keys = {role: make_key(api.engine, api.project_id, f"of-{role}", role) for role in Role}
    [row] = rows_of(api.engine, tables.api_keys, key_hash=digest(keys[Role.ADMIN]))
    admin = Principal(row.id, row.name, api.project_id, "admin", Role.ADMIN)
    made = [
        (AuditAction.KEY_CREATE, Subject(SubjectKind.KEY, name, name, api.project_id))
        for name in NAMES
    ]
    made.append((AuditAction.JOB_CANCEL, Subject(SubjectKind.JOB, "j", "elsewhere-job", other)))
    made.append(
        (AuditAction.SWEEP_ASK, Subject(SubjectKind.DEPLOYMENT, "d", "the-deployment", None))
    )
    with api.engine.begin() as connection:
        for hour, (action, subject) in enumerate(made):
            entry = entry_of(uuid4(), DAY + timedelta(hours=hour), admin, action, subject)
            connection.exec_driver_sql(INSERT_ENTRY, entry_parameters(entry))
    return Kept(api, keys, other)


def test_a_maintainer_reads_the_project_and_those_who_see_all_read_all(kept: Kept):
    own = [*reversed(NAMES)]
    assert kept.names(Role.MAINTAINER) == own
    for role in (Role.AUDITOR, Role.ADMIN):
        assert kept.names(role) == ["the-deployment", "elsewhere-job", *own]
        assert kept.names(role, project="elsewhere") == ["elsewhere-job"]
        assert kept.names(role, project="admin") == own
    for role in (Role.VIEWER, Role.SUBMITTER):
        assert kept.answer(role).status_code == 403
    there, absent = (kept.answer(Role.MAINTAINER, project=one) for one in ("elsewhere", "absent"))
    assert there.status_code == absent.status_code == 404
    assert there.text.replace("elsewhere", "absent") == absent.text
    assert kept.answer(Role.SUBMITTER, project="elsewhere").status_code == 403
    assert kept.answer(Role.ADMIN, project="not-there").status_code == 404
    inside = {**bearer(kept.keys[Role.AUDITOR]), "Lowtide-Project": "elsewhere"}
    [row] = kept.api.client.get("/api/v1/audit", headers=inside).json()["items"]
    assert (row["who"], row["project"]) == ("admin/of-admin", "elsewhere")
    assert row["action"] == "job.cancel"


def test_filters_narrow_and_parts_follow_each_other(kept: Kept):
    everything = kept.names(Role.ADMIN)
    found: list[str] = []
    cursor = None
    for _ in range(len(everything)):
        part = kept.read(Role.ADMIN, limit=3, **({} if cursor is None else {"cursor": cursor}))
        found += [row["subject_name"] for row in part["items"]]
        cursor = part["next"]
        if cursor is None:
            break
    assert found == everything
    assert kept.names(Role.ADMIN, action="job") == ["elsewhere-job"]
    assert kept.names(Role.ADMIN, action="job.cancel,sweep.ask") == everything[:2]
    assert kept.names(Role.ADMIN, who="of-admin") == everything
    assert kept.names(Role.ADMIN, who="admin/of-admin") == everything
    assert kept.names(Role.ADMIN, who="elsewhere/of-admin") == [], "a key of another home"
    assert kept.names(Role.ADMIN, who="nobody") == []
    assert kept.names(Role.ADMIN, day="2026-03-01") == everything
    assert kept.names(Role.ADMIN, day="2026-02-28") == []


def test_every_list_is_read_by_indexes(kept: Kept):
    make_person_key(kept.api.engine, kept.other, "Indexed", Role.VIEWER)
    for wanted, index in (
        (AuditFilter(None, 1), "ix_audit_entries_sealed_at"),
        (AuditFilter(kept.other, 1), "ix_audit_entries_sealed_project"),
        (AuditFilter(None, 1, who="of-admin"), "ix_audit_entries_sealed_key"),
        (AuditFilter(None, 1, who="Indexed"), "ix_audit_entries_sealed_person"),
        (AuditFilter(None, 1, who="Indexed/laptop"), "ix_audit_entries_sealed_key"),
    ):
        with kept.api.engine.begin() as connection:
            who = None if wanted.who is None else _ids_of(connection, wanted.who)
            shown = _listed(wanted, who).compile(connection, compile_kwargs={"literal_binds": True})
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            plan = str(connection.execute(text(f"EXPLAIN {shown}")).all())
        assert index in plan, plan
        assert "ix_audit_entries_waiting" in plan, plan


def test_rows_with_and_without_a_number_are_one_list(story: SealStory):
    def names(before: AuditRow | None = None) -> list[str]:
        after = None if before is None else (before.entry.at, before.entry.id)
        return [row.subject_name for row in reports.rows(AuditFilter(None, 2, before=after))]

    reports = AuditReports(story.engine)
    story.act("a", "b")
    story.seal()
    story.act("c", "d")
    assert names() == ["d", "c"]
    newest, second = reports.rows(AuditFilter(None, 2))
    assert (newest.number, second.number) == (None, None)
    assert names(newest) == ["c", "b"]
    story.seal()
    assert names(newest) == ["c", "b"], "a row that gets its number between two parts is in one"
    assert names(second) == ["b", "a"]
    assert [row.number for row in reports.rows(AuditFilter(None, 9))] == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"action": "job.fly"}, "action"),
        ({"action": "x" * 401}, "action"),
        ({"day": "yesterday"}, "day"),
        ({"day": "9999-12-31"}, "day"),
        ({"who": "x" * 145}, "who"),
        ({"cursor": "7"}, "cursor"),
        ({"limit": 201}, "limit"),
        ({"format": "xml"}, "format"),
    ],
)
def test_bad_filters_are_refused(kept: Kept, query: dict[str, Any], field: str):
    answer = kept.answer(Role.ADMIN, **query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_a_file_has_every_row_and_no_formula(kept: Kept, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_routes, "_EXPORTED_TOGETHER", 3)
    listed = kept.read(Role.MAINTAINER)["items"]
    answer = kept.answer(Role.MAINTAINER, format="csv")
    assert answer.headers["content-type"].startswith("text/csv")
    header, *rows = csv.reader(io.StringIO(answer.text))
    assert header == list(audit_routes.COLUMNS) == list(listed[0])
    cells = [row[header.index("subject_name")] for row in rows]
    for cell, name in zip(cells, reversed(NAMES), strict=True):
        assert cell == (f"'{name}" if name[0] in "=+-@" else name.replace("\t", " "))
    assert rows[0][header.index("at")] == "2026-03-01T07:00:00+00:00"
    lines = kept.answer(Role.MAINTAINER, format="jsonl").text.splitlines()
    assert [json.loads(line) for line in lines] == listed


def test_an_empty_file_has_its_header(kept: Kept):
    text = kept.answer(Role.ADMIN, format="csv", who="nobody").text
    assert text == ",".join(audit_routes.COLUMNS) + "\n"
    assert kept.answer(Role.ADMIN, format="jsonl", who="nobody").text == ""


def test_a_row_is_verified_over_rest(kept: Kept):
    runtime = kept.api.parts.runtime
    told = kept.answer(Role.AUDITOR, "/audit/verify").json()
    assert told["agrees"]
    assert told["unsealed"]["rows"] > 0
    run_controller(runtime, SealAudit(runtime))
    told = kept.answer(Role.AUDITOR, "/audit/verify").json()
    assert (told["agrees"], told["seals"], told["next"]) == (True, 1, None)
    assert told["rows"] == len(NAMES) + 2
    assert kept.read(Role.ADMIN)["items"][0]["number"] is not None
    assert runtime.clock.now() + BETWEEN_SEALS > datetime.now(UTC)


def test_refused_attempts_are_counted_by_minute(kept: Kept):
    unknown = f"lt_{'b' * 43}"
    for _ in range(3):
        assert kept.api.client.get("/api/v1/jobs", headers=bearer(unknown)).status_code == 401
    assert kept.api.client.get("/api/v1/jobs", headers=bearer("hunter2")).status_code == 401
    refused = kept.api.client.post("/api/v1/jobs", json={}, headers=bearer(kept.keys[Role.VIEWER]))
    assert refused.status_code == 403
    inside = {**bearer(kept.keys[Role.MAINTAINER]), "Lowtide-Project": "elsewhere"}
    assert kept.api.client.get("/api/v1/jobs", headers=inside).status_code == 404

    def counts() -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for row in kept.answer(Role.AUDITOR, "/audit/refusals").json()["items"]:
            name = (row["action"], row["key_prefix"])
            found[name] = found.get(name, 0) + row["attempts"]
            assert row["address"] == "127.0.0.1"
        return found

    # The last attempt is counted last: with it all are written.
    last = kept.keys[Role.MAINTAINER][:7]
    wait_until(lambda: any(prefix == last for _, prefix in counts()), seconds=20)
    found = counts()
    assert ("POST /api/v1/jobs", "") in found
    assert found["GET /api/v1/jobs", "lt_bbbb"] == 3
    assert found["GET /api/v1/jobs", ""] >= 1
    assert not any("hunter" in prefix for _, prefix in found)
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    assert kept.answer(Role.ADMIN, "/audit/refusals", day=str(yesterday)).json()["items"] == []
    assert kept.answer(Role.MAINTAINER, "/audit/refusals").status_code == 403


def test_old_counts_are_removed_some_at_a_time(story: SealStory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_repository, "REFUSALS_REMOVED_MAX", 2)
    ages = [timedelta(0), REFUSALS_KEPT, *(REFUSALS_KEPT + timedelta(days=n) for n in (1, 2, 3))]
    attempts = [RefusedAttempts(DAY - age, "::1", "", None, "old", 1) for age in ages]

    def minutes() -> list[datetime]:
        return [row.minute_at for row in rows_of(story.engine, audit_refusals)]

    def count(*some: RefusedAttempts) -> None:
        with story.runtime.begin() as uow:
            uow.audit.count_refusals(some, DAY)

    count(*attempts)
    assert len(minutes()) == len(ages)
    count()
    assert sorted(minutes()) == [DAY - age for age in (ages[2], ages[1], ages[0])]
    count()
    count()
    assert sorted(minutes()) == [DAY - age for age in (ages[1], ages[0])]


def test_who_tries_many_keys_fills_no_memory(kept: Kept):
    counts = RefusalCounts(kept.api.parts.runtime)
    for number in range(COUNTED_APART_MAX + 500):
        counts.count("203.0.113.9", f"lt_{number}", None, "GET /x")
    assert len(counts._counts) <= COUNTED_APART_MAX + 2
    assert sum(counts._counts.values()) == COUNTED_APART_MAX + 500
    counts._counts.clear()  # written: the minute goes on, and has no room for others
    counts.count("203.0.113.9", "lt_new", None, "GET /x")
    assert [name[1] for name in counts._counts] == ["others"]


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("lt_abcdefgh", "lt_abcd"),
        ("lt_\0abc", "lt_"),
        ("lt_äöü", "lt_"),
        ("hunter2", ""),
        ("lt_ab", "lt_ab"),
    ],
)
def test_the_beginning_that_is_shown_of_a_key_is_that_of_a_key(sent: str, shown: str):
    assert beginning_of(sent) == shown


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("198.51.100.7", None, "198.51.100.7"),
        ("198.51.100.7", "203.0.113.9", "198.51.100.7"),
        ("10.0.0.7", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.7", "9.9.9.9, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.7", "2001:db8::1", "2001:db8::1"),
        ("10.0.0.7", "<script>", "10.0.0.7"),
        ("10.0.0.7", None, "10.0.0.7"),
        (None, "203.0.113.9", "unknown"),
    ],
)
def test_only_a_trusted_proxy_says_where_a_request_comes_from(
    peer: str | None, forwarded: str | None, address: str
):
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]
    scope = {"client": None if peer is None else (peer, 1), "headers": headers}
    assert address_of(scope, {ip_network("10.0.0.0/8")}) == address
    assert address_of(scope, set()) == (peer or "unknown")


def test_actions_are_read_by_name_and_by_what_they_are_done_to():
    assert read_actions(None) == ()
    assert read_actions("key.rotate") == (AuditAction.KEY_ROTATE,)
    assert set(read_actions("project, JOB.cancel")) == {
        AuditAction.PROJECT_ARCHIVE,
        AuditAction.PROJECT_BUDGET,
        AuditAction.PROJECT_CREATE,
        AuditAction.PROJECT_RESTORE,
        AuditAction.PROJECT_RULES,
        AuditAction.JOB_CANCEL,
    }
    with pytest.raises(InvalidValue, match="is no action; use job, machine"):
        read_actions("fly")


def test_a_person_s_key_is_found_by_the_person_and_its_name(kept: Kept):
    made: dict[str, list[str]] = {}
    for name in ("Ada L.", "Bo"):
        headers = bearer(make_person_key(kept.api.engine, kept.other, name, Role.SUBMITTER))
        own = {"name": f"of-{name[:2].lower()}"}
        assert kept.api.client.post("/api/v1/me/keys", json=own, headers=headers).is_success
        made[name] = [own["name"]]
    for name, rows in made.items():
        assert kept.names(Role.ADMIN, who=f"{name.upper()}/laptop") == rows
        assert kept.names(Role.ADMIN, who=f"{name}/of-admin") == []
    assert kept.names(Role.ADMIN, who="laptop") == ["of-bo", "of-ad"]
    # A service key of that name is meant, and nobody's own is among its rows.
    make_key(kept.api.engine, kept.other, "laptop")
    assert kept.names(Role.ADMIN, who="laptop") == []
    assert kept.names(Role.ADMIN, who="elsewhere/laptop") == []
    assert kept.names(Role.ADMIN, who="Bo/laptop") == ["of-bo"]
