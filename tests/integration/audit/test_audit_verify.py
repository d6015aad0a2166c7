"""What a verification of the audit names, and what it does not.

Not here: how seals come about (`test_audit_seals`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from app.domain.audit.audit_entry import digest_of_entry
from app.domain.audit.seal import Seal, SealedRow, seal_key
from app.domain.audit.seal_check import DifferenceKind
from app.domain.units.errors import InvalidValue
from app.orchestration.audit import seal_audit, verify_audit
from app.orchestration.audit.seal_audit import SealAudit
from app.orchestration.frame.controller_frame import effect_phase, select_phase
from app.storage.audit.audit_reports import AuditReports
from tests.support.servers.table_rows import fetch_value
from tests.support.stories.presence import present
from tests.support.stories.seal_story import SealStory


@pytest.mark.parametrize(
    ("statement", "kind", "row"),
    [
        ("UPDATE audit_entries SET address = '::1' WHERE number = 3", "row_changed", 3),
        ("UPDATE audit_entries SET digest_after = NULL WHERE number = 2", "row_changed", 2),
        ("DELETE FROM audit_entries WHERE number = 1", "row_missing", 1),
        ("UPDATE audit_seals SET digest = repeat('f', 64) WHERE number = 2", "seal_changed", None),
        ("UPDATE audit_seals SET first_row = 2 WHERE number = 2", "seal_changed", None),
        ("UPDATE audit_seals SET last_row = 3 WHERE number = 2", "seal_changed", None),
        (
            "UPDATE audit_seals SET sealed_at = sealed_at + interval '1 second' WHERE number = 2",
            "seal_changed",
            None,
        ),
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
        rows=tuple(SealedRow(one.id, digest_of_entry(one)) for one in entries.values()),
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
    tail = present(sealed.verify().unsealed)
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
    [missing] = sealed.verify().differences
    assert (missing.kind, missing.row, missing.last_row) == (DifferenceKind.ROW_MISSING, 3, 4)


def test_many_differences_are_cut_and_counted(sealed: SealStory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verify_audit, "DIFFERENCES_PER_PART", 1)
    sealed.tamper("UPDATE audit_entries SET address = '::1'")
    first = sealed.verify()
    assert (len(first.differences), first.differences_found, first.is_cut) == (1, 2, True)
    second = sealed.verify(present(first.next))
    assert (second.differences_found, second.differences[0].row) == (2, 3)


def test_missing_rows_next_to_each_other_are_one_difference(
    sealed: SealStory, monkeypatch: pytest.MonkeyPatch
):
    """Also over several seals, as after a restore, and no more than lie together."""
    monkeypatch.setattr(seal_audit, "ROWS_MAX", 2)
    sealed.act(*"efgh")
    sealed.seal()
    sealed.seal()
    sealed.tamper("DELETE FROM audit_entries WHERE number IN (2, 3, 4, 5, 7)")
    several, single = sealed.verify().differences
    assert (several.row, several.last_row, several.entry_id) == (2, 5, None)
    assert several.sentence == ("Rows 2 to 5 are missing: seals have them, the table does not.")
    assert (single.row, single.last_row) == (7, None)
    assert str(single.entry_id) in single.sentence


def written_outside(story: SealStory) -> Seal:
    """The next seal, outside and not in the database yet."""
    controller = SealAudit(story.runtime)
    story.now += seal_audit.BETWEEN_SEALS
    [work] = select_phase(story.runtime, controller)
    seal = effect_phase(controller, work)
    assert isinstance(seal, Seal)
    return seal


def test_a_seal_that_is_being_written_is_no_difference(sealed: SealStory):
    sealed.act("e", "f")
    being_written = written_outside(sealed)
    found = sealed.verify()
    assert found.differences == []
    assert present(found.unsealed).rows == 2
    sealed.tamper("DELETE FROM audit_entries WHERE subject_name = 'f'")
    [older] = sealed.verify().differences
    assert older.kind is DifferenceKind.DATABASE_OLDER
    assert older.seal == being_written.number == 3


def test_the_first_seal_that_is_being_written_is_no_difference(story: SealStory):
    story.act("a")
    written_outside(story)
    assert story.verify().differences == []


def test_a_seal_outside_that_does_not_follow_is_named(sealed: SealStory):
    """Its rows wait for a seal, so the database is not older: one of both was changed."""
    sealed.act("e")
    forged = replace(written_outside(sealed), previous="f" * 64)
    place = seal_key(sealed.deployment_id, 3)
    sealed.store.delete(place)
    sealed.store.put_new(place, forged.content)
    [broken] = sealed.verify().differences
    assert (broken.kind, broken.seal) == (DifferenceKind.CHAIN_BROKEN, 3)
    assert "does not follow seal 2" in broken.sentence


def test_a_next_seal_outside_that_cannot_be_read_is_named(sealed: SealStory):
    place = seal_key(sealed.deployment_id, 3)
    sealed.store.put_new(place, b"no seal")
    [unreadable] = sealed.verify().differences
    assert (unreadable.kind, unreadable.seal) == (DifferenceKind.SEAL_UNREADABLE, 3)
    assert "cannot be used: the seal cannot be read" in unreadable.sentence
    assert f"Nothing is sealed until {place} is moved away." in unreadable.sentence


def test_a_part_that_begins_nowhere_is_refused(sealed: SealStory):
    with pytest.raises(InvalidValue, match="there is no seal 9"):
        sealed.verify(after=9)


def test_a_database_without_seals_agrees(story: SealStory):
    assert story.verify().differences == []
    assert fetch_value(story.engine, "SELECT count(*) FROM audit_seals") == 0
