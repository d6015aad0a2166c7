"""Seals over audit rows: which rows they take, what they survive, and what a verification names."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from app.adapters.object_stores.obstore_store import open_object_store
from app.domain.access.principal import Origin, Principal
from app.domain.access.roles import Role
from app.domain.audit import seal as seals
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.audit.seal import FIRST_PREVIOUS, Seal, SealedRow, read_seal, seal_key
from app.domain.audit.seal_check import DifferenceKind
from app.domain.units.errors import InvalidValue
from app.orchestration.audit import seal_audit, verify_audit
from app.orchestration.audit.record_action import record_action
from app.orchestration.audit.seal_audit import SealAudit
from app.orchestration.audit.verify_audit import VerifiedPart, verify_part
from app.orchestration.frame.controller_frame import (
    apply_phase,
    effect_phase,
    run_controller,
    select_phase,
)
from app.orchestration.frame.failing_work import FailingWork
from app.ports.object_store import ObjectExists, ObjectStoreError
from app.storage.audit.audit_reports import AuditReports
from app.storage.schema import tables
from app.storage.schema.tables import audit_entries, audit_seals
from app.storage.unit_of_work import UnitOfWork
from tests.support.api.agent_api import make_runtime
from tests.support.servers.table_rows import add_row, execute, fetch, fetch_value, rows_of

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNTOUCHED = "ALTER TABLE audit_entries DISABLE TRIGGER USER"


class SealStory:
    """A deployment whose time stands until a test moves it, and a folder for seals."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.now = START
        self.deployment_id = uuid4()
        self.store = open_object_store((folder / "seals").as_uri())
        runtime = make_runtime(engine, folder, read_clock=lambda: self.now)
        self.runtime = replace(runtime, seal_store=self.store)
        add_row(engine, tables.deployment, id=1, deployment_id=self.deployment_id, secret="s" * 43)

    def record(self, uow: UnitOfWork, name: str) -> None:
        """A row in an open transaction."""
        ada = Principal(uuid4(), "ada", uuid4(), "alpha", Role.ADMIN)
        ada = ada.from_origin(Origin("203.0.113.9", "a" * 32))
        subject = Subject(SubjectKind.KEY, name, name, ada.project_id)
        entropy = self.runtime.entropy
        record_action(uow, entropy, ada, AuditAction.KEY_CREATE, subject, after={"name": name})

    def act(self, *names: str) -> None:
        """Rows, each in a transaction of its own."""
        for name in names:
            with self.runtime.begin() as uow:
                self.record(uow, name)

    def seal(self) -> int:
        """One run, five seconds later."""
        self.now += seal_audit.BETWEEN_SEALS
        return run_controller(self.runtime, SealAudit(self.runtime))

    def verify(self, after: int = 0) -> VerifiedPart:
        return verify_part(
            AuditReports(self.engine), self.store, self.deployment_id, after, self.runtime.clock
        )

    def kinds(self) -> list[tuple[DifferenceKind, int | None]]:
        """(kind, row) of each difference."""
        return [(one.kind, one.row) for one in self.verify().differences]

    def outside(self, number: int) -> Seal:
        return read_seal(self.store.get(seal_key(self.deployment_id, number)))

    def tamper(self, *statements: str) -> None:
        """What a superuser of the database may do."""
        with self.engine.begin() as connection:
            connection.execute(text(UNTOUCHED))
            connection.execute(text("ALTER TABLE audit_seals DISABLE TRIGGER USER"))
            for statement in statements:
                connection.execute(text(statement))

    def numbers(self) -> dict[str, int | None]:
        return {row.subject_name: row.number for row in rows_of(self.engine, audit_entries)}


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> SealStory:
    return SealStory(engine, tmp_path)


