"""A database that has gone back in time: no job is launched twice, and no checkpoint is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.domain.deployment.credentials import launch_token
from app.domain.deployment.sweep_rules import FENCES_SKIPPED, UNLISTED_SECONDS_MAX, VERSIONS_MAX
from app.domain.lifecycle.instance import EndedBy
from app.orchestration.agents.register_agent import NotKnownYet, TokenRefused, register_agent
from app.orchestration.checkpoints.prune_checkpoints import PruneCheckpoints
from app.orchestration.deployment.confirm_sweep import ask_for_sweep
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.frame.lost_rows import (
    forgotten_parents,
    highest_fence,
    number_beyond,
    numbered_before_gap,
    record_listening,
)
from app.ports.cloud_provider import MachineList, ProviderError, RefusalKind
from app.ports.object_store import ObjectStore, ObjectStoreError
from app.simulation.engine.memory_store import MemoryStore
from app.storage.schema import tables
from tests.support.servers.database_backup import dump, restore
from tests.support.stories.orchestration_story import SECRET, PaperCloud, Story
from trainer.protocol.agent_report import (
    PROTOCOL_VERSION,
    FactKind,
    MachinePhase,
    Registration,
)
from trainer.protocol.checkpoint_manifest import (
    CheckpointRef,
    FenceRecord,
    data_key,
    fence_key,
    manifest_key,
)
from trainer.protocol.wire import encode


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    """A deployment whose agents are heard, and whose regions were listed."""
    story = Story(engine, tmp_path / "store")
    _listen(story)
    story.sweep()
    return story


def _listen(story: Story) -> None:
    """An api process writes that it hears agents."""
    with story.runtime.begin() as uow:
        record_listening(uow, story.runtime.limits.listening_gap_seconds)


def _store_of(story: Story, job_id: UUID) -> ObjectStore:
    return story.runtime.store_at(f"{story.runtime.checkpoint_root_uri}/{job_id}")


def _record(store: ObjectStore, fence: int, parent: tuple[int, int] | None = None) -> None:
    """What rank 0 of an attempt writes before it restores."""
    ref = None if parent is None else CheckpointRef(*parent, "d" * 64)
    record = FenceRecord(fence, ref, "machine")
    store.put_new(fence_key(fence), json.dumps(encode(record)).encode())


def _claimed_after_the_dump(story: Story) -> UUID:
    """The dump knows a job that waits; since then it was claimed, and its machine trains."""
    job_id = story.submit()
    taken = dump(story.engine)
    story.train(job_id)
    story.sleep(30)
    restore(story.engine, taken)
    assert story.job(job_id).state == "queued"
    return job_id


def test_nothing_is_claimed_before_every_region_was_listed(story: Story) -> None:
    job_id = _claimed_after_the_dump(story)
    running = story.cloud.running()
    story.run()  # the worker is there before the api
    _listen(story)
    story.run()
    assert story.launches(job_id) == []
    assert "sweep_deployment" in story.runtime.wakeups.rung  # type: ignore[attr-defined]
    story.sweep()  # due at once, though by its rows the last list is half a minute old
    story.run()
    assert story.cloud.running() == running
    assert [one.origin for one in story.living(job_id)] == ["adopted"]
    (machine,) = story.living(job_id)
    story.register(machine.id)
    story.run()
    assert story.cloud.running() == running
    assert machine.id in story.members(job_id, FENCES_SKIPPED + 1)


def test_an_agent_of_a_lost_launch_is_told_to_try_again(story: Story) -> None:
    """Its machine was booting, or its agent began anew: a refusal would end it for good."""
    taken = dump(story.engine)
    job_id = story.submit()
    story.run()
    (machine,) = story.members(job_id)
    token = launch_token(SECRET, str(story.instance(machine).launch_id))
    provider_id = story.instance(machine).provider_instance_id
    registration = Registration(
        PROTOCOL_VERSION, token, "nonce", provider_id,
        "boot", "session", 1_000, "10.0.0.1", 20_000, 20_100,
    )  # fmt: skip
    story.sleep(60)
    restore(story.engine, taken)
    _listen(story)
    with story.runtime.begin() as uow, pytest.raises(NotKnownYet):
        register_agent(uow, story.runtime, registration)
    story.sweep()
    with story.runtime.begin() as uow, pytest.raises(TokenRefused):
        register_agent(uow, story.runtime, registration)


def test_claims_wait_for_lists_that_fail_but_not_for_ever(story: Story) -> None:
    job_id = _claimed_after_the_dump(story)
    _listen(story)
    story.cloud.failures = [ProviderError(RefusalKind.UNAVAILABLE, "away")] * 2
    story.sweep()
    story.run()
    assert story.launches(job_id) == []
    heard_at = story.time
    while (story.time - heard_at).total_seconds() < UNLISTED_SECONDS_MAX:
        assert story.launches(job_id) == []
        story.sleep(10)
        _listen(story)
    story.run()
    assert len(story.launches(job_id)) == 1


class PartialCloud(PaperCloud):
    """Its lists may lack a page."""

    whole = True

    def list_deployment(self, region: str) -> MachineList:
        return replace(super().list_deployment(region), complete=self.whole)


def test_a_list_that_lacks_a_page_is_made_again_soon(engine: Engine, tmp_path: Path) -> None:
    """What it left out may be a machine that nobody knows, and that costs money."""
    story = Story(engine, tmp_path / "store", make_cloud=PartialCloud)
    assert isinstance(story.cloud, PartialCloud)
    story.sweep()
    lists = []
    for story.cloud.whole in (False, True):
        story.sleep(story.runtime.limits.sweep_seconds)
        story.sweep()
        story.cloud.calls.clear()
        for share in (0.2, 0.1):
            story.sleep(share * story.runtime.limits.sweep_seconds)
            story.sweep()
            lists.append(story.cloud.calls.count("list_deployment"))
    regions = len(story.cloud.regions())
    assert lists == [0, regions, 0, 0]


def test_a_list_that_always_lacks_a_page_is_soon_made_as_seldom_as_others(
    engine: Engine, tmp_path: Path
) -> None:
    story = Story(engine, tmp_path / "store", make_cloud=PartialCloud)
    assert isinstance(story.cloud, PartialCloud)
    story.cloud.whole = False
    story.sweep()
    rounds = []
    for _ in range(4):
        story.cloud.calls.clear()
        for _ in range(4):
            story.sleep(story.runtime.limits.sweep_seconds / 4)
            story.sweep()
        rounds.append(story.cloud.calls.count("list_deployment") // len(story.cloud.regions()))
    assert rounds == [3, 1, 1, 1]


def test_a_list_that_lacks_a_page_is_not_enough(engine: Engine, tmp_path: Path) -> None:
    story = Story(engine, tmp_path / "store", make_cloud=PartialCloud)
    _listen(story)
    story.sweep()
    job_id = story.submit()
    story.sleep(30)
    _listen(story)
    assert isinstance(story.cloud, PartialCloud)
    for story.cloud.whole, launches in ((False, 0), (True, 1)):
        story.sleep(10)
        _listen(story)
        with story.runtime.begin() as uow:
            ask_for_sweep(uow)
        story.sweep()
        story.run()
        assert len(story.launches(job_id)) == launches


def test_claims_wait_while_nobody_hears_agents(story: Story) -> None:
    job_id = story.submit()
    story.sleep(story.runtime.limits.listening_gap_seconds + 1)
    story.run()
    assert story.launches(job_id) == []


def test_a_new_database_waits_for_no_list(engine: Engine, tmp_path: Path) -> None:
    story = Story(engine, tmp_path / "store")
    _listen(story)
    job_id = story.submit()
    story.run()
    assert len(story.launches(job_id)) == 1


def test_no_replacement_is_asked_for_before_every_region_was_listed(story: Story) -> None:
    """What a cloud says of a machine may be a day newer than the rows."""
    job_id = story.submit(nodes=2)
    story.train(job_id)
    story.sleep(60)
    _listen(story)
    first = story.instance(story.members(job_id)[0])
    story.cloud.end(first.provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    for _ in range(10):
        story.pass_time(10)
        _listen(story)
    assert story.instance(first.id).state == "terminated"
    assert len(story.cloud.orders) == 1
    story.sweep()
    story.pass_time(60)
    assert len(story.cloud.orders) == 2


def test_an_attempt_is_numbered_after_all_that_the_store_knows(story: Story) -> None:
    """The machines of the forgotten attempts have ended, so that no list shows them."""
    job_id = story.submit()
    taken = dump(story.engine)
    for fence in (1, 7):
        _record(_store_of(story, job_id), fence)
    story.sleep(120)
    restore(story.engine, taken)
    _listen(story)
    story.sweep()
    story.run()
    assert [row.fence for row in story.rows(tables.attempts)] == [FENCES_SKIPPED + 1]


def test_an_attempt_is_numbered_after_more_records_than_are_left_out(story: Story) -> None:
    job_id = story.submit()
    _record(_store_of(story, job_id), 3 * FENCES_SKIPPED)
    story.sleep(120)
    _listen(story)
    story.sweep()
    story.run()
    assert [row.fence for row in story.rows(tables.attempts)] == [3 * FENCES_SKIPPED + 1]


def test_a_number_without_a_record_is_not_given_again(story: Story) -> None:
    """The forgotten attempt had its number, over machines that the rows know, and no record."""
    job_id = story.submit()
    _record(_store_of(story, job_id), 1)
    story.set(tables.jobs, job_id, next_fence=2)
    story.sleep(60)
    _listen(story)
    story.sweep()
    story.run()
    assert [row.fence for row in story.rows(tables.attempts)] == [FENCES_SKIPPED + 2]
    (said,) = story.rows(tables.events, tables.events.c.kind == "claimed")
    assert said.message == "Attempt 1: requesting machines."
    assert story.job(job_id).next_fence == FENCES_SKIPPED + 3


def test_a_forming_attempt_of_before_the_gap_asks_for_no_other_machine(story: Story) -> None:
    """Lost rows may have trained under its number with the machine that is gone."""
    job_id = story.submit(nodes=2)
    story.run()
    gone, kept = story.members(job_id)
    story.register(kept)
    story.sleep(60)
    _listen(story)
    story.sweep()
    story.cloud.end(story.instance(gone).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    for _ in range(12):
        story.pass_time(10)
        _listen(story)
    attempts = story.rows(tables.attempts)
    told = [(one.fence, one.end_reason) for one in sorted(attempts, key=lambda row: row.fence)]
    assert told == [(1, "fenced_off"), (FENCES_SKIPPED + 2, None)]
    assert kept in story.members(job_id, FENCES_SKIPPED + 2)
    assert story.job(job_id).attempts_without_progress == 0


def test_an_end_that_only_lost_rows_were_told_does_not_leave_the_job_running(story: Story) -> None:
    """Its agent was answered, so it tells nothing again; the machine would be paid for ever."""
    job_id, [machine] = story.training()
    taken = dump(story.engine)
    story.tell(machine, FactKind.TRAINER_ENDED, outcome="failed", exit_code=1)
    assert story.job(job_id).state != "running"
    restore(story.engine, taken)
    story.sleep(60)
    story.tell(machine, None, None, phase=MachinePhase.IDLE)
    assert story.job(job_id).state == "running"  # nobody knows of a gap as yet
    _listen(story)
    story.sweep()
    story.tell(machine, phase=MachinePhase.TRAIN)
    assert story.job(job_id).state == "running"  # it trains on
    story.tell(machine, None, None, phase=MachinePhase.IDLE)
    story.run()
    attempts = sorted(story.rows(tables.attempts), key=lambda row: row.fence)
    assert [(one.fence, one.end_reason) for one in attempts] == [
        (1, "fenced_off"),
        (FENCES_SKIPPED + 2, None),
    ]
    assert machine in story.members(job_id, FENCES_SKIPPED + 2)


def test_no_attempt_is_of_before_a_gap_while_the_clock_is_behind_it(story: Story) -> None:
    """Each new one would be ended as it forms."""
    job_id = story.submit()
    story.run()
    story.sleep(3_600)
    _listen(story)
    told = []
    for step in (0, -3_600):
        story.sleep(step)
        with story.runtime.begin() as uow:
            attempt = uow.attempts.by_fence(job_id, 1)
            assert attempt is not None
            told.append(numbered_before_gap(uow, attempt))
    assert told == [True, False]


def test_directives_after_a_gap_are_above_all_that_lost_rows_have_told(story: Story) -> None:
    """Agents ignore a lower version than they have heard, those of the release before too."""
    job_id = story.submit()
    story.train(job_id)
    taken = dump(story.engine)
    (machine,) = story.members(job_id)
    for step in (10, 20, 30):
        story.checkpoint(machine, 1, step)
    heard = story.tell(machine).directive.version
    story.sleep(60)
    restore(story.engine, taken)
    assert story.job(job_id).version < heard
    _listen(story)
    assert story.tell(machine).directive.version > heard
    risen = story.job(job_id).version
    story.sleep(5)
    _listen(story)
    assert story.job(job_id).version == risen


def test_rows_that_saw_gaps_after_the_backup_have_told_no_more_than_its_own(story: Story) -> None:
    """Each gap raises what agents hear; a restored backup has seen none of them."""
    job_id = story.submit()
    story.train(job_id)
    taken = dump(story.engine)
    (machine,) = story.members(job_id)
    for _ in range(2):
        story.sleep(60)
        _listen(story)
    for step in (10, 20, 30):
        story.checkpoint(machine, 1, step)
    heard = story.tell(machine).directive.version
    story.sleep(60)
    restore(story.engine, taken)
    _listen(story)
    assert story.tell(machine).directive.version > heard


@pytest.mark.parametrize("before", [1_000_000_000, VERSIONS_MAX - 2_000, VERSIONS_MAX + 7])
def test_no_number_of_gaps_makes_a_version_too_large(
    story: Story, before: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it is above the clock; it rises while there is room, and does not stop unsaid."""
    job_id = story.submit()
    story.set(tables.jobs, job_id, version=before)
    for _ in range(3):
        story.sleep(60)
        _listen(story)
    assert (
        story.job(job_id).version
        == {
            1_000_000_000: 1_002_997_001,
            VERSIONS_MAX - 2_000: VERSIONS_MAX - 1_996,
            VERSIONS_MAX + 7: VERSIONS_MAX + 7,
        }[before]
    )
    assert (f"job {job_id} has counted as many changes" in caplog.text) == (before > VERSIONS_MAX)


