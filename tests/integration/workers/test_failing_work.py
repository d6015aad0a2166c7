"""A piece of work that always fails waits longer each time, says so once, and holds up nobody."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, select

from app.domain.lifecycle.instance import EndedBy
from app.orchestration.frame.controller_frame import RowController, run_controller
from app.orchestration.frame.failing_work import (
    PASSING_WAIT_SECONDS_MAX,
    REMEMBERED_MAX,
    WAIT_SECONDS_MAX,
    FailingWork,
    work_key,
)
from app.orchestration.instances.reconcile_instances import ReconcileInstances
from app.orchestration.instances.release_instances import ReleaseInstances
from app.storage.schema import tables
from app.storage.session.storage_errors import RowsLocked
from app.storage.unit_of_work import UnitOfWork
from tests.support.stories.orchestration_story import PaperCloud, Story

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Piece:
    job_id: UUID
    lease_token: str


class Breaks(RowController[Piece]):
    """Its first pieces always raise; each pick has another lease, as in production."""

    name = "breaks"
    limit = 2
    period_seconds = 1.0

    def __init__(self, broken: int) -> None:
        self.broken = [UUID(int=number) for number in range(broken)]
        self.whole = [UUID(int=100 + number) for number in range(4)]
        self.tries: list[UUID] = []
        self.done: list[UUID] = []
        self.picks = 0

    def select(self, uow: UnitOfWork, limit: int) -> list[Piece]:
        self.picks += 1
        waiting = [one for one in self.whole if one not in self.done]
        return [Piece(one, f"pick {self.picks}") for one in [*self.broken, *waiting][:limit]]

    def apply(self, uow: UnitOfWork, work: Piece, result: None) -> None:
        self.tries.append(work.job_id)
        if work.job_id in self.broken:
            raise ValueError("this row cannot be read")
        self.done.append(work.job_id)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        return uow.now


def test_work_that_always_raises_is_tried_ever_less_often(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten minutes with four rings a second: a dozen tries, each with one line."""
    breaks = Breaks(broken=1)
    caplog.set_level(logging.ERROR)
    for _ in range(4 * 600):
        run_controller(story.runtime, breaks)
        story.sleep(0.25)
    tries = breaks.tries.count(breaks.broken[0])
    assert 8 <= tries <= 12
    lines = [record for record in caplog.records if "breaks" in record.getMessage()]
    assert len(lines) == tries
    assert [record.exc_info is not None for record in lines] == [True] + [False] * (tries - 1)
    assert f"{tries} in a row" in lines[-1].getMessage()


class Waits(Breaks):
    """Its piece needs the row of a job."""

    name = "waits"

    def apply(self, uow: UnitOfWork, work: Piece, result: None) -> None:
        uow.jobs.lock(self.broken[0])
        super().apply(uow, work, result)


