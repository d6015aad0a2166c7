"""How VMs end, who ended them and when: told by operations once nothing else is left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.adapters.providers.gcp.client.attachment_prices import AS_OF, DISK_PRICES, SOURCE
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.provider import GcpProvider
from app.domain.billing.billing import bill
from app.domain.billing.billing_rules import GCE_RULES
from app.domain.billing.machine_facts import AssignmentSpan, DiskRate, MachineFacts, TimeSource
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.domain.market.price_book import PriceBook, PricePoint
from app.ports.cloud_provider import CloudMachine, MachineState, ProviderError, RefusalKind
from tests.providers.gcp.gcp_under_test import a_pool, an_order, open_provider
from tests.support.gce.gce_fake import FakeGce
from tests.support.gce.gce_fake_bill import bill_microusd
from tests.support.gce.gce_fake_state import OURS, SYSTEM, Vm

PRICE = 1_836_017


def start(gce: FakeGce, provider: GcpProvider, market: Market = Market.SPOT) -> Vm:
    (machine,) = provider.launch(an_order(a_pool(market=market))).accepted
    return gce.engine.machine(machine.provider_instance_id)


def look(provider: GcpProvider, vm: Vm) -> CloudMachine:
    (found,) = provider.describe((vm.name,))
    return found


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("kind", "user", "ended_by"),
    [
        ("compute.instances.preempted", SYSTEM, EndedBy.CLOUD_INTERRUPTION),
        ("compute.instances.hostError", SYSTEM, EndedBy.CLOUD_FAILURE),
        ("delete", "someone@example.com", EndedBy.OUTSIDER),
        ("delete", SYSTEM, EndedBy.CLOUD_FAILURE),
    ],
)
def test_who_ended_a_vm_and_when(gce: FakeGce, kind: str, user: str, ended_by: EndedBy) -> None:
    provider = open_provider(gce)
    vm = start(gce, provider)
    running = look(provider, vm)
    assert (running.launched_at, running.launched_source) == (
        at(vm.started_at),
        TimeSource.LAST_START,
    )
    gce.engine.advance(100)
    gce.engine.end_otherwise(vm.name, kind, user)
    ended = look(provider, vm)
    assert ended.state is MachineState.TERMINATED
    assert ended.ended_by is ended_by
    assert (ended.ended_at, ended.ended_source) == (at(vm.ended_at), TimeSource.OPERATION_END)
    assert ended.launched_at == at(vm.started_at)
    assert ended.pool == running.pool


def test_on_which_computer_a_vm_runs_where_the_cloud_tells(gce: FakeGce) -> None:
    provider = open_provider(gce)
    vm = start(gce, provider)
    assert look(provider, vm).host == ""
    vm.host = "/0123456789abcdef/block-1/subblock-2/host-3"
    assert look(provider, vm).host == vm.host


def test_our_own_deletion_and_a_preemption_before_it(gce: FakeGce) -> None:
    provider = open_provider(gce)
    vm = start(gce, provider)
    provider.terminate((vm.name,))
    assert look(provider, vm).ended_by is EndedBy.US
    gce.engine.world.stopping_seconds = 30.0
    (second,) = provider.launch(an_order(token="lowtide-2")).accepted
    gce.engine.preempt(second.provider_instance_id, notice=False)
    provider.terminate((second.provider_instance_id,))
    (going,) = provider.describe((second.provider_instance_id,))
    assert (going.state, going.ended_by) == (
        MachineState.SHUTTING_DOWN,
        EndedBy.CLOUD_INTERRUPTION,
    )
    gce.engine.advance(31)
    (gone,) = provider.describe((second.provider_instance_id,))
    assert (gone.state, gone.ended_by) == (MachineState.TERMINATED, EndedBy.CLOUD_INTERRUPTION)


def test_under_notice_a_vm_runs_on_until_its_time(gce: FakeGce) -> None:
    provider = open_provider(gce)
    vm = start(gce, provider)
    gce.engine.preempt(vm.name)
    assert look(provider, vm).state is MachineState.RUNNING
    gce.engine.advance(119)
    assert look(provider, vm).state is MachineState.RUNNING
    gce.engine.advance(2)
    assert look(provider, vm).ended_by is EndedBy.CLOUD_INTERRUPTION


def test_a_guest_that_powers_off_under_a_notice_was_preempted(gce: FakeGce) -> None:
    """Its own shutdown is over 80 s before the preemption is."""
    provider = open_provider(gce)
    vm = start(gce, provider)
    gce.engine.preempt(vm.name)
    gce.engine.advance(40)
    gce.engine.shut_down_inside(vm.name)
    stopped = look(provider, vm)
    assert (stopped.state, stopped.ended_by) == (
        MachineState.SHUTTING_DOWN,
        EndedBy.CLOUD_INTERRUPTION,
    )
    gce.engine.advance(81)
    gone = look(provider, vm)
    assert (gone.state, gone.ended_by) == (MachineState.TERMINATED, EndedBy.CLOUD_INTERRUPTION)
    assert gone.ended_at == at(vm.stopped_at)


@pytest.mark.parametrize(
    ("kind", "seconds", "ended_by"),
    [
        ("compute.instances.preempted", 120.0, EndedBy.CLOUD_INTERRUPTION),
        ("compute.instances.terminateOnHostMaintenance", 300.0, EndedBy.CLOUD_FAILURE),
        ("compute.instances.hostError", 60.0, EndedBy.CLOUD_FAILURE),
    ],
)
@pytest.mark.parametrize("user", [OURS, "someone@example.com"])
def test_what_the_cloud_began_is_the_cloud_s_though_a_deletion_was_over_first(
    gce: FakeGce, kind: str, seconds: float, ended_by: EndedBy, user: str
) -> None:
    """The end is when the deletion was over: nobody pays for the rest of the notice."""
    provider = open_provider(gce)
    vm = start(gce, provider)
    gce.engine.advance(100)
    gce.engine.begin(vm.name, kind, seconds)
    gce.engine.advance(10)
    gce.engine.end_otherwise(vm.name, "delete", user)
    for _ in range(2):
        ended = look(provider, vm)
        assert (ended.state, ended.ended_by) == (MachineState.TERMINATED, ended_by)
        assert ended.ended_at == at(vm.ended_at)
        gce.engine.advance(2 * seconds)


def test_what_the_cloud_began_after_our_deletion_is_not_its_doing(gce: FakeGce) -> None:
    provider = open_provider(gce)
    vm = start(gce, provider)
    gce.engine.world.stopping_seconds = 30.0
    gce.engine.advance(100)
    provider.terminate((vm.name,))
    gce.engine.advance(5)
    gce.engine.begin(vm.name, "compute.instances.preempted", 120.0)
    gce.engine.advance(200)
    assert look(provider, vm).ended_by is EndedBy.US


def test_the_longest_run_ends_a_vm_even_when_we_do_not(gce: FakeGce) -> None:
    provider = open_provider(gce, max_run_seconds=600)
    vm = start(gce, provider, Market.ON_DEMAND)
    gce.engine.advance(599)
    assert look(provider, vm).state is MachineState.RUNNING
    gce.engine.advance(2)
    ended = look(provider, vm)
    assert ended.ended_by is EndedBy.RUN_LIMIT
    assert ended.ended_at is not None
    assert ended.launched_at is not None
    assert (ended.ended_at - ended.launched_at).total_seconds() == pytest.approx(600)


def test_a_vm_that_shut_itself_down_is_on_its_way_out_until_it_is_deleted(gce: FakeGce) -> None:
    provider = open_provider(gce)
    vm = start(gce, provider)
    gce.engine.shut_down_inside(vm.name)
    stopped = look(provider, vm)
    assert (stopped.state, stopped.ended_by) == (MachineState.SHUTTING_DOWN, EndedBy.OS_SHUTDOWN)
    gce.engine.advance(50)
    provider.terminate((vm.name,))
    gone = look(provider, vm)
    assert (gone.state, gone.ended_by) == (MachineState.TERMINATED, EndedBy.OS_SHUTDOWN)
    assert gone.ended_at == at(vm.stopped_at)


def test_a_name_that_nothing_tells_of_is_not_there(gce: FakeGce) -> None:
    assert open_provider(gce).describe(("lt-aaaaaaaaaaaaaaaaaaaa-0-s-a2-highgpu-1g",)) == ()


def test_nothing_is_concluded_while_a_zone_does_not_answer(gce: FakeGce) -> None:
    provider = open_provider(gce)
    vm = start(gce, provider)
    gce.unreachable_zones = {"us-central1-a"}
    with pytest.raises(ProviderError, match="did not answer") as failed:
        provider.describe((vm.name,))
    assert failed.value.kind is RefusalKind.UNAVAILABLE
    assert not provider.list_deployment("us-central1").complete
    assert provider.list_deployment("europe-west4").complete
    with pytest.raises(ProviderError, match="not all ended"):
        open_provider(gce).terminate((vm.name,))
    provider.terminate((vm.name,))
    gce.engine.advance(1)
    assert gce.engine.live == {}, "a process that knows where it is needs no list"


def test_lists_go_through_every_page_and_leave_others_out(gce: FakeGce) -> None:
    provider = open_provider(gce)
    ours = provider.launch(an_order(count=4)).accepted
    provider.launch(an_order(token="other", tags={"lowtide:deployment": "0190-other"}))
    gce.page_size = 1
    found = provider.list_deployment("us-central1")
    assert found.complete
    assert [one.provider_instance_id for one in found.machines] == sorted(
        one.provider_instance_id for one in ours
    )


@pytest.mark.parametrize("seconds", [0.0, 30.0, 59.0, 61.0, 4_000.5])
@pytest.mark.parametrize("taken", [True, False])
def test_the_ledger_s_rules_give_the_fake_s_own_bill(
    gce: FakeGce, seconds: float, taken: bool
) -> None:
    provider = open_provider(gce)
    vm = start(gce, provider)
    gce.engine.advance(seconds)
    if taken:
        gce.engine.preempt(vm.name, notice=False)
    else:
        provider.terminate((vm.name,))
    ended = look(provider, vm)
    assert bill_microusd(gce.engine.all, lambda vm: PRICE) == {vm.name: our_bill(ended)}


def our_bill(machine: CloudMachine) -> int:
    assert machine.launched_at is not None
    assert machine.ended_at is not None
    facts = MachineFacts(
        instance_id=UUID(int=1),
        market=machine.pool.market,
        started_at=machine.launched_at,
        ended_at=machine.ended_at,
        ended_by=machine.ended_by,
        assignments=(AssignmentSpan(UUID(int=2), None, None, machine.launched_at),),
        disk=DiskRate(GcpSettings.disk_gb, DISK_PRICES["pd-balanced"], SOURCE, AS_OF),
    )
    book = PriceBook.of([PricePoint(machine.launched_at, PRICE, "test", machine.launched_at)])
    until = machine.ended_at + timedelta(days=1)
    return sum(bill(facts, book.segments(machine.launched_at, until), GCE_RULES, until).values())