def test_rows_get_numbers_and_a_seal_that_is_written_outside(story: SealStory):
    story.act("a", "b")
    assert story.verify().unsealed.rows == 2
    assert story.seal() == 1
    story.act("c")
    story.seal()
    assert story.numbers() == {"a": 1, "b": 2, "c": 3}
    first, second = story.outside(1), story.outside(2)
    assert (first.previous, first.first_row, first.last_row) == (FIRST_PREVIOUS, 1, 2)
    assert (second.previous, second.first_row, second.last_row) == (first.digest, 3, 3)
    stored = rows_of(story.engine, audit_seals)
    assert [row.digest for row in stored] == [first.digest, second.digest]
    found = story.verify()
    assert (found.seals, found.rows, found.differences, found.next) == (2, 3, [], None)
    assert found.unsealed.rows == 0
    assert story.seal() == 0, "without rows there is no seal"


def test_a_seal_is_made_every_five_seconds_at_most(story: SealStory):
    controller = SealAudit(story.runtime)
    story.act("a")
    story.seal()
    story.act("b")
    with story.runtime.begin() as uow:
        assert controller.next_due(uow) == story.now + timedelta(seconds=5)
    assert run_controller(story.runtime, controller) == 0
    story.now -= timedelta(hours=1)
    with story.runtime.begin() as uow:
        assert controller.next_due(uow) == story.now, "a clock that went back stops nothing"
    assert run_controller(story.runtime, controller) == 1
    assert story.verify().differences == []


def test_a_row_that_commits_late_is_in_a_later_seal(story: SealStory):
    """Its id is the lower one: nothing can come in below a number that is sealed."""
    with story.runtime.begin() as slow:
        story.record(slow, "slow")
        slow.flush()
        story.act("quick")
        story.seal()
        assert story.numbers() == {"quick": 1}
    story.seal()
    assert story.numbers() == {"quick": 1, "slow": 2}
    assert story.verify().differences == []


def test_what_is_undone_leaves_no_gap(story: SealStory):
    def undone() -> None:
        with story.runtime.begin() as uow:
            story.record(uow, "undone")
            uow.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        undone()
    story.act("a")
    story.seal()
    assert story.numbers() == {"a": 1}


def test_many_rows_are_several_seals(story: SealStory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seal_audit, "ROWS_MAX", 2)
    monkeypatch.setattr(verify_audit, "SEALS_PER_PART", 1)
    story.act(*"abcde")
    for _ in range(3):
        story.seal()
    parts, after = [], 0
    while True:
        parts.append(story.verify(after))
        if parts[-1].next is None:
            break
        assert parts[-1].unsealed is None
        after = parts[-1].next
    assert sum(part.rows for part in parts) == 5
    assert sum(part.seals for part in parts) == 3
    assert [part.differences for part in parts] == [[]] * len(parts)


def test_a_process_that_dies_after_writing_outside_is_continued(story: SealStory):
    controller = SealAudit(story.runtime)
    story.act("a")
    [work] = select_phase(story.runtime, controller)
    effect_phase(controller, work)
    story.act("b")
    story.seal()
    assert story.outside(1) == work
    assert story.numbers() == {"a": 1, "b": None}
    story.seal()
    assert story.numbers() == {"a": 1, "b": 2}
    assert story.verify().differences == []


def test_two_workers_make_one_seal(story: SealStory):
    controller = SealAudit(story.runtime)
    story.act("a")
    [work] = select_phase(story.runtime, controller)
    results = [effect_phase(controller, work) for _ in range(2)]
    for result in results:
        apply_phase(story.runtime, controller, work, result)
    assert story.numbers() == {"a": 1}
    assert len(rows_of(story.engine, audit_seals)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entries SET subject_name = 'x'",
        "UPDATE audit_entries SET number = 7, action = 'key.revoke' WHERE number IS NULL",
        "UPDATE audit_entries SET number = 7 WHERE number = 1",
        "UPDATE audit_entries SET number = NULL",
        "INSERT INTO audit_entries (id, at, action, subject_kind, subject_id, subject_name, "
        "outcome, number) SELECT gen_random_uuid(), at, action, subject_kind, subject_id, "
        "subject_name, outcome, 9 FROM audit_entries LIMIT 1",
        "DELETE FROM audit_entries",
        "DELETE FROM audit_entries WHERE false",
        "TRUNCATE audit_entries",
        "SET session_replication_role = replica; DELETE FROM audit_entries",
        "UPDATE audit_seals SET digest = 'x'",
        "DELETE FROM audit_seals",
        "TRUNCATE audit_seals",
    ],
)
def test_rows_and_seals_are_append_only(story: SealStory, statement: str):
    story.act("a")
    story.seal()
    story.act("b")
    with pytest.raises(DBAPIError, match="append-only"):
        execute(story.engine, statement)


