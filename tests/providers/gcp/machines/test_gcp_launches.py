"""What Compute Engine is asked for, and that a repeat never starts more."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from app.domain.market.offer import Market
from app.ports.cloud_provider import (
    LaunchOutcomeUnknown,
    LaunchResult,
    MachineState,
    ProviderError,
    RefusalKind,
)
from tests.providers.gcp.gcp_under_test import DEPLOYMENT, JOB, a_pool, an_order, open_provider
from tests.support.gce.gce_fake import FakeGce, LineFault
from tests.support.gce.gce_fake_state import PROJECT, Vm


def only_vm(gce: FakeGce) -> Vm:
    (vm,) = gce.engine.live.values()
    return vm


def test_a_spot_vm_deletes_itself_and_asks_for_the_long_notice(gce: FakeGce) -> None:
    provider = open_provider(gce)
    assert len(provider.launch(an_order()).accepted) == 1
    vm = only_vm(gce)
    assert vm.body["scheduling"] == {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": "604800"},
        "preemptionNoticeDuration": {"seconds": "120"},
    }
    assert re.fullmatch(r"lt-[a-z2-7]{20}-0-s-a2-highgpu-1g", vm.name)
    assert vm.body["labels"] == {
        "lowtide_deployment": DEPLOYMENT,
        "lowtide_job": JOB,
        "lowtide_notice": "120",
        "lowtide_token": "lowtide-1",
        "lowtide_order": vm.body["labels"]["lowtide_order"],
    }
    (disk,) = vm.body["disks"]
    assert disk["autoDelete"] is True
    assert disk["initializeParams"]["labels"] == vm.body["labels"]
    assert "diskEncryptionKey" not in disk
    (interface,) = vm.body["networkInterfaces"]
    assert interface == {"network": "global/networks/default", "nicType": "GVNIC"}
    assert vm.body["shieldedInstanceConfig"]["enableVtpm"] is True
    (account,) = vm.body["serviceAccounts"]
    assert account["scopes"] == ["https://www.googleapis.com/auth/devstorage.read_write"]
    (item,) = vm.body["metadata"]["items"]
    assert item["key"] == "startup-script"
    assert "LOWTIDE_LAUNCH_TOKEN=one-time" in item["value"]
    assert "LOWTIDE_NOTICE_SECONDS=120" in item["value"]


def test_an_on_demand_vm_has_a_longest_run_too_and_no_notice(gce: FakeGce) -> None:
    open_provider(gce, max_run_seconds=3_600).launch(an_order(a_pool(market=Market.ON_DEMAND)))
    vm = only_vm(gce)
    assert vm.model == "STANDARD"
    assert vm.run_limit_seconds == 3_600
    assert vm.body["scheduling"]["instanceTerminationAction"] == "DELETE"
    assert "preemptionNoticeDuration" not in vm.body["scheduling"]
    assert "-0-d-" in vm.name


def test_settings_reach_the_vm(gce: FakeGce) -> None:
    key = f"projects/{PROJECT}/locations/us-central1/keyRings/r/cryptoKeys/k"
    provider = open_provider(
        gce,
        kms_key=key,
        external_ip=True,
        subnetwork="regions/{region}/subnetworks/gpu",
        service_account=None,
        disk_gb=512,
    )
    provider.launch(an_order())
    body = only_vm(gce).body
    assert body["disks"][0]["diskEncryptionKey"] == {"kmsKeyName": key}
    assert body["disks"][0]["initializeParams"]["diskSizeGb"] == "512"
    (interface,) = body["networkInterfaces"]
    assert interface["subnetwork"] == "regions/us-central1/subnetworks/gpu"
    assert interface["accessConfigs"][0]["type"] == "ONE_TO_ONE_NAT"
    assert "serviceAccounts" not in body


def test_a_job_says_how_large_its_disk_is(gce: FakeGce) -> None:
    open_provider(gce).launch(an_order())
    open_provider(gce).launch(an_order(token="lowtide-2", disk_gb=500))
    sizes = [vm.body["disks"][0]["initializeParams"]["diskSizeGb"] for vm in gce.engine.all]
    assert sizes == ["100", "500"]
    (refused,) = open_provider(gce).launch(an_order(token="lowtide-3", disk_gb=20)).refused
    assert refused.kind is RefusalKind.REJECTED
    assert "cannot be smaller than the image size (50 GB)" in refused.message
    with pytest.raises(ProviderError, match="another order"):
        open_provider(gce).launch(an_order(token="lowtide-2", disk_gb=600))


def test_attached_gpus_are_asked_for_with_their_general_type(gce: FakeGce) -> None:
    gce.engine.world.machine_types = ("n1-standard-8",)
    kind = "n1-standard-8-t4x1"
    result = open_provider(gce).launch(an_order(a_pool(kind=kind)))
    assert [one.pool.instance_type for one in result.accepted] == [kind]
    vm = only_vm(gce)
    assert vm.machine_type == "n1-standard-8"
    assert vm.body["guestAccelerators"] == [
        {
            "acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4",
            "acceleratorCount": 1,
        }
    ]


def test_a_rejected_notice_is_done_without_and_the_granted_one_recorded(gce: FakeGce) -> None:
    gce.engine.world.notice_supported = False
    provider = open_provider(gce)
    wanted = an_order()
    (machine,) = provider.launch(wanted).accepted
    assert only_vm(gce).notice_seconds == 0
    (found,) = provider.find_by_token("lowtide-1")
    assert found.tags["lowtide:notice"] == "30"
    assert "LOWTIDE_NOTICE_SECONDS=30" in only_vm(gce).body["metadata"]["items"][0]["value"]
    assert provider.launch(wanted).accepted == (machine,)


def test_a_gang_goes_to_one_zone_by_one_call_and_stands_together(gce: FakeGce) -> None:
    pools = tuple(a_pool(f"us-central1-{letter}") for letter in "abc")
    gce.engine.world.rooms["us-central1-a", "SPOT"] = 1
    result = open_provider(gce).launch(an_order(*pools, count=3))
    assert len(result.accepted) == 3
    (zone,) = {one.pool.zone for one in result.accepted}
    assert zone != "us-central1-a"
    (policy,) = gce.engine.policies.values()
    assert policy["groupPlacementPolicy"] == {"collocation": "COLLOCATED"}
    for vm in gce.engine.live.values():
        assert vm.body["resourcePolicies"] == [policy["name"]], "a bulk insert takes names"
    assert len(gce.calls(r"POST .*/instances")) == 1


@pytest.mark.parametrize(
    "fault",
    [
        LineFault(r"POST .*/resourcePolicies", status=403, reason="quotaExceeded", message="quota"),
        LineFault(r"POST .*/bulkInsert", status=400, reason="invalid", message="resourcePolicies"),
        LineFault(r"POST .*/resourcePolicies"),
    ],
    ids=["its quota", "the insert", "no answer"],
)
def test_a_gang_that_gets_no_policy_starts_without_and_says_so(
    gce: FakeGce, fault: LineFault
) -> None:
    gce.faults.append(dataclasses.replace(fault))
    result = open_provider(gce).launch(an_order(count=2))
    assert len(result.accepted) == 2
    assert all("resourcePolicies" not in vm.body for vm in gce.engine.live.values())
    for machine in result.accepted:
        assert "refused to place the gang close together" in machine.note


def test_why_a_gang_has_no_policy_is_known_when_a_restarted_worker_goes_on(gce: FakeGce) -> None:
    gce.engine.world.compact_supported = False
    gce.engine.operations_hang = True
    first = open_provider(gce, operation_wait_seconds=0.1).launch(an_order(count=2))
    assert first.pending_operation is not None
    gce.engine.operations_hang = False
    done = open_provider(gce).poll_launch(first.pending_operation)
    assert ["groupPlacementPolicy" in one.note for one in done.accepted] == [True, True]


def test_a_lone_machine_has_no_policy_and_nothing_to_say(gce: FakeGce) -> None:
    """In one zone, in one of several, and as the replacement of one member of a gang."""
    for number, zones in enumerate(("a", "ab", "abc")):
        pools = [a_pool(f"us-central1-{letter}") for letter in zones]
        (machine,) = open_provider(gce).launch(an_order(*pools, token=f"t{number}")).accepted
        assert machine.note == ""
    assert gce.engine.policies == {}
    assert not gce.calls("resourcePolicies")
    assert all("resourcePolicies" not in vm.body for vm in gce.engine.all)


def test_old_policies_go_when_the_next_gang_starts(gce: FakeGce) -> None:
    provider = open_provider(gce)
    first = provider.launch(an_order(count=2)).accepted
    for policy in gce.engine.policies.values():
        policy["creationTimestamp"] = "2020-01-01T00:00:00.000-08:00"
    provider.launch(an_order(count=2, token="lowtide-2"))
    assert len(gce.engine.policies) == 2  # one is old, and used
    provider.terminate(tuple(one.provider_instance_id for one in first))
    provider.launch(an_order(count=2, token="lowtide-3", market=Market.SPOT))
    assert len(gce.engine.policies) == 2


def test_a_restarted_worker_goes_on_with_the_operation(gce: FakeGce) -> None:
    gce.engine.operations_hang = True
    result = open_provider(gce, operation_wait_seconds=0.1).launch(an_order(count=2))
    assert result.accepted == ()
    assert result.pending_operation is not None
    restarted = open_provider(gce)
    assert restarted.poll_launch(result.pending_operation) == LaunchResult(
        pending_operation=result.pending_operation
    )
    gce.engine.operations_hang = False
    done = restarted.poll_launch(result.pending_operation)
    assert len(done.accepted) == 2
    assert {one.launched_source for one in done.accepted} == {"last_start"}


def test_a_call_repeated_while_its_operation_runs_starts_nothing_more(gce: FakeGce) -> None:
    gce.engine.operations_hang = True
    wanted = an_order(a_pool(), a_pool("us-central1-b"), count=2)
    first = open_provider(gce, operation_wait_seconds=0.1).launch(wanted)
    again = open_provider(gce, operation_wait_seconds=0.1).launch(wanted)
    assert again.pending_operation == first.pending_operation
    assert len(gce.engine.all) == 2


def test_a_taken_name_is_ours_when_google_forgot_the_request(gce: FakeGce) -> None:
    provider, wanted = open_provider(gce), an_order(count=2)
    first = provider.launch(wanted)
    gce.engine._requests.clear()
    assert provider.launch(wanted).accepted == first.accepted
    assert len(gce.engine.all) == 2


@pytest.mark.parametrize(
    "text", ["", "operation-1", "zones/a/operations/o?names=a", "x/y/z/w?min=1"]
)
def test_an_operation_that_is_none_of_ours_is_rejected(gce: FakeGce, text: str) -> None:
    with pytest.raises(ProviderError, match="no launch is pending") as refused:
        open_provider(gce).poll_launch(text)
    assert refused.value.kind is RefusalKind.REJECTED


@pytest.mark.parametrize(
    "fault",
    [
        LineFault(r"POST .*/instances", status=503),
        LineFault(r"POST .*/instances", after=True),
        LineFault(r"POST .*/instances"),
        LineFault(r"POST .*/instances", hang_seconds=4.0),
    ],
    ids=["5xx", "reply lost", "dropped", "hangs"],
)
def test_without_an_answer_the_outcome_is_unknown_and_a_repeat_settles_it(
    gce: FakeGce, fault: LineFault
) -> None:
    gce.faults.append(dataclasses.replace(fault))
    with pytest.raises(LaunchOutcomeUnknown):
        open_provider(gce, request_seconds=2.0).launch(an_order())
    assert len(gce.calls(r"POST .*/instances")) == 1, "the launch call is never repeated by itself"
    assert len(open_provider(gce).launch(an_order()).accepted) == 1
    assert len(gce.engine.all) == 1


def test_a_machine_that_came_and_went_during_the_launch_is_still_told(gce: FakeGce) -> None:
    gce.engine.on_start = lambda vm: gce.engine.preempt(vm.name, notice=False)
    (machine,) = open_provider(gce).launch(an_order()).accepted
    (found,) = open_provider(gce).describe((machine.provider_instance_id,))
    assert found.state is MachineState.TERMINATED
    assert machine.launched_at == found.launched_at
    assert machine.launched_at is not None


@pytest.mark.parametrize(
    "changes",
    [{"tags": {"lowtide:job": "Upper"}}, {"tags": {"lowtide_x": "1"}}, {"client_token": "a b"}],
)
def test_what_no_label_can_hold_is_rejected_before_any_machine(
    gce: FakeGce, changes: dict[str, Any]
) -> None:
    with pytest.raises(ProviderError) as refused:
        open_provider(gce).launch(an_order(**changes))
    assert refused.value.kind is RefusalKind.REJECTED
    assert gce.engine.all == []
