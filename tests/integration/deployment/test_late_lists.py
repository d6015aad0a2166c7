"""Lists of a cloud that are late, or show what no row follows: what a sweep makes of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.instance import EndedBy
from app.orchestration.frame.controller_frame import apply_phase, effect_phase, select_phase
from app.ports.cloud_provider import (
    CloudMachine,
    LaunchOrder,
    LaunchResult,
    MachineState,
    ProviderError,
    RefusalKind,
)
from tests.support.stories.orchestration_story import ZONE_A, PaperCloud, Story


def west(work: list[Any]) -> Any:
    return next(one for one in work if getattr(one, "region", "") == ZONE_A.region)


def test_machines_that_ended_while_a_list_was_read_are_no_strangers(story: Story) -> None:
    for _ in range(4):
        story.train(story.submit())
    story.pass_time(60)
    piece = west(select_phase(story.runtime, story.sweeping))
    shown = effect_phase(story.sweeping, piece)
    for machine_id in story.cloud.running():
        story.cloud.end(machine_id, EndedBy.CLOUD_INTERRUPTION)
    story.cloud.room = dict.fromkeys(story.cloud.room, 0)
    story.pass_time(40)
    apply_phase(story.runtime, story.sweeping, piece, shown)
    with story.runtime.begin() as uow:
        assert uow.sweeps.adopted() == []
        assert not uow.sweeps.orders().adopting, "no rows are missing"


def test_a_list_that_was_asked_for_earlier_replaces_no_later_one(story: Story) -> None:
    piece = west(select_phase(story.runtime, story.sweeping))
    early = effect_phase(story.sweeping, piece)
    story.sleep(30)
    late: Any = effect_phase(story.sweeping, piece)
    for shown in (late, early):
        apply_phase(story.runtime, story.sweeping, piece, shown)
    with story.runtime.begin() as uow:
        (listed,) = [one for one in uow.sweeps.regions() if one.region == ZONE_A.region]
    assert listed.swept_at == late.asked_at


def test_a_stopped_machine_that_no_row_knows_is_given_back_too(story: Story) -> None:
    """Compute Engine keeps what was stopped from inside, with its disk, until it is deleted."""
    machine = story.cloud.start(ZONE_A, tags={"lowtide:deployment": "this"})
    stopping = replace(machine, state=MachineState.SHUTTING_DOWN)
    story.cloud.machines[machine.provider_instance_id] = stopping
    story.sleep(60)
    story.sweep()
    story.pass_time(30)
    assert "terminate" in story.cloud.calls
    assert story.cloud.machines[machine.provider_instance_id].state is MachineState.TERMINATED


@pytest.mark.parametrize("shown_first", [False, True])
def test_the_accounts_own_call_that_we_did_not_make_was_an_outsiders(
    story: Story, shown_first: bool
) -> None:
    _, [instance_id] = story.training()
    machine_id = story.instance(instance_id).provider_instance_id
    if shown_first:
        going = replace(
            story.cloud.machines[machine_id],
            state=MachineState.SHUTTING_DOWN,
            ended_by=EndedBy.US,
        )
        story.cloud.machines[machine_id] = going
        story.pass_time(40)
        assert story.instance(instance_id).terminate_calls > 0, "we call too, to be sure"
    story.cloud.end(machine_id, EndedBy.US)
    story.pass_time(40)
    assert story.instance(instance_id).ended_by == "outsider"


def test_what_we_gave_back_ourselves_was_ended_by_us(story: Story) -> None:
    job_id, [instance_id] = story.training()
    story.stop(job_id)
    story.pass_time(200)
    assert story.instance(instance_id).ended_by == "us"


class ShyCloud(PaperCloud):
    """It starts machines, tells no time of that, and shows them later."""

    shown = False

    def launch(self, order: LaunchOrder) -> LaunchResult:
        result = super().launch(order)
        accepted = tuple(
            replace(one, launched_at=None, launched_source="") for one in result.accepted
        )
        return replace(result, accepted=accepted)

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        found = super().describe(provider_instance_ids, region)
        return found if self.shown else ()


def test_a_machine_that_was_long_asked_for_may_be_shown_late_too(
    engine: Engine, tmp_path: Path
) -> None:
    """What is young counts from the cloud's yes, not from the first time that it was asked."""
    story = Story(engine, tmp_path / "store", make_cloud=ShyCloud)
    age = story.runtime.limits.absence_age_seconds
    job_id = story.submit()
    throttled = ProviderError(RefusalKind.THROTTLED, "slower")
    while (story.time - story.start).total_seconds() <= age:
        story.cloud.failures = [throttled] * 9
        story.pass_time(10)
    story.cloud.failures = []
    while not story.cloud.running():
        story.pass_time(5)
    story.pass_time(age - 20)
    (machine,) = story.members(job_id)
    assert story.instance(machine).absent_since_at is None
    assert isinstance(story.cloud, ShyCloud)
    story.cloud.shown = True
    story.pass_time(60)
    assert story.members(job_id) == [machine]
    assert story.instance(machine).launched_at is not None
    assert len(story.cloud.running()) == 1


class BehindCloud(ShyCloud):
    """By its clock each machine started a quarter of an hour before it was asked for."""

    def launch(self, order: LaunchOrder) -> LaunchResult:
        result = PaperCloud.launch(self, order)
        accepted = tuple(
            replace(one, launched_at=one.launched_at and one.launched_at - timedelta(minutes=15))
            for one in result.accepted
        )
        return replace(result, accepted=accepted)


def test_a_newborn_is_young_where_our_clock_is_ahead_of_its_clouds(
    engine: Engine, tmp_path: Path
) -> None:
    story = Story(engine, tmp_path / "store", make_cloud=BehindCloud)
    job_id = story.submit()
    while not story.cloud.running():
        story.pass_time(5)
    story.pass_time(story.runtime.limits.absence_age_seconds - 20)
    assert len(story.cloud.running()) == 1  # and no other was asked for in its place
    (machine,) = story.members(job_id)
    assert story.instance(machine).launched_at < story.start
    assert story.instance(machine).absent_since_at is None