def test_the_owner_may_give_numbers_and_change_nothing_else(story: SealStory):
    granted = (
        "SELECT DISTINCT table_name, privilege_type FROM information_schema.role_table_grants "
        "WHERE table_name LIKE 'audit\\_%s' AND table_name <> 'audit_refusals'"
    )
    rights = {tuple(row) for row in fetch(story.engine, granted)}
    assert not {right for _, right in rights} & {"UPDATE", "DELETE", "TRUNCATE"}
    columns = (
        "SELECT column_name FROM information_schema.column_privileges "
        "WHERE table_name IN ('audit_entries', 'audit_seals') AND privilege_type = 'UPDATE'"
    )
    assert {row[0] for row in fetch(story.engine, columns)} == {"number"}


@pytest.fixture
def sealed(story: SealStory) -> SealStory:
    """Rows 1 to 4 under two seals."""
    story.act("a", "b")
    story.seal()
    story.act("c", "d")
    story.seal()
    return story


@pytest.mark.parametrize(
    ("statement", "kind", "row"),
    [
        ("UPDATE audit_entries SET address = '::1' WHERE number = 3", "row_changed", 3),
        ("UPDATE audit_entries SET digest_after = NULL WHERE number = 2", "row_changed", 2),
        ("DELETE FROM audit_entries WHERE number = 1", "row_missing", 1),
        ("UPDATE audit_seals SET digest = repeat('f', 64) WHERE number = 2", "seal_changed", None),
        ("DELETE FROM audit_seals WHERE number = 1", "seal_missing", None),
        ("UPDATE audit_entries SET number = NULL WHERE number = 4", "row_missing", 4),
    ],
)
def test_what_was_changed_is_named(sealed: SealStory, statement: str, kind: str, row: int | None):
    sealed.tamper(statement)
    assert (DifferenceKind(kind), row) in sealed.kinds()
    assert sealed.verify().differences[0].sentence.endswith(".")


def test_a_row_that_no_seal_has_is_named(sealed: SealStory):
    sealed.act("forged")
    sealed.tamper("UPDATE audit_entries SET number = 5 WHERE subject_name = 'forged'")
    assert sealed.kinds() == [(DifferenceKind.ROW_ADDED, 5)]


def test_all_of_the_database_changed_together_is_still_named(sealed: SealStory):
    """Whoever changes a row and makes the seals in the database anew does not reach the copies."""
    sealed.tamper("UPDATE audit_entries SET address = '::1' WHERE number = 1")
    entries = AuditReports(sealed.engine).numbered(1, 2)
    forged = replace(
        sealed.outside(1),
        rows=tuple(SealedRow(one.id, seals.digest_of_entry(one)) for one in entries.values()),
    )
    sealed.tamper(f"UPDATE audit_seals SET digest = '{forged.digest}' WHERE number = 1")
    sealed.tamper(f"UPDATE audit_seals SET previous = '{forged.digest}' WHERE number = 2")
    kinds = sealed.kinds()
    assert (DifferenceKind.SEAL_CHANGED, None) in kinds
    assert (DifferenceKind.ROW_CHANGED, 1) in kinds


def test_copies_that_are_gone_or_damaged_are_named(sealed: SealStory, tmp_path: Path):
    copies = sorted((tmp_path / "seals").rglob("*.json"))
    copies[1].write_text(copies[1].read_text().replace('"seal":2', '"seal":3'))
    copies[0].unlink()
    assert sealed.kinds() == [
        (DifferenceKind.SEAL_NOT_OUTSIDE, None),
        (DifferenceKind.SEAL_CHANGED, None),
    ]
    copies[1].write_text("no seal")
    assert sealed.kinds()[1] == (DifferenceKind.SEAL_UNREADABLE, None)
    sealed.tamper("UPDATE audit_entries SET address = '::1' WHERE number = 2")
    told = sealed.verify().differences[1]
    assert told.kind is DifferenceKind.ROW_CHANGED
    assert "A row of 1 to 2 was changed" in told.sentence


