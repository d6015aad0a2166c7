"""Seals over audit rows: which rows they take, and what they survive.

Not here: what a verification names (`test_audit_verify`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from app.domain.audit import seal as seals
from app.domain.audit.seal import FIRST_PREVIOUS, Seal, SealedRow, read_seal, seal_key
from app.domain.units.errors import InvalidValue
from app.orchestration.audit import seal_audit, verify_audit
from app.orchestration.audit.seal_audit import SealAudit
from app.orchestration.frame.controller_frame import (
    apply_phase,
    effect_phase,
    run_controller,
    select_phase,
)
from app.orchestration.frame.failing_work import FailingWork
from app.ports.object_store import ObjectExists, ObjectStoreError
from app.storage.schema.tables import audit_seals
from tests.support.servers.table_rows import execute, fetch, rows_of
from tests.support.stories.presence import present
from tests.support.stories.seal_story import START, SealStory


def test_rows_get_numbers_and_a_seal_that_is_written_outside(story: SealStory):
    story.act("a", "b")
    assert present(story.verify().unsealed).rows == 2
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
    assert present(found.unsealed).rows == 0
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
    assert story.verify().differences == [], "its rows wait for it"
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
        "SET session_replication_role = replica; INSERT INTO audit_entries (id, at, action, "
        "subject_kind, subject_id, subject_name, outcome, number) SELECT gen_random_uuid(), at, "
        "action, subject_kind, subject_id, subject_name, outcome, 9 FROM audit_entries LIMIT 1",
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


def test_no_number_is_given_twice(story: SealStory):
    story.act("a")
    story.seal()
    story.act("b")
    with pytest.raises(DBAPIError, match="ix_audit_entries_number"):
        execute(story.engine, "UPDATE audit_entries SET number = 1 WHERE number IS NULL")


def test_a_request_writes_a_row_into_two_indexes(engine: Engine):
    written = (
        "SELECT indexrelid::regclass::text FROM pg_index "
        "WHERE indrelid = 'audit_entries'::regclass "
        "AND coalesce(pg_get_expr(indpred, indrelid), '') NOT LIKE '%(number IS NOT NULL)%'"
    )
    assert {row[0] for row in fetch(engine, written)} == {
        "pk_audit_entries",
        "ix_audit_entries_waiting",
    }


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