def test_a_store_that_is_away_costs_numbers_and_no_time(story: Story) -> None:
    memory = MemoryStore()
    memory.unavailable = True
    highest = highest_fence(lambda: memory.at("s3://bucket/job"))
    job_id = story.submit()
    with story.runtime.begin() as uow:
        job = uow.jobs.lock(job_id)
        assert job is not None
        number_beyond(job, highest)
        assert job.next_fence == 1 + FENCES_SKIPPED


# --- pruning ---


def _with_checkpoints(story: Story, *steps: int) -> tuple[UUID, ObjectStore]:
    """A job that keeps one checkpoint and has these, in its rows and in the store."""
    job_id = story.submit(checkpoint={"keep": 1})
    story.train(job_id)
    store = _store_of(story, job_id)
    (machine,) = story.members(job_id)
    for step in steps:
        store.put_new(manifest_key(1, step), b"{}")
        store.put_new(data_key(1, step, "shard"), b"x")
        story.checkpoint(machine, 1, step)
    return job_id, store


def _prune(story: Story) -> None:
    run_controller(story.runtime, PruneCheckpoints(story.runtime))


def _standing(store: ObjectStore) -> list[str]:
    return list(store.list_keys("manifests/"))


def test_a_parent_that_only_the_store_knows_is_not_pruned(story: Story) -> None:
    job_id, store = _with_checkpoints(story, 10, 20, 30)
    _record(store, 1)
    _record(store, 2, parent=(1, 20))  # of an attempt that the rows have forgotten
    _prune(story)
    assert _standing(store) == [manifest_key(1, 20), manifest_key(1, 30)]
    assert list(store.list_keys("data/")) == [data_key(1, step, "shard") for step in (20, 30)]
    gone = {row.step: row.pruned_at is not None for row in story.rows(tables.checkpoints)}
    assert gone == {10: True, 20: False, 30: False}
    assert story.job(job_id).prune_at is None


def test_a_parent_that_the_row_of_its_attempt_has_forgotten_is_not_pruned(story: Story) -> None:
    """The dump knows the attempt, but not yet what it starts from."""
    _, store = _with_checkpoints(story, 10, 20, 30)
    _record(store, 1, parent=(1, 10))
    _prune(story)
    assert _standing(store) == [manifest_key(1, 10), manifest_key(1, 30)]


@pytest.mark.parametrize("content", [b"torn", b'{"fence": "x"}'])
def test_nothing_is_pruned_where_a_record_cannot_be_read(story: Story, content: bytes) -> None:
    job_id, store = _with_checkpoints(story, 10, 20, 30)
    store.put_new(fence_key(2), content)
    _prune(story)
    assert len(_standing(store)) == 3
    assert story.job(job_id).prune_at is not None
    with pytest.raises(ObjectStoreError):
        forgotten_parents(store, known=())
