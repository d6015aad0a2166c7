"""What really happens to jobs and to machines reaches the outbox, and costs few statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from app.domain.billing.budget import BudgetOwner
from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.job import StopCause
from app.domain.notifications.triggers import OF_DEPLOYMENT, OF_JOB, Trigger
from app.orchestration.notifications.manage_channels import remove_channel
from app.orchestration.notifications.watch_waits import WatchWaits
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.storage.schema import tables
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.launch_limits_story import budget_of, freeze, limit_project, thaw
from tests.support.stories.listening_channel import ListeningChannel, listening
from tests.support.stories.orchestration_story import PRICES, ZONE_A, Story
from trainer.protocol.agent_report import FactKind

HOUR = 3_600


@pytest.fixture
def channel(story: Story, engine: Engine, tmp_path: Path) -> Iterator[ListeningChannel]:
    """Told of everything but waits."""
    with listening(engine, story.runtime, story.project_id, tmp_path) as made:
        for trigger in (*OF_JOB, *sorted(OF_DEPLOYMENT)):
            made.rule(trigger)
        yield made


@pytest.fixture
def unruled(story: Story, engine: Engine, tmp_path: Path) -> Iterator[ListeningChannel]:
    """Without rules."""
    with listening(engine, story.runtime, story.project_id, tmp_path) as made:
        yield made


def test_a_start_an_interruption_and_an_end_are_told(
    story: Story, channel: ListeningChannel
) -> None:
    job_id, (first,) = story.training(name="bert")
    assert channel.told() == [("started", "Job bert has started")]
    story.cloud.end(story.instance(first).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(120)
    assert channel.told()[1:] == [("interrupted", "Job bert was interrupted")]
    assert channel.deliveries()[-1].message["path"] == f"/jobs/{job_id}"
    story.train(job_id, 2)
    assert len(channel.told()) == 2, "it had started before"
    [second] = story.members(job_id, 2)
    story.checkpoint(second, 2, 100, final=True)
    story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert channel.told()[2:] == [("succeeded", "Job bert has succeeded")]


def test_a_job_that_is_given_up_is_told_as_failed(story: Story, channel: ListeningChannel) -> None:
    job_id, (only,) = story.training()
    story.set(tables.jobs, job_id, attempts_without_progress=9)
    story.cloud.end(story.instance(only).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert [kind for kind, _ in channel.told()] == ["started", "interrupted", "failed"]


def test_a_job_that_a_person_ends_is_not_told(story: Story, channel: ListeningChannel) -> None:
    job_id = story.submit()
    story.stop(job_id)
    story.run()
    assert story.job(job_id).state == "cancelled"
    assert channel.told() == []


def test_a_machine_that_the_database_did_not_know_is_told(
    story: Story, channel: ListeningChannel
) -> None:
    story.training()
    order = replace(story.cloud.orders[0], client_token="lowtide-unknown")
    story.cloud.start(ZONE_A, order)
    story.sleep(60)
    story.sweep()
    story.sweep()
    assert [kind for kind, _ in channel.told()] == ["started", "machine_leaked"]


def test_a_deadline_that_cannot_be_promised_any_longer_is_told_and_so_is_its_miss(
    story: Story, channel: ListeningChannel
) -> None:
    story.controllers = (*story.controllers, WatchDeadlines(story.runtime))
    spec = {"estimate": {"hours": 2, "gpu": "V100:1"}, "market": "auto", "name": "bert"}
    job_id = story.submit(deadline="6h", **spec)
    story.train(job_id)
    freeze(story)
    story.pass_time(60)
    at_risk = ("deadline_at_risk", "Job bert may miss its deadline")
    assert channel.told() == [("started", "Job bert has started"), at_risk]
    assert "launches of the project 'alpha' are frozen" in channel.sent()[1]
    story.set(tables.jobs, job_id, deadline_at=story.time - timedelta(seconds=1))
    story.pass_time(60)
    assert channel.told()[2:] == [at_risk]


def test_a_job_that_a_budget_pauses_is_told_and_its_spec_names_who_else_is(
    story: Story, channel: ListeningChannel
) -> None:
    channel.set("own")
    budget_of(story, PRICES[ZONE_A] // 4 - 1)
    story.submit(name="bert", notify=["own"])
    story.run()
    paused = ("budget", "Job bert is paused by a budget")
    assert channel.told() == [paused, paused]
    one, other = channel.sent()
    assert one == other
    assert "The project's budget of this month, until 2026-04-01 00:00:00 UTC: Over" in one


@contextmanager
def waiting(story: Story, channel: ListeningChannel) -> Iterator[WatchWaits]:
    """A rule of an hour, and who looks."""
    channel.rule(Trigger.WAITING, HOUR)
    watch = WatchWaits(channel.runtime)
    story.sleep(HOUR - 1)
    assert run_until_idle(channel.runtime, [watch]) == 0
    yield watch
    assert run_until_idle(channel.runtime, [watch]) == 0, "it was told"


def test_a_job_that_finds_no_machine_is_told_in_the_words_of_its_page(
    story: Story, unruled: ListeningChannel
) -> None:
    story.submit(resources={"gpu": "H100:8"})
    story.run()
    with waiting(story, unruled) as watch:
        story.sleep(1)
        assert run_until_idle(unruled.runtime, [watch]) == 1
    [told] = unruled.sent()
    assert "It has waited for machines for 1h. No " in told
    assert "H100" in told


@pytest.mark.parametrize(
    ("hold", "words"),
    [
        (freeze, "Launches of the project 'alpha' are frozen"),
        (lambda story: limit_project(story, machines=0), "The limit of 0 machines of the project"),
        (lambda story: budget_of(story, 1), "The project's budget of this month, until 2026-04-01"),
        (
            lambda story: budget_of(story, 1, owner=BudgetOwner.DEPLOYMENT),
            "The deployment's budget of this month, until 2026-04-01",
        ),
    ],
    ids=["freeze", "limit", "month", "month of all"],
)
def test_what_holds_a_job_is_told_as_its_wait(
    story: Story, unruled: ListeningChannel, hold: Any, words: str
) -> None:
    hold(story)
    job_id = story.submit()
    story.run()
    assert story.launches(job_id) == []
    with waiting(story, unruled) as watch:
        story.sleep(1)
        assert run_until_idle(unruled.runtime, [watch]) == 1
    [told] = unruled.sent()
    assert f"It has waited for machines for 1h. {words}" in told, told


def test_whoever_paused_for_money_of_its_own_or_by_hand_does_not_wait(
    story: Story, unruled: ListeningChannel
) -> None:
    budget_of(story, 1_000_000_000)
    poor, by_hand = story.submit(budget_usd=5, estimate={"hours": 1}), story.submit()
    story.set(tables.budgets, story.job(poor).budget_id, spent_microusd=5_000_000)
    story.stop(by_hand, StopCause.PAUSE)
    story.run()
    assert [story.job(one).state for one in (poor, by_hand)] == ["paused", "paused"]
    with waiting(story, unruled):
        story.sleep(HOUR)


def test_a_second_wait_of_a_job_is_told_too(story: Story, unruled: ListeningChannel) -> None:
    freeze(story)
    job_id = story.submit()
    story.run()
    with waiting(story, unruled) as watch:
        story.sleep(1)
        assert run_until_idle(unruled.runtime, [watch]) == 1
    thaw(story)
    story.pass_time(60)
    story.train(job_id)
    freeze(story)
    [machine] = story.members(job_id)
    story.tell(machine, FactKind.TRAINER_ENDED, outcome="drained", exit_code=75, step=4)
    story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert story.job(job_id).state == "recovering"
    story.sleep(HOUR)
    assert run_until_idle(unruled.runtime, [watch]) == 1


def test_a_channel_that_a_job_names_may_go_and_come_back(
    story: Story, unruled: ListeningChannel
) -> None:
    job_id = story.submit(name="bert", notify=["team"])
    with unruled.runtime.begin() as uow:
        remove_channel(uow, unruled.runtime, unruled.admin, "team")
    story.train(job_id)
    assert unruled.told() == []
    unruled.set("team")
    [machine] = story.members(job_id)
    story.checkpoint(machine, 1, 100, final=True)
    story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert unruled.told() == [("succeeded", "Job bert has succeeded")]


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    """Those that are executed meanwhile."""
    found: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        found.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def about_notifications(executed: list[str]) -> int:
    return sum("notification_" in one or "FROM budgets WHERE id" in one for one in executed)


@pytest.mark.parametrize(("ruled", "cost"), [(False, 1), (True, 3)])
def test_who_is_told_is_looked_up_by_one_statement_and_not_by_a_claim(
    story: Story, engine: Engine, unruled: ListeningChannel, ruled: bool, cost: int
) -> None:
    """Told are a start, and nothing before it: a claim costs what it cost."""
    if ruled:
        unruled.rule(Trigger.STARTED)
    job_id = story.submit()
    claim = ClaimJobs(story.runtime)
    with statements(engine) as executed:
        assert run_until_idle(story.runtime, [claim]) == 1
    assert about_notifications(executed) == 0
    story.run()
    [machine] = story.members(job_id)
    story.register(machine)
    story.tell(machine, FactKind.PREPARED, 1, master_port=20_001, parent=None)
    with statements(engine) as executed:
        story.tell(machine, FactKind.TRAINER_STARTED, 1, master_port=20_001, parent=None)
    assert story.job(job_id).state == "running"
    assert about_notifications(executed) == cost
