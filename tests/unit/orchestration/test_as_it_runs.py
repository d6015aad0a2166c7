"""What the rest of a job costs as it runs: with the machines that it goes on with."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import InstanceState
from app.domain.market.offer import Market
from app.orchestration.estimates.as_it_runs import going_on_microusd_per_hour
from app.storage.reports.job_facts import MachineStatus

AT = datetime(2026, 3, 1, tzinfo=UTC)


def machine(state: InstanceState, price: int, speed: int = 1) -> MachineStatus:
    instance = Instance(
        id=UUID(int=4), job_id=UUID(int=1), launch_id=None, provider="local", market=Market.SPOT,
        state=state, origin="launched", requested_at=AT, updated_at=AT, billing_speed=speed,
    )  # fmt: skip
    if state is not InstanceState.REQUESTED:
        instance.launched_at = AT
    return MachineStatus(instance, None, price, "m1")


@pytest.mark.parametrize(
    ("machines", "count", "hourly"),
    [
        ([("registered", 10), ("registered", 20)], 2, 30),
        ([("interrupting", 10), ("launched", 25), ("registered", 20)], 2, 45),
        ([("terminating", 10), ("registered", 20)], 1, 20),
        ([("interrupting", 10), ("registered", 20)], 2, 30),
        ([("interrupting", 10)], 1, 10),
        ([("interrupting", 10), ("requested", 20)], 1, 10),
    ],
)
def test_a_machine_that_the_cloud_takes_is_not_paid_for_to_the_end(
    machines: list[tuple[str, int]], count: int, hourly: int
):
    statuses = [machine(InstanceState(state), price) for state, price in machines]
    assert going_on_microusd_per_hour(statuses, count) == hourly


def test_it_counts_how_fast_the_bill_runs():
    quick = machine(InstanceState.REGISTERED, 10, speed=60)
    assert going_on_microusd_per_hour([quick], 1) == 600
