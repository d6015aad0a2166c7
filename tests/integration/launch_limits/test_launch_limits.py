"""Limits of machines, GPUs and dollars an hour hold for every launch, and stop no machine."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest

from app.domain.lifecycle.instance import EndedBy
from app.domain.projects.read_rules import parse_rules
from app.domain.units.errors import CommandRefused
from app.orchestration.access.manage_rules import change_rules
from app.orchestration.placement.read_launch_room import limit_uses
from app.storage.schema import tables
from tests.support.api.people_api import make_project
from tests.support.stories.launch_limits_story import admin_of, limit, limit_project, submit_to
from tests.support.stories.orchestration_story import FAR, PRICES, ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind

LOOK = 40
"""Seconds within which a job that waits looks for machines again."""


def decided(story: Story, job_id: UUID) -> Any:
    """The newest decision about a job, as it is stored."""
    found = tables.placement_decisions
    rows = story.rows(found, found.c.job_id == job_id)
    return max(rows, key=lambda row: row.decision_no).document


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        ({"machines": 1}, "1 machine"),
        ({"gpus": {"V100": 1}}, "1 V100"),
        ({"gpus": 1}, "1 GPU"),
        ({"max_hourly_spend_usd": 1.5}, "$1.50/h"),
    ],
)
@pytest.mark.parametrize("of_project", [True, False])
def test_a_job_beyond_a_limit_waits_says_whose_it_is_and_starts_once_there_is_room(
    story: Story, limits: dict[str, Any], what: str, of_project: bool
) -> None:
    (limit_project if of_project else limit)(story, **limits)
    first, second = story.submit(), story.submit()
    story.run()
    assert (len(story.launches(first)), len(story.launches(second))) == (1, 0)
    job = story.job(second)
    owner = "the project 'alpha'" if of_project else "this deployment"
    assert f"the limit of {what} of {owner} has no room" in job.wait_reason
    last = decided(story, second)
    assert last["reason"] == "over_limit"
    assert f"of {owner}, or a limit of at least" in last["unblock"]["sentence"]
    story.pass_time(2 * LOOK)
    assert story.launches(second) == []
    story.stop(first)
    story.pass_time(2 * LOOK)
    assert len(story.launches(second)) == 1


def test_a_machine_counts_until_its_cloud_says_that_it_is_gone(story: Story) -> None:
    first, [machine] = story.training()
    limit(story, machines=1)
    second = story.submit()
    story.cloud.silent = {"us-west-2"}
    story.stop(first)
    story.tell(machine, FactKind.TRAINER_ENDED, outcome="drained", exit_code=75, step=4)
    story.pass_time(LOOK)
    assert story.instance(machine).state == "terminating"
    assert story.launches(second) == []
    story.cloud.silent = set()
    story.pass_time(2 * LOOK)
    assert len(story.launches(second)) == 1


def test_a_lost_machine_is_replaced_once_it_is_gone(story: Story) -> None:
    job_id, [only] = story.training()
    limit_project(story, machines=1)
    story.tell(only, FactKind.NOTICE, seconds_left=120.0, action="terminate", source="t")
    assert len(story.launches(job_id)) == 1
    story.tell(only, FactKind.TRAINER_ENDED, outcome="drained", exit_code=75, step=4)
    story.cloud.end(story.instance(only).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(2 * LOOK)
    assert len(story.launches(job_id)) == 2


def test_an_elastic_gang_is_as_large_as_the_limit_lets_it(story: Story) -> None:
    limit(story, gpus={"V100": 2})
    job_id = story.submit(nodes="1..4")
    story.run()
    assert story.job(job_id).node_count == len(story.members(job_id)) == 2


def test_a_gang_that_no_limit_will_ever_let_in_says_so(story: Story) -> None:
    limit_project(story, machines=3)
    job_id = story.submit(nodes=4)
    story.run()
    way = decided(story, job_id)["unblock"]["sentence"]
    assert way.startswith("a limit of at least 4 machines, which a maintainer")


def test_machines_of_another_project_count_for_the_deployment_alone(story: Story) -> None:
    other = make_project(story.engine, "beta")
    submit_to(story, other)
    story.run()
    limit_project(story, machines=1)
    mine = story.submit()
    story.run()
    assert len(story.launches(mine)) == 1
    limit(story, machines=2)
    theirs = submit_to(story, other)
    story.run()
    assert story.launches(theirs) == []


def test_a_project_at_its_limit_holds_up_no_other(story: Story) -> None:
    limit_project(story, machines=0)
    mine, theirs = story.submit(), submit_to(story, make_project(story.engine, "beta"))
    again = story.submit()
    story.run()
    assert [len(story.launches(one)) for one in (mine, again, theirs)] == [0, 0, 1]
    assert "of the project 'alpha'" in story.job(again).wait_reason


def test_a_machine_that_was_found_without_a_row_counts(story: Story) -> None:
    limit(story, machines=1)
    story.cloud.start(ZONE_A)
    story.sleep(30)
    story.sweep()
    assert len(story.rows(tables.instances)) == 1
    job_id = story.submit()
    story.controllers = story.controllers[:1]
    story.run()
    assert story.launches(job_id) == []


def test_a_limit_that_is_lowered_and_prices_that_double_stop_nothing(story: Story) -> None:
    jobs = [story.submit() for _ in range(3)]
    story.run()
    limit_project(story, machines=2, max_hourly_spend_usd=4)
    story.quote({pool: 2 * price for pool, price in PRICES.items()})
    story.pass_time(60)
    assert [len(story.living(one)) for one in jobs] == [1, 1, 1]
    with story.runtime.begin() as uow:
        told = [one.excess or "" for one in limit_uses(uow, story.project_id)]
    assert "has 3 machines, over its limit of 2 machines: nothing is stopped" in told[0]
    assert "over its limit of $4.00/h" in told[1]


def test_a_launch_that_may_end_in_several_pools_counts_as_the_dearest(story: Story) -> None:
    first = story.submit()
    story.controllers = story.controllers[:1]
    story.run()
    bids = {bid["pool"] for bid in story.launches(first)[0].bids}
    assert bids == {ZONE_A.key, ZONE_B.key}
    limit(story, max_hourly_spend_usd=4)
    with story.runtime.begin() as uow:
        [spend] = limit_uses(uow, story.project_id)
    assert spend.used == PRICES[ZONE_B]
    second = story.submit(infra=f"local/{FAR.region}")
    story.run()
    assert story.launches(second) == []


@pytest.mark.parametrize("of_project", [True, False])
def test_a_full_queue_takes_no_other_job_and_says_whose_limit_it_is(
    story: Story, of_project: bool
) -> None:
    (limit_project if of_project else limit)(story, queued_jobs=2)
    first, _ = story.submit(), story.submit(name="second")
    with pytest.raises(CommandRefused) as refused:
        story.submit()
    owner = "The project 'alpha'" if of_project else "This deployment"
    assert refused.value.message.startswith(
        f"{owner} has 2 queued jobs, and its limit is 2 queued jobs: submit again once some have"
    )
    with pytest.raises(CommandRefused, match="has 2 queued jobs"):
        story.submit(name="second")
    other = make_project(story.engine, "beta")
    if of_project:
        submit_to(story, other)
    story.run()
    assert story.job(first).state == "starting"
    story.submit()


def test_limits_of_a_project_are_set_once_the_launches_that_are_being_written_are_there(
    story: Story,
) -> None:
    done = threading.Event()

    def set_it() -> None:
        rules = parse_rules({"limits": {"machines": 1}})
        with story.runtime.begin() as uow:
            change_rules(uow, story.runtime.entropy, admin_of(story), rules)
        done.set()

    thread = threading.Thread(target=set_it)
    with story.runtime.begin() as launching:
        launching.launch_gate.open()
        thread.start()
        assert not done.wait(0.3), "they were set beside a launch that had not seen them"
    thread.join(10)
    assert done.is_set()