def test_a_wait_for_a_lock_is_one_plain_line_without_sql(
    story: Story, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits(broken=0)
    waits.broken, waits.whole = [story.submit()], []
    with engine.begin() as holder:
        holder.execute(select(tables.jobs.c.id).with_for_update())
        run_controller(story.runtime, waits)
    [line] = [record for record in caplog.records if "waits" in record.getMessage()]
    assert line.levelno == logging.WARNING
    assert line.getMessage().endswith("its rows were locked by another transaction")
    assert line.exc_info is not None


class Contends(Breaks):
    """Another transaction always holds the row that it needs."""

    name = "contends"

    def apply(self, uow: UnitOfWork, work: Piece, result: None) -> None:
        self.tries.append(work.job_id)
        raise RowsLocked("its rows were locked by another transaction")


def test_a_wait_for_a_lock_is_tried_again_soon_however_often_it_failed(story: Story) -> None:
    """What releases machines or holds a budget must not stay away for minutes."""
    contends = Contends(broken=1)
    contends.whole = []
    for _ in range(10):
        run_controller(story.runtime, contends)
        story.sleep(PASSING_WAIT_SECONDS_MAX)
    assert len(contends.tries) == 10


def test_broken_pieces_at_the_head_hold_up_no_other(story: Story) -> None:
    """More of them than one run takes."""
    breaks = Breaks(broken=2)
    for _ in range(4):
        run_controller(story.runtime, breaks)
    assert breaks.done == breaks.whole


def test_a_piece_that_succeeds_begins_anew() -> None:
    failing, piece = FailingWork(), Piece(UUID(int=1), "a")
    for _ in range(3):
        failing.failed("one", piece, NOW)
    assert failing.waits("one", Piece(UUID(int=1), "another lease"), NOW + timedelta(seconds=3))
    assert not failing.waits("other", piece, NOW)
    failing.succeeded("one", piece)
    assert not failing.waits("one", piece, NOW)
    assert failing.failed("one", piece, NOW).times == 1


def test_waits_and_memory_are_bounded() -> None:
    failing = FailingWork()
    for _ in range(50):
        last = failing.failed("one", Piece(UUID(int=1), "a"), NOW)
    assert last.again_at - NOW == timedelta(seconds=WAIT_SECONDS_MAX)
    for number in range(REMEMBERED_MAX + 10):
        failing.failed("one", Piece(UUID(int=number), "a"), NOW)
    assert failing.waiting("one", NOW) == REMEMBERED_MAX


def test_a_piece_without_ids_is_known_by_its_words() -> None:
    @dataclass(frozen=True)
    class Place:
        provider: str
        lease_token: str
        seen_at: datetime

    assert work_key(Place("aws", "x", NOW)) == work_key(Place("aws", "y", NOW + timedelta(1)))
    assert work_key(Place("aws", "x", NOW)) != work_key(Place("gcp", "x", NOW))


def test_a_row_that_cannot_be_written_does_not_undo_the_looks_at_others(story: Story) -> None:
    broken, whole = story.submit(), story.submit()
    for job_id in (broken, whole):
        story.train(job_id)
    # Its spec cannot be read any more: whatever is recorded of it raises.
    story.set(tables.jobs, broken, spec={"nonsense": True})
    for machine_id in story.cloud.running():
        story.cloud.end(machine_id, EndedBy.CLOUD_INTERRUPTION)
    story.sleep(60)
    run_controller(story.runtime, ReconcileInstances(story.runtime))
    assert story.attempt(broken).state == "running"
    assert story.attempt(whole).state == "interrupted"
    looked = story.cloud.calls.count("describe")
    for _ in range(3):  # the ended machine once more; the broken one waits
        run_controller(story.runtime, ReconcileInstances(story.runtime))
    assert story.cloud.calls.count("describe") == looked + 1
    story.sleep(1)
    run_controller(story.runtime, ReconcileInstances(story.runtime))
    assert story.cloud.calls.count("describe") == looked + 2


def test_a_look_that_cannot_be_written_keeps_no_other_of_its_region_waiting(story: Story) -> None:
    """It was the only one of its batch each time that it failed."""
    broken, whole = story.submit(), story.submit()
    for job_id in (broken, whole):
        story.train(job_id)
    (later,) = story.members(whole)
    story.set(tables.instances, later, describe_at=story.time + timedelta(days=1))
    story.set(tables.jobs, broken, spec={"nonsense": True})
    for machine_id in story.cloud.running():
        story.cloud.end(machine_id, EndedBy.CLOUD_INTERRUPTION)
    for _ in range(6):
        story.sleep(60)
        run_controller(story.runtime, ReconcileInstances(story.runtime))
    story.set(tables.instances, later, describe_at=story.time)
    run_controller(story.runtime, ReconcileInstances(story.runtime))
    assert story.attempt(whole).state == "interrupted"


@dataclass
class RaisingCloud(PaperCloud):
    """A call about one of the `strange` machines ends in an error that no port knows."""

    strange: set[str] = field(default_factory=set)

    def terminate(self, provider_instance_ids: tuple[str, ...], region: str | None = None) -> None:
        super().terminate((), region)
        if self.strange.intersection(provider_instance_ids):
            raise KeyError("what nobody thought of")
        super().terminate(provider_instance_ids, region)


def test_a_machine_whose_call_raises_keeps_no_other_of_its_region(
    engine: Engine, tmp_path: Path
) -> None:
    story = Story(engine, tmp_path / "store", make_cloud=RaisingCloud)
    assert isinstance(story.cloud, RaisingCloud)
    gang, later = story.submit(nodes=8), story.submit()
    story.run()
    (strange, *_) = story.members(gang)
    kept = story.instance(strange).provider_instance_id
    story.cloud.strange.add(kept)
    story.stop(gang)
    releasing = ReleaseInstances(story.runtime)
    run_controller(story.runtime, releasing)
    (other,) = story.members(later)
    assert story.cloud.running() == [kept, story.instance(other).provider_instance_id]
    story.stop(later)
    story.set(tables.instances, strange, lease_until_at=story.time, terminate_at=story.time)
    run_controller(story.runtime, releasing)
    assert story.cloud.running() == [kept]
    calls = story.cloud.calls.count("terminate")
    run_controller(story.runtime, releasing)
    assert story.cloud.calls.count("terminate") == calls  # it waits
