"""Lists of Compute Engine that show a machine late, or never: operations tell the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.lifecycle.instance import EndedBy
from app.ports.cloud_provider import LaunchOutcomeUnknown, LaunchResult, MachineState
from tests.providers.gcp.gcp_under_test import a_pool, an_order, open_provider
from tests.support.gce.gce_fake import FakeGce, LineFault


def until_told(gce: FakeGce, result: LaunchResult) -> LaunchResult:
    """Ask about a pending launch, a few times."""
    provider = open_provider(gce)
    for _ in range(5):
        if result.pending_operation is None:
            return result
        result = provider.poll_launch(result.pending_operation)
    return result


def test_what_an_operation_has_made_is_waited_for(gce: FakeGce) -> None:
    gce.engine.world.hidden_looks = 3
    for count, token in ((1, "lowtide-1"), (2, "lowtide-2")):
        first = open_provider(gce).launch(an_order(a_pool(), count=count, token=token))
        assert first.pending_operation is not None, "it was made, and no list shows it yet"
        assert first.refused == ()
        assert len(until_told(gce, first).accepted) == count
    assert len(gce.engine.live) == 3, "nothing was taken for a failure and deleted"


def test_a_machine_that_came_and_went_before_any_list_is_told_all_the_same(gce: FakeGce) -> None:
    gce.engine.world.hidden_looks = 99
    first = open_provider(gce).launch(an_order())
    assert first.pending_operation is not None
    (vm,) = gce.engine.live.values()
    gce.engine.end_otherwise(vm.name, "compute.instances.hostError")
    told = until_told(gce, first)
    assert [one.provider_instance_id for one in told.accepted] == [vm.name], "somebody pays for it"
    (machine,) = open_provider(gce).describe((vm.name,))
    assert (machine.state, machine.ended_by) == (MachineState.TERMINATED, EndedBy.CLOUD_FAILURE)


def test_a_stopped_machine_that_no_list_shows_is_not_taken_for_gone(gce: FakeGce) -> None:
    provider = open_provider(gce)
    (machine,) = provider.launch(an_order()).accepted
    gce.engine.shut_down_inside(machine.provider_instance_id)
    (vm,) = gce.engine.live.values()
    vm.hidden_looks = 1
    (shown,) = provider.describe((vm.name,))
    assert (shown.state, shown.ended_at) == (MachineState.SHUTTING_DOWN, None), "its disk is there"
    provider.terminate((vm.name,))
    (gone,) = provider.describe((vm.name,))
    assert (gone.state, gone.ended_by) == (MachineState.TERMINATED, EndedBy.OS_SHUTDOWN)
    assert gce.engine.live == {}


def test_the_first_of_two_ends_counts(gce: FakeGce) -> None:
    """Its host fails in the two minutes between a preemption's notice and the preemption."""
    provider = open_provider(gce)
    (machine,) = provider.launch(an_order()).accepted
    gce.engine.preempt(machine.provider_instance_id)
    gce.engine.advance(30)
    gce.engine.end_otherwise(machine.provider_instance_id, "compute.instances.hostError")
    (vm,) = gce.engine.all
    gce.engine.advance(300)
    (told,) = provider.describe((vm.name,))
    assert told.ended_by is EndedBy.CLOUD_FAILURE
    assert told.ended_at is not None
    assert told.ended_at.timestamp() == vm.ended_at


def test_a_machine_that_is_still_made_under_notice_began_when_it_began(gce: FakeGce) -> None:
    """No list shows it, and the operation that makes it is under way when it is to be taken."""
    provider = open_provider(gce)
    gce.engine.world.operation_seconds = 8.0
    provider.launch(an_order())
    (vm,) = gce.engine.all
    gce.engine.preempt(vm.name)
    vm.hidden_looks = 1
    (early,) = provider.describe((vm.name,))
    assert early.state is MachineState.SHUTTING_DOWN
    assert early.launched_at is None, "it does not run yet"
    gce.engine.advance(20)
    (later,) = provider.describe((vm.name,))
    assert later.launched_at is not None
    assert later.launched_at.timestamp() == vm.started_at
    assert later.launched_source == "last_start"


def test_a_machine_taken_before_it_ran_has_no_start(gce: FakeGce) -> None:
    provider = open_provider(gce)
    gce.engine.world.operation_seconds = 8.0
    provider.launch(an_order())
    (vm,) = gce.engine.all
    gce.engine.preempt(vm.name, notice=False)
    gce.engine.advance(20)
    (gone,) = provider.describe((vm.name,))
    assert gone.state is MachineState.TERMINATED
    assert (vm.started_at, gone.launched_at) == (None, None), "nobody owes anything for it"


@pytest.mark.parametrize("count", [1, 2])
def test_names_that_are_taken_by_machines_that_no_list_shows_are_most_likely_ours(
    gce: FakeGce, count: int
) -> None:
    """Google has forgotten the request, and the lists do not show what it made yet."""
    wanted = an_order(count=count)
    gce.engine.world.hidden_looks = 8
    open_provider(gce).launch(wanted)
    gce.engine._requests.clear()
    with pytest.raises(LaunchOutcomeUnknown, match="no list shows"):
        open_provider(gce).launch(wanted)
    for vm in gce.engine.live.values():
        vm.hidden_looks = 0
    assert len(open_provider(gce).launch(wanted).accepted) == count
    assert len(gce.engine.all) == count


def test_names_that_are_taken_in_a_zone_that_does_not_answer_are_not_judged(gce: FakeGce) -> None:
    wanted = an_order()
    open_provider(gce).launch(wanted)
    gce.engine._requests.clear()
    gce.unreachable_zones = {"us-central1-a"}
    with pytest.raises(LaunchOutcomeUnknown, match="did not answer"):
        open_provider(gce).launch(wanted)
    gce.unreachable_zones = set()
    assert len(open_provider(gce).launch(wanted).accepted) == 1
    assert len(gce.engine.all) == 1


def test_lists_that_fail_say_nothing_of_who_has_the_names(gce: FakeGce) -> None:
    wanted = an_order()
    open_provider(gce).launch(wanted)
    gce.engine._requests.clear()
    (vm,) = gce.engine.live.values()
    vm.hidden_looks = 1
    gce.faults.append(LineFault("GET .*/instances", 99, skip=1, status=403, reason="forbidden"))
    with pytest.raises(LaunchOutcomeUnknown, match="already exists"):
        open_provider(gce).launch(wanted)


_NO_POLICY = LineFault(r"POST .*/resourcePolicies")


@pytest.mark.parametrize(
    ("first", "second"), [(None, _NO_POLICY), (_NO_POLICY, None)], ids=["later", "at first"]
)
def test_a_policy_that_is_made_once_and_once_not_starts_no_second_gang(
    gce: FakeGce, first: LineFault | None, second: LineFault | None
) -> None:
    """Names are no guard: another zone takes them too."""
    gce.engine.world.rooms.update({(f"us-central1-{zone}", "SPOT"): 2 for zone in "ab"})
    gce.engine.world.hidden_looks = 8
    wanted = an_order(a_pool(), a_pool("us-central1-b"), count=2)
    gce.faults += [replace(one) for one in (first, LineFault(r"POST .*/bulk", after=True)) if one]
    with pytest.raises(LaunchOutcomeUnknown):
        open_provider(gce).launch(wanted)
    gce.faults += [replace(second)] if second else []
    again = open_provider(gce).launch(wanted)
    assert [one.times for one in gce.faults] == [0, 0]
    assert len(gce.engine.all) == 2
    for vm in gce.engine.all:
        vm.hidden_looks = 0
    assert len(until_told(gce, again).accepted) == 2
