"""Every error, from HTTP and from inside an operation: its kind, its scope and its sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.refusals import refusal_of
from app.ports.cloud_provider import MachineState, ProviderError, RefusalKind, RefusalScope
from tests.providers.gcp.gcp_under_test import a_pool, an_order, gcp_settings, open_provider
from tests.support.gce.gce_fake import FakeGce, LineFault

_K, _S = RefusalKind, RefusalScope


@pytest.mark.parametrize(
    ("code", "message", "kind", "scope"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", _K.NO_CAPACITY, _S.POOL),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", _K.NO_CAPACITY, _S.POOL),
        ("UNSUPPORTED_OPERATION", "preempted while created", _K.NO_CAPACITY, _S.POOL),
        ("RESOURCE_NOT_FOUND", "the VM vanished", _K.NO_CAPACITY, _S.POOL),
        ("QUOTA_EXCEEDED", "Quota 'PREEMPTIBLE_NVIDIA_A100_GPUS' exceeded", _K.QUOTA, _S.FAMILY),
        ("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded", _K.QUOTA, _S.PROVIDER),
        ("RESOURCE_OPERATION_RATE_EXCEEDED", "", _K.THROTTLED, _S.ZONE),
        ("RESOURCE_NOT_READY", "", _K.THROTTLED, _S.ZONE),
        ("IAM_PERMISSION_DENIED", "", _K.DENIED, _S.PROVIDER),
        ("VPC_NOT_FOUND", "", _K.DENIED, _S.PROVIDER),
        ("INTERNAL_ERROR", "", _K.UNAVAILABLE, _S.ZONE),
        ("SOMETHING_NEW", "", _K.UNAVAILABLE, _S.ZONE),
    ],
)
def test_errors_inside_an_operation(
    gce: FakeGce, code: str, message: str, kind: RefusalKind, scope: RefusalScope
) -> None:
    gce.engine.creation_errors.append((code, message))
    result = open_provider(gce).launch(an_order())
    assert result.accepted == ()
    assert [(one.pool, one.kind, one.scope) for one in result.refused] == [(a_pool(), kind, scope)]
    assert code in result.refused[0].message
    assert gce.engine.live == {}


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind", "scope"),
    [
        (403, "quotaExceeded", "Quota 'NVIDIA_L4_GPUS' exceeded", _K.QUOTA, _S.FAMILY),
        (403, "quotaExceeded", "Quota 'GPUS_ALL_REGIONS' exceeded", _K.QUOTA, _S.PROVIDER),
        (403, "forbidden", "Required 'compute.instances.create'", _K.DENIED, _S.PROVIDER),
        (412, "conditionNotMet", "Constraint violated", _K.DENIED, _S.PROVIDER),
        (400, "invalid", "Invalid value for 'resource.name'", _K.REJECTED, _S.REGION),
        (404, "notFound", "projects/x/global/images/none was not found", _K.REJECTED, _S.REGION),
    ],
)
def test_errors_by_http(
    gce: FakeGce, status: int, reason: str, message: str, kind: RefusalKind, scope: RefusalScope
) -> None:
    gce.faults.append(LineFault(r"POST .*/instances", 1, status, reason, message))
    result = open_provider(gce).launch(an_order())
    assert [(one.pool, one.kind, one.scope) for one in result.refused] == [(a_pool(), kind, scope)]
    assert message in result.refused[0].message


def test_too_many_requests_are_the_call_s_error_so_that_the_same_is_asked_again(
    gce: FakeGce,
) -> None:
    gce.faults.append(LineFault(r"POST .*/instances", 1, 429, "rateLimitExceeded", "slow down"))
    provider = open_provider(gce)
    with pytest.raises(ProviderError, match="slow down") as refused:
        provider.launch(an_order())
    assert refused.value.kind is RefusalKind.THROTTLED
    assert len(provider.launch(an_order()).accepted) == 1


def test_what_holds_for_all_of_google_cloud_ends_the_search(gce: FakeGce) -> None:
    pools = (a_pool(), a_pool(kind="g2-standard-8"))
    gce.faults.append(LineFault(r"POST .*/instances", 2, 403, "forbidden", "no"))
    open_provider(gce).launch(an_order(*pools))
    assert len(gce.calls(r"POST .*/instances")) == 1


def test_a_quota_of_one_family_leaves_the_others(gce: FakeGce) -> None:
    pools = (a_pool(), a_pool(kind="g2-standard-8"))
    gce.faults.append(LineFault(r"POST .*/instances", 1, 403, "quotaExceeded", "A100_GPUS"))
    result = open_provider(gce).launch(an_order(*pools))
    assert [one.pool for one in result.accepted] == [pools[1]]
    assert [one.kind for one in result.refused] == [RefusalKind.QUOTA]


def test_each_zone_that_had_none_is_named(gce: FakeGce) -> None:
    pools = (a_pool("us-central1-a"), a_pool("us-central1-b"))
    gce.engine.world.room = 0
    result = open_provider(gce).launch(an_order(*pools, count=2))
    assert sorted(one.pool for one in result.refused if one.pool) == sorted(pools)
    assert {one.kind for one in result.refused} == {RefusalKind.NO_CAPACITY}


def test_a_zone_that_does_not_exist_is_said(gce: FakeGce) -> None:
    (refused,) = open_provider(gce).launch(an_order(a_pool("us-central1-z"))).refused
    assert refused.kind is RefusalKind.REJECTED
    assert "us-central1-z" in refused.message


def test_an_operation_s_status_decides_where_it_tells_no_code() -> None:
    assert refusal_of("503", "unavailable", 503).kind is RefusalKind.UNAVAILABLE
    assert refusal_of("403", "forbidden", 403).kind is RefusalKind.DENIED


def test_reads_are_repeated_for_a_bounded_time(gce: FakeGce) -> None:
    gce.faults.append(LineFault(r"GET .*/aggregated/instances", 2, 503))
    provider = open_provider(gce, request_seconds=30.0)
    assert provider.find_by_token("none") == ()
    gce.faults.append(LineFault(r"GET .*/aggregated/instances", 99, 503))
    with pytest.raises(ProviderError) as failed:
        open_provider(gce, request_seconds=0.5).find_by_token("none")
    assert failed.value.kind is RefusalKind.UNAVAILABLE


def test_a_silent_api_is_an_error_within_its_time(gce: FakeGce) -> None:
    gce.faults.append(LineFault(r"GET .*/instances", 99, hang_seconds=3.0))
    with pytest.raises(ProviderError, match="did not answer") as failed:
        open_provider(gce, request_seconds=0.3).list_deployment("us-central1")
    assert failed.value.kind is RefusalKind.UNAVAILABLE


def test_deleting_goes_on_past_an_error_and_tells_it(gce: FakeGce) -> None:
    provider = open_provider(gce)
    names = tuple(one.provider_instance_id for one in provider.launch(an_order(count=2)).accepted)
    gce.faults.append(LineFault(r"DELETE .*/instances/", 1, 403, "forbidden", "locked"))
    with pytest.raises(ProviderError, match="locked") as failed:
        provider.terminate(names)
    assert failed.value.kind is RefusalKind.DENIED
    gce.engine.advance(1)
    assert len(provider.find_by_token("lowtide-1")) == 1
    provider.terminate((*names, "lt-none", "Not A Name"))
    assert provider.find_by_token("lowtide-1") == ()


def test_expired_credentials_stop_everything(gce: FakeGce) -> None:
    gce.faults.append(LineFault(r"POST .*/instances", 9, 401, "authError", "expired"))
    with pytest.raises(ProviderError, match="credentials cannot be used") as denied:
        open_provider(gce).launch(an_order())
    assert (denied.value.kind, denied.value.scope) == (RefusalKind.DENIED, RefusalScope.PROVIDER)


def test_missing_credentials_are_said_with_what_to_do(gce: FakeGce, tmp_path: Path) -> None:
    settings = gcp_settings(
        gce, endpoint=None, credentials_file=str(tmp_path / "none.json"), request_seconds=1.0
    )
    with pytest.raises(ProviderError, match="LOWTIDE_GCP_CREDENTIALS_FILE") as denied:
        ComputeApi(settings).client("InstancesClient")
    assert denied.value.kind is RefusalKind.DENIED
    (tmp_path / "none.json").write_text('{"type": "service_account"}')
    with pytest.raises(ProviderError, match="credentials cannot be used") as denied:
        ComputeApi(settings).client("InstancesClient")
    assert denied.value.kind is RefusalKind.DENIED


def test_a_vm_left_over_by_a_failed_insert_is_deleted(gce: FakeGce) -> None:
    gce.engine.creation_errors.append(("UNSUPPORTED_OPERATION", "preempted while created"))
    gce.engine.leaves_behind = True
    provider = open_provider(gce)
    result = provider.launch(an_order())
    assert result.accepted == ()
    assert [one.kind for one in result.refused] == [RefusalKind.NO_CAPACITY]
    assert len(gce.calls(r"DELETE .*/instances/")) == 1
    assert provider.list_deployment("us-central1").machines == ()


def test_more_machines_than_the_least_are_kept_and_the_rest_refused(gce: FakeGce) -> None:
    gce.engine.world.room = 2
    result = open_provider(gce).launch(an_order(count=3, min_count=1))
    assert len(result.accepted) == 2
    assert [one.kind for one in result.refused] == [RefusalKind.NO_CAPACITY]
    shown = open_provider(gce).list_deployment("us-central1").machines
    assert {one.state for one in shown} == {MachineState.RUNNING}
