"""What becomes of launches whose answers are late, lost, short, refusals or never there; on real
rows.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.adapters.thread_effects import ThreadEffects
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Pool
from app.orchestration.frame.controller_frame import run_controller, select_phase
from app.orchestration.instances.launch_instances import LaunchInstances
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.ports.cloud_provider import (
    LaunchOrder,
    LaunchOutcomeUnknown,
    LaunchResult,
    PoolRefusal,
    ProviderError,
    RefusalKind,
    RefusalScope,
)
from app.storage.schema import tables
from app.storage.schema.money_tables import pools
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.support.servers.embedded import wait_until
from tests.support.servers.table_rows import execute
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.orchestration_story import FAR, PRICES, ZONE_A, ZONE_B, PaperCloud, Story
from tests.support.stories.slow_cloud import SlowCloud
from trainer.protocol.agent_report import FactKind
from workers.controller_threads import RUNS_MAX, ControllerThreads


class SlowStory(Story):
    """A story whose cloud is slow."""

    cloud: SlowCloud


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> SlowStory:
    return SlowStory(engine, tmp_path / "store", make_cloud=SlowCloud)


def _launch(story: Story, job_id: UUID) -> Any:
    return story.launches(job_id)[0]


def _calls(story: Story) -> Counter[str]:
    return Counter(story.cloud.calls)


def _resting(story: Story) -> dict[Pool, str]:
    rows = story.rows(pools)
    return {row.pool: row.cool_reason for row in rows if row.cool_until_at is not None}


# --- operations ---


def test_polls_are_no_calls_and_a_throttle_among_them_refuses_nothing(story: SlowStory) -> None:
    story.cloud.operation_seconds = 300
    job_id = story.submit(nodes=2)
    story.pass_time(120)
    assert _calls(story)["poll_launch"] > 8
    story.cloud.failures.append(ProviderError(RefusalKind.THROTTLED, "slow down"))
    story.pass_time(240)
    assert _launch(story, job_id).calls_made == _calls(story)["launch"] == 1
    assert _launch(story, job_id).outcome == "accepted"
    assert len(story.cloud.running()) == len(story.living(job_id)) == 2


def test_a_restarted_worker_goes_on_with_the_operation(story: SlowStory) -> None:
    story.cloud.operation_seconds = 60
    job_id = story.submit()
    story.run()
    launching = LaunchInstances(story.runtime)
    story.sleep(5)
    # The worker dies between picking the launch and asking about it.
    assert len(select_phase(story.runtime, launching)) == 1
    story.pass_time(120)
    assert _launch(story, job_id).outcome == "accepted"
    assert _calls(story)["launch"] == 1


def test_an_operation_without_end_is_followed_for_a_bounded_time(story: SlowStory) -> None:
    """Its machines are there all the same, and are found by their token."""
    story.cloud.operation_seconds = 1e9
    job_id = story.submit(nodes=2)
    limit = story.runtime.limits.launch_operation_seconds
    story.pass_time(limit - 60, every=20)
    assert _launch(story, job_id).outcome == "unknown"
    polls = _calls(story)["poll_launch"]
    story.pass_time(120, every=10)
    assert _launch(story, job_id).outcome == "accepted"
    assert len(story.living(job_id)) == 2
    story.pass_time(60)
    assert _calls(story)["poll_launch"] - polls < 10
    assert _calls(story)["find_by_token"] == 1
    regions = {machine.pool.region for machine in story.cloud.machines.values()}
    assert set(story.cloud.asked_regions) == regions, "no other region is asked"


def test_an_operation_that_its_cloud_has_forgotten_is_settled_by_token(story: SlowStory) -> None:
    story.cloud.operation_seconds = 600
    job_id = story.submit()
    story.run()
    story.cloud.forgets_operations = True
    story.pass_time(60)
    assert _launch(story, job_id).outcome == "accepted"
    assert len(story.cloud.machines) == len(story.living(job_id)) == 1


@pytest.mark.parametrize("operation_seconds", [0, 120])
def test_a_launch_that_nobody_wants_any_more_is_not_called_again(
    story: SlowStory, operation_seconds: float
) -> None:
    """Its answer was lost and the job has ended: what it started is found and released."""
    story.cloud.operation_seconds, story.cloud.visible_seconds = operation_seconds, 30
    story.cloud.lose_replies = 1 if not operation_seconds else 0
    job_id = story.submit(nodes=2)
    story.run()
    assert len(story.cloud.running()) == 2
    story.stop(job_id)
    story.pass_time(400)
    assert _calls(story)["launch"] == 1
    assert story.cloud.running() == []
    assert story.living(job_id) == []
    assert story.rows(tables.stale_results) == []


def test_a_worker_that_died_in_its_call_leaves_nothing_behind(story: SlowStory) -> None:
    job_id = story.submit()
    run_controller(story.runtime, ClaimJobs(story.runtime))
    launching = LaunchInstances(story.runtime)
    (work,) = select_phase(story.runtime, launching)
    launching.effect(work)
    story.stop(job_id)
    story.pass_time(300)
    assert len(story.cloud.orders) == 1
    assert story.cloud.running() == []
    assert story.living(job_id) == []


def test_answers_lost_for_ever_are_settled_by_token(story: SlowStory) -> None:
    story.cloud.lose_replies = 100
    job_id = story.submit()
    story.pass_time(450, every=10)
    launch = _launch(story, job_id)
    assert launch.outcome == "accepted"
    assert launch.calls_made == _calls(story)["launch"] == 8
    assert len(story.cloud.machines) == 1


def test_what_cannot_be_found_out_is_left_to_the_sweep(story: SlowStory) -> None:
    """The cloud fails for an hour after its answer was lost."""
    job_id = story.submit()
    story.cloud.lose_replies = 1
    story.run()
    story.cloud.failures = [LaunchOutcomeUnknown("nothing comes back") for _ in range(10_000)]
    story.pass_time(3_600, every=30)
    assert _launch(story, job_id).outcome == "refused"
    assert len(story.rows(tables.stale_results)) >= 1
    story.cloud.failures.clear()
    story.stop(job_id)
    story.sleep(120)
    story.sweep()
    story.pass_time(60)
    assert story.cloud.running() == []


# --- fewer than asked for ---


def test_fewer_machines_than_a_gang_needs_are_given_back_and_the_next_offer_is_tried(
    story: SlowStory,
) -> None:
    story.cloud.short_by = {ZONE_A: 1}
    job_id = story.submit(nodes=3)
    story.pass_time(30)
    launches = story.launches(job_id)
    assert [(one.outcome, one.count, one.min_count) for one in launches] == [
        ("partial", 3, 3),
        ("accepted", 3, 3),
    ]
    running = [story.cloud.machines[name].pool for name in story.cloud.running()]
    assert running == [ZONE_B] * 3
    assert len(story.members(job_id)) == 3
    assert _resting(story) == {ZONE_A: "no_capacity"}
    story.train(job_id)


def test_survivors_are_kept_when_too_few_replacements_come(story: SlowStory) -> None:
    job_id = story.submit(nodes=3)
    story.train(job_id)
    first, *lost = story.members(job_id)
    story.checkpoint(first, 1, 50)
    story.cloud.short_by = {ZONE_A: 1}
    execute(story.engine, pools.delete().where(pools.c.pool != ZONE_A))
    for machine in lost:
        story.tell(machine, FactKind.NOTICE, 1, seconds_left=60.0)
    story.run()
    for machine in (first, *lost):
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    for machine in lost:
        story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert story.cloud.running() == [story.instance(first).provider_instance_id]
    assert story.instance(first).state == "registered"


# --- refusals ---

SISTER = replace(ZONE_B, instance_type="p3.8xlarge")
G5 = replace(ZONE_A, instance_type="g5.xlarge")


@pytest.mark.parametrize(
    ("kind", "scope", "rest", "seconds"),
    [
        (RefusalKind.NO_CAPACITY, None, {ZONE_A}, 300),
        (RefusalKind.PRICE_TOO_LOW, None, {ZONE_A}, 300),
        (RefusalKind.UNSUPPORTED, None, {ZONE_A}, 86_400),
        (RefusalKind.THROTTLED, None, {ZONE_A}, 30),
        (RefusalKind.UNAVAILABLE, None, {ZONE_A}, 30),
        (RefusalKind.QUOTA, None, {ZONE_A, ZONE_B, SISTER}, 600),
        (RefusalKind.QUOTA, RefusalScope.REGION, {ZONE_A, ZONE_B, SISTER, G5}, 600),
        (RefusalKind.QUOTA, RefusalScope.PROVIDER, {ZONE_A, ZONE_B, SISTER, G5, FAR}, 600),
        (RefusalKind.NO_CAPACITY, RefusalScope.ZONE, {ZONE_A, G5}, 300),
    ],
)
def test_a_refused_pool_rests_with_all_that_its_refusal_reaches(
    story: SlowStory, kind: RefusalKind, scope: RefusalScope | None, rest: set[Pool], seconds: int
) -> None:
    story.quote({**PRICES, SISTER: 9_000_000, G5: 9_000_000})
    story.cloud.refusals = {ZONE_A: PoolRefusal(ZONE_A, kind, "the sentence", scope)}
    job_id = story.submit()
    run_controller(story.runtime, ClaimJobs(story.runtime))
    run_controller(story.runtime, LaunchInstances(story.runtime))
    # The launch named both zones, and the second gave its machine.
    assert _launch(story, job_id).outcome == "accepted"
    assert _resting(story) == dict.fromkeys(rest, kind.value)
    until = {row.cool_until_at for row in story.rows(pools) if row.pool in rest}
    assert until == {story.time + timedelta(seconds=seconds)}


def test_a_quota_rests_what_it_counts_whatever_the_types_are_called(story: SlowStory) -> None:
    story.quote({**PRICES, SISTER: 9_000_000, G5: 9_000_000})
    with story.runtime.begin() as uow:
        counted = [offer for offer, _ in uow.offers.of([ZONE_A, G5])]
        quota = replace(counted[0].hardware, quota="NVIDIA_L4_GPUS")
        uow.offers.record([replace(one, hardware=quota) for one in counted], [], story.time)
    story.cloud.refusals = {ZONE_A: PoolRefusal(ZONE_A, RefusalKind.QUOTA, "used up")}
    story.submit()
    run_controller(story.runtime, ClaimJobs(story.runtime))
    run_controller(story.runtime, LaunchInstances(story.runtime))
    assert _resting(story) == dict.fromkeys({ZONE_A, G5}, "quota")


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (RefusalKind.NO_CAPACITY, 300),
        (RefusalKind.UNSUPPORTED, 86_400),
        (RefusalKind.THROTTLED, 30),
    ],
)
def test_a_cloud_that_refuses_both_pools_is_left_for_the_other_region(
    story: SlowStory, kind: RefusalKind, seconds: int
) -> None:
    story.cloud.refusals = {pool: PoolRefusal(pool, kind, "no") for pool in (ZONE_A, ZONE_B)}
    job_id = story.submit()
    story.run()
    assert [story.cloud.machines[name].pool for name in story.cloud.running()] == [FAR]
    assert _resting(story) == {ZONE_A: kind.value, ZONE_B: kind.value}
    until = {row.cool_until_at for row in story.rows(pools)} - {None}
    assert until == {story.time + timedelta(seconds=seconds)}
    assert len(story.launches(job_id)) == 2


def test_a_shorter_rest_does_not_end_a_longer_one(story: SlowStory) -> None:
    begin, long = story.runtime.begin, story.time + timedelta(days=1)
    with begin() as uow:
        uow.offers.cool_down_all({ZONE_A: (long, "unsupported")})
    with begin() as uow:
        uow.offers.cool_down_all({ZONE_A: (story.time, "quota"), ZONE_B: (story.time, "quota")})
    assert _resting(story) == {ZONE_A: "unsupported", ZONE_B: "quota"}


SENTENCE = "You are not authorized to perform ec2:CreateFleet."


def _refuse_everything(story: SlowStory, kind: RefusalKind) -> None:
    story.cloud.failures = [ProviderError(kind, SENTENCE) for _ in range(50)]


def test_denied_credentials_make_the_job_wait_and_say_what_the_cloud_said(
    story: SlowStory,
) -> None:
    _refuse_everything(story, RefusalKind.DENIED)
    job_id = story.submit()
    story.pass_time(60)
    job = story.job(job_id)
    assert job.state == "paused"
    assert SENTENCE in job.end_message
    assert "denied" in job.end_message
    assert _calls(story)["launch"] == 1


def test_an_order_that_is_wrong_fails_a_job_and_says_what_the_cloud_said(story: SlowStory) -> None:
    _refuse_everything(story, RefusalKind.REJECTED)
    job_id = story.submit()
    story.pass_time(60)
    job = story.job(job_id)
    # The second region is asked too: images and subnets are named per region.
    assert _calls(story)["launch"] == 2
    assert (job.state, job.end_reason) == ("failed", "configuration_rejected")
    assert SENTENCE in job.end_message


def test_a_wrong_order_does_not_throw_away_what_a_job_has_trained(story: SlowStory) -> None:
    job_id, [only] = story.training()
    story.checkpoint(only, 1, 100)
    story.cloud.refusals = {
        pool: PoolRefusal(pool, RefusalKind.REJECTED, SENTENCE) for pool in PRICES
    }
    story.cloud.end(story.instance(only).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(900, every=15)
    job = story.job(job_id)
    assert job.state == "paused"
    assert SENTENCE in job.end_message


def test_a_cloud_that_denies_us_does_not_stop_a_job_that_another_can_serve(
    story: SlowStory,
) -> None:
    other = replace(ZONE_A, provider="other")
    story.quote({**PRICES, other: 4_000_000})
    _refuse_everything(story, RefusalKind.DENIED)
    job_id = story.submit()
    story.pass_time(30)
    assert story.job(job_id).state == "starting"
    assert {launch.provider for launch in story.launches(job_id)} == {"local", "other"}


def test_what_trains_goes_on_while_a_cloud_refuses_replacements(story: SlowStory) -> None:
    job_id = story.submit(nodes=2)
    story.train(job_id)
    _refuse_everything(story, RefusalKind.DENIED)
    _, second = story.members(job_id)
    story.tell(second, FactKind.NOTICE, 1, seconds_left=120.0)
    run_controller(story.runtime, LaunchInstances(story.runtime))
    assert story.job(job_id).state == "running"
    assert set(_resting(story)) == set(PRICES)


BATCHES = 6
JOBS = BATCHES * LaunchInstances.limit


class HangingCloud(PaperCloud):
    """One launch of each of the first batches hangs until `let_go`; the others only count."""

    def __init__(self, story: Story, hung: int) -> None:
        super().__init__(story)
        self.hung = hung
        self.let_go = threading.Event()
        self.lock = threading.Lock()
        self.called: list[str] = []

    def launch(self, order: LaunchOrder) -> LaunchResult:
        with self.lock:
            self.called.append(order.client_token)
            batch, place = divmod(len(self.called) - 1, LaunchInstances.limit)
        if place == 0 and batch < self.hung:
            self.let_go.wait(120)
        raise ProviderError(RefusalKind.UNAVAILABLE, "nothing was started")


# The most that may hang stand for fewer.
@pytest.mark.parametrize(
    "hung",
    [
        *(pytest.param(count, marks=pytest.mark.full) for count in range(1, RUNS_MAX["cloud"] - 1)),
        RUNS_MAX["cloud"] - 1,
    ],
)
def test_hung_calls_hold_up_no_other(engine: Engine, tmp_path: Path, hung: int) -> None:
    story = Story(engine, tmp_path / "store")
    cloud = HangingCloud(story, hung)
    for _ in range(JOBS):
        story.submit()
    run_until_idle(story.runtime, [ClaimJobs(story.runtime)])
    threads, effects = ControllerThreads(1), ThreadEffects(4)
    begin = PostgresUnitOfWorkFactory(engine, threads, lambda: story.time)
    runtime = replace(
        story.runtime, providers={"local": cloud}, wakeups=threads, effects=effects, begin=begin
    )
    controllers = {"launch_instances": LaunchInstances(runtime)}
    threads.open(controllers, lambda one: run_controller(runtime, one), lambda name, worked: None)
    try:
        # One ring alone: whoever selects a full batch must see to the rest.
        threads.notify(["launch_instances"])
        wait_until(lambda: len(set(cloud.called)) == JOBS, "every other launch")
        assert not cloud.let_go.is_set()
    finally:
        cloud.let_go.set()
        assert threads.close(60)
        effects.close()
