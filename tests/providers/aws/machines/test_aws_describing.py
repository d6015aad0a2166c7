"""What an instance means, and how machines are found in regions, pages and late answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.adapters.providers.aws.client.describing import machine_of
from app.adapters.providers.aws.machines.terminating import REFUSALS_MAX, terminate_machines
from app.adapters.seeded_draws import seeded_draws
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.ports.cloud_provider import MachineState, ProviderError, RefusalKind
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import DEPLOYMENT, aws_order, aws_pool, provider_for
from tests.support.aws.aws_world import Fault
from tests.support.aws.iam_policy import shipped_policy

LAUNCHED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def told(state: str, reason: str = "", transition: str = "", **more: Any) -> dict[str, Any]:
    return {
        "InstanceId": "i-1",
        "InstanceType": "g5.xlarge",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "State": {"Name": state},
        "LaunchTime": LAUNCHED,
        "StateReason": {"Code": reason},
        "StateTransitionReason": transition,
        **more,
    }


@pytest.mark.parametrize(
    ("reason", "ended_by"),
    [
        ("Server.SpotInstanceTermination", EndedBy.CLOUD_INTERRUPTION),
        ("Server.SpotInstanceShutdown", EndedBy.CLOUD_INTERRUPTION),
        ("Server.InsufficientInstanceCapacity", EndedBy.CLOUD_CAPACITY),
        ("Server.InternalError", EndedBy.CLOUD_FAILURE),
        ("Client.UserInitiatedShutdown", EndedBy.US),
        ("Client.InstanceInitiatedShutdown", EndedBy.OS_SHUTDOWN),
        ("Server.SomethingNew", EndedBy.UNKNOWN),
    ],
)
def test_who_ended_it(reason: str, ended_by: EndedBy) -> None:
    assert machine_of(told("terminated", reason), "us-east-1").ended_by is ended_by
    assert machine_of(told("running", reason), "us-east-1").ended_by is None


def test_a_machine_that_never_ran_has_no_start() -> None:
    assert machine_of(told("pending"), "us-east-1").launched_at is None
    dropped = machine_of(told("terminated", "Server.InsufficientInstanceCapacity"), "us-east-1")
    assert (dropped.launched_at, dropped.launched_source) == (None, "")
    taken = machine_of(told("terminated", "Server.SpotInstanceTermination"), "us-east-1")
    assert (taken.launched_at, taken.launched_source) == (LAUNCHED, "launch_time")


def test_the_end_is_told_only_where_ec2_tells_it() -> None:
    ours = machine_of(
        told(
            "terminated", "Client.UserInitiatedShutdown", "User initiated (2026-03-01 12:05:09 GMT)"
        ),
        "us-east-1",
    )
    assert ours.ended_at == datetime(2026, 3, 1, 12, 5, 9, tzinfo=UTC)
    assert ours.ended_source == "state_transition_reason"
    taken = machine_of(told("terminated", "Server.SpotInstanceTermination"), "us-east-1")
    assert (taken.ended_at, taken.ended_source) == (None, "")
    leaving = machine_of(told("shutting-down", "Client.UserInitiatedShutdown", "User (x)"), "r")
    assert (leaving.state, leaving.ended_at) == (MachineState.SHUTTING_DOWN, None)


def test_lifecycles_and_states_that_are_new_do_not_stop_us() -> None:
    reserved = told("running", InstanceLifecycle="interruptible-capacity-reservation")
    assert machine_of(reserved, "us-east-1").pool.market is Market.SPOT
    scheduled = told("running", InstanceLifecycle="scheduled")
    assert machine_of(scheduled, "us-east-1").pool.market is Market.ON_DEMAND
    assert machine_of(told("hibernated"), "us-east-1").state is MachineState.RUNNING


def test_a_launch_that_ec2_drops_ends_by_capacity_and_costs_nothing(fake: AwsFake) -> None:
    provider = provider_for(fake)
    (machine,) = provider.launch(aws_order()).accepted
    fake.end(machine.provider_instance_id, "Server.InsufficientInstanceCapacity")
    (shown,) = provider.describe((machine.provider_instance_id,))
    assert (shown.state, shown.ended_by, shown.launched_at) == (
        MachineState.TERMINATED,
        EndedBy.CLOUD_CAPACITY,
        None,
    )
    assert fake.world.bill() == {machine.provider_instance_id: 0}


def test_machines_of_every_region_are_found_by_id_and_token(fake: AwsFake) -> None:
    first = provider_for(fake)
    east = first.launch(aws_order(aws_pool("us-east-1a"), token="a")).accepted
    west = first.launch(aws_order(aws_pool("us-west-2b"), token="b")).accepted
    ids = tuple(machine.provider_instance_id for machine in east + west)
    other = provider_for(fake)  # has seen neither
    shown = other.describe(ids)
    assert {machine.pool.region for machine in shown} == {"us-east-1", "us-west-2"}
    assert [one.provider_instance_id for one in shown] == sorted(ids)
    assert [one.pool.zone for one in other.find_by_token("b")] == ["us-west-2b"]
    provider_for(fake).terminate(ids)  # nor has this one
    assert {one.state for one in other.describe(ids)} == {MachineState.TERMINATED}


def test_one_unknown_id_keeps_no_other_machine_alive(fake: AwsFake) -> None:
    provider = provider_for(fake)
    result = provider.launch(aws_order(count=2))
    ids = [machine.provider_instance_id for machine in result.accepted]
    provider.terminate((*ids, "i-00000000000000000"))
    assert {one.state for one in provider.describe(tuple(ids))} == {MachineState.TERMINATED}


def test_two_hundred_machines_are_given_back_by_one_call_and_two_where_some_are_unknown(
    fake: AwsFake,
) -> None:
    fake.world.on_demand_room = 1_000
    provider = provider_for(fake)
    pool = aws_pool(market=Market.ON_DEMAND)
    for number, calls in ((1, 1), (2, 2)):
        result = provider.launch(aws_order(pool, count=200, token=f"token-{number}"))
        ids = [machine.provider_instance_id for machine in result.accepted]
        before = fake.world.calls["TerminateInstances"]
        gone = [f"i-{index:017x}" for index in range(7)] if number == 2 else []
        for one in gone:
            provider._remember([(one, "us-east-1")])
        provider.terminate((*ids, *gone))
        assert fake.world.calls["TerminateInstances"] - before == calls + (number == 2)
        assert not any(fake.world.machines[one].lives for one in ids)


def test_a_protected_machine_keeps_no_other_alive(fake: AwsFake) -> None:
    provider = provider_for(fake)
    ids = [one.provider_instance_id for one in provider.launch(aws_order(count=5)).accepted]
    fake.world.protected.add(ids[3])
    with pytest.raises(ProviderError, match="OperationNotPermitted"):
        provider.terminate(tuple(ids))
    living = {one for one in ids if fake.world.machines[one].lives}
    assert living == {ids[3]}


def test_machines_that_the_role_may_not_end_keep_no_other_alive(fake: AwsFake) -> None:
    provider = provider_for(fake)
    ids = [one.provider_instance_id for one in provider.launch(aws_order(count=6)).accepted]
    kept = {ids[1], ids[4]}
    for one in kept:
        del fake.records("us-east-1").tags[one]["lowtide:deployment"]
    fake.policy = shipped_policy("control-plane-policy.json", DEPLOYMENT)["Statement"]
    before = fake.world.calls["TerminateInstances"]
    for _ in range(2):
        with pytest.raises(ProviderError, match="UnauthorizedOperation"):
            provider.terminate(tuple(ids))
    assert {one for one in ids if fake.world.machines[one].lives} == kept
    assert fake.world.calls["TerminateInstances"] - before <= 2 * (2 * len(ids) - 1)


@pytest.mark.parametrize(
    ("code", "status"),
    [("AuthFailure", 401), ("RequestLimitExceeded", 503), ("InternalError", 500)],
)
def test_what_concerns_no_single_machine_is_asked_once(
    fake: AwsFake, code: str, status: int
) -> None:
    provider = provider_for(fake)
    ids = [one.provider_instance_id for one in provider.launch(aws_order(count=4)).accepted]
    fake.world.faults.append(Fault("TerminateInstances", code, status, times=9))
    before = fake.world.calls["TerminateInstances"]
    with pytest.raises(ProviderError, match=code):
        provider.terminate(tuple(ids))
    assert fake.world.calls["TerminateInstances"] - before == 1


def test_a_role_that_may_end_nothing_costs_a_bounded_number_of_calls(fake: AwsFake) -> None:
    provider = provider_for(fake)
    ids = [f"i-{number:017x}" for number in range(200)]
    fault = Fault("TerminateInstances", "UnauthorizedOperation", 403, times=1_000)
    fake.world.faults.append(fault)
    before = fake.world.calls["TerminateInstances"]
    with pytest.raises(ProviderError, match="UnauthorizedOperation"):
        terminate_machines(provider.clients, {"us-east-1": ids}, seeded_draws(0))
    assert fake.world.calls["TerminateInstances"] - before <= 2 * REFUSALS_MAX


def test_what_the_cloud_shows_late_is_not_there_yet(fake: AwsFake) -> None:
    fake.world.hidden_looks = 2
    provider = provider_for(fake)
    (machine,) = provider.launch(aws_order()).accepted
    looks = [len(provider.describe((machine.provider_instance_id,))) for _ in range(3)]
    assert looks == [0, 0, 1]


def test_a_list_is_read_to_its_end_and_says_when_it_was_not(fake: AwsFake) -> None:
    fake.world.page_size = 5
    provider = provider_for(fake)
    for number in range(12):
        zone = ("us-east-1a", "us-east-1b", "us-east-1c")[number % 3]
        provider.launch(aws_order(aws_pool(zone), token=f"token-{number}"))
    before = fake.world.calls["DescribeInstances"]
    listed = provider.list_deployment("us-east-1")
    assert (len(listed.machines), listed.complete) == (12, True)
    assert fake.world.calls["DescribeInstances"] - before == 3

    answered = fake.answer
    seen = 0

    def fails_later(*asked: Any) -> Any:
        nonlocal seen
        seen += b"Action=DescribeInstances" in asked[-1]
        return answered(*asked) if seen < 2 else (503, {}, b"<html>")

    fake.answer = fails_later  # type: ignore[assignment]
    listed = provider.list_deployment("us-east-1")
    assert (len(listed.machines), listed.complete) == (5, False)
    with pytest.raises(ProviderError) as refused:
        provider.list_deployment("us-east-1")
    assert refused.value.kind is RefusalKind.UNAVAILABLE


def test_machines_of_another_deployment_are_not_ours(fake: AwsFake) -> None:
    provider = provider_for(fake)
    provider.launch(aws_order())
    (machine,) = provider.list_deployment("us-east-1").machines
    fake.instance(machine.provider_instance_id).add_tags({"lowtide:deployment": "another"})
    assert provider.list_deployment("us-east-1").machines == ()
    assert provider.find_by_token("token-1") == ()


def test_the_fake_bills_as_ec2_does(fake: AwsFake) -> None:
    from datetime import timedelta
    from fractions import Fraction

    provider = provider_for(fake)
    result = provider.launch(aws_order(count=3))
    ours, taken, late = (machine.provider_instance_id for machine in result.accepted)
    at = fake.world.machines[ours].launched_at
    price = fake.world.price_at("g5.xlarge", "us-east-1a", at)
    for machine_id, seconds, reason in (
        (ours, 10, "Client.UserInitiatedShutdown"),
        (taken, 3_599, "Server.SpotInstanceTermination"),
        (late, 7_200, "Server.SpotInstanceTermination"),
    ):
        rented = fake.world.machines[machine_id]
        rented.ended_at, rented.reason = at + timedelta(seconds=seconds), reason
    fake.world.set_price("g5.xlarge", "us-east-1a", price * 2, at + timedelta(hours=1))
    assert fake.world.compute_bill() == {ours: round(price / 60), taken: 0, late: price * 3}
    gb_hour = Fraction(fake.world.machines[ours].volume_gb * 80_000, 730)
    beside = {ours: gb_hour / 60, taken: gb_hour * 3_599 / 3_600, late: gb_hour * 2}
    compute = fake.world.compute_bill()
    assert fake.world.bill() == {key: compute[key] + round(cost) for key, cost in beside.items()}


def test_the_fake_knows_the_filters_that_moto_lacks(fake: AwsFake) -> None:
    provider = provider_for(fake)
    (spot,) = provider.launch(aws_order(token="a")).accepted
    pool = aws_pool(market=Market.ON_DEMAND)
    (owned,) = provider.launch(aws_order(pool, token="b")).accepted

    def found(name: str, value: str) -> list[str]:
        filters = [{"Name": name, "Values": [value]}]
        reply = provider.clients.ask("ec2", "us-east-1", "describe_instances", Filters=filters)
        rows = [one for group in reply["Reservations"] for one in group["Instances"]]
        return [one["InstanceId"] for one in rows]

    assert found("instance-lifecycle", "spot") == [spot.provider_instance_id]
    token = fake.instance(owned.provider_instance_id).client_token
    assert found("client-token", token) == [owned.provider_instance_id]
    assert found("client-token", "b") == []  # a fleet's machines get tokens of their own