def test_the_tail_that_no_seal_has_is_named(sealed: SealStory):
    sealed.now += timedelta(minutes=1)
    sealed.act("e", "f")
    tail = sealed.verify().unsealed
    assert (tail.rows, tail.from_at, tail.to_at) == (2, sealed.now, sealed.now)


def test_a_restored_database_is_older_than_its_seals_and_goes_on(sealed: SealStory):
    """As if a backup from after the first seal had been restored."""
    lost = sealed.outside(2)
    sealed.tamper(
        "DELETE FROM audit_entries WHERE number > 2", "DELETE FROM audit_seals WHERE number > 1"
    )
    [older] = sealed.verify().differences
    assert older.kind is DifferenceKind.DATABASE_OLDER
    assert "its last is 1, outside is 2" in older.sentence
    sealed.act("after")
    sealed.seal()
    assert sealed.numbers()["after"] is None, "the lost rows keep their numbers"
    sealed.seal()
    assert sealed.numbers() == {"a": 1, "b": 2, "after": 5}
    assert sealed.outside(2) == lost
    assert sealed.kinds() == [(DifferenceKind.ROW_MISSING, 3), (DifferenceKind.ROW_MISSING, 4)]


def test_seals_of_another_chain_are_not_taken_over(story: SealStory):
    story.act("a")
    foreign = Seal(story.deployment_id, 1, START, "f" * 64, 1, (SealedRow(uuid4(), "0" * 64),))
    story.store.put_new(seal_key(story.deployment_id, 1), foreign.content)
    controller = SealAudit(story.runtime)
    story.now += timedelta(seconds=5)
    [work] = select_phase(story.runtime, controller)
    result = effect_phase(controller, work)
    with pytest.raises(InvalidValue, match="does not follow seal 0"):
        apply_phase(story.runtime, controller, work, result)
    assert story.numbers() == {"a": None}


class FailingStore:
    """A store that is away."""

    def __init__(self) -> None:
        self.asked = 0

    def put_new(self, key: str, content: bytes) -> None:
        self.asked += 1
        raise ObjectStoreError(f"{key}: the store is away")


def test_while_the_store_is_away_rows_wait_and_are_written(story: SealStory):
    store: Any = FailingStore()
    working, story.runtime = story.runtime, replace(story.runtime, seal_store=store)
    story.act("a")
    story.seal()
    story.act("b")
    assert store.asked == 1
    assert story.numbers() == {"a": None, "b": None}
    story.runtime = replace(working, failing=FailingWork())
    story.seal()
    assert story.numbers() == {"a": 1, "b": 2}


def test_a_copy_is_never_written_over(sealed: SealStory):
    with pytest.raises(ObjectExists):
        sealed.store.put_new(seal_key(sealed.deployment_id, 1), b"other")


def test_a_part_that_begins_nowhere_is_refused(sealed: SealStory):
    with pytest.raises(InvalidValue, match="there is no seal 9"):
        sealed.verify(after=9)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"version":2}', b"\xff", b'{"version":1,"deployment":"x"}'],
)
def test_what_is_no_seal_is_refused(content: bytes):
    with pytest.raises(InvalidValue):
        read_seal(content)


@pytest.fixture
def one_seal() -> Seal:
    return Seal(UUID(int=1), 7, START, "0" * 64, 3, (SealedRow(UUID(int=2), "1" * 64),))


def test_a_seal_reads_as_it_was_written(one_seal: Seal):
    assert read_seal(one_seal.content) == one_seal
    with pytest.raises(InvalidValue, match="another form"):
        read_seal(one_seal.content.replace(b'"seal":7', b'"seal": 7'))
    assert seal_key(one_seal.deployment_id, 7).endswith("/000000000007.json")
    assert seals.number_of_key("x/000000000007.json") == 7
    assert seals.number_of_key("x/note.txt") is None


def test_a_database_without_seals_agrees(story: SealStory):
    assert story.verify().differences == []
    assert fetch_value(story.engine, "SELECT count(*) FROM audit_seals") == 0
