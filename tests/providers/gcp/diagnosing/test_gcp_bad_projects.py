"""Projects and clocks that are not as they should be: a typed refusal that says what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google.oauth2 import service_account

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.prices.price_data import price_data
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.gcp.prices.sku_catalog import read_unit_prices
from app.adapters.providers.gcp.provider import GcpProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.lifecycle.launch_errors import JobVerdict, rule_of
from app.ports.cloud_provider import PoolRefusal, ProviderError, RefusalKind, RefusalScope
from tests.providers.gcp.gcp_under_test import (
    PRICE_MICROUSD,
    a_pool,
    an_order,
    gcp_settings,
    open_provider,
    render,
)
from tests.providers.gcp.test_gcp_prices import NOW
from tests.support.gce.gce_fake import FakeGce, LineFault
from tests.support.gce.gce_fake_token import service_account_key

OTHERS = "0190f000-0000-7000-8000-0000000000ff"


def error_info(reason: str, service: str) -> Any:
    """google/api/error_reason.proto: how Google says why a project's call is refused."""
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"consumer": "projects/123", "service": service},
    }


def no_billing(expression: str, service: str = "compute.googleapis.com") -> LineFault:
    text = "This API method requires billing to be enabled. Please enable billing on project #123."
    details = (error_info("BILLING_DISABLED", service),)
    return LineFault(expression, 99, 403, "forbidden", text, details=details)


def no_api(expression: str, service: str) -> LineFault:
    text = f"{service} has not been used in project 123 before or it is disabled."
    details = (error_info("SERVICE_DISABLED", service),)
    return LineFault(expression, 99, 403, "accessNotConfigured", text, details=details)


def the_refusal(gce: FakeGce) -> PoolRefusal:
    (refused,) = open_provider(gce).launch(an_order()).refused
    return refused


def test_a_project_without_billing_waits_for_a_person_and_says_for_what(gce: FakeGce) -> None:
    gce.faults.append(no_billing("POST .*/instances"))
    refused = the_refusal(gce)
    assert (refused.kind, refused.scope) == (RefusalKind.DENIED, RefusalScope.PROVIDER)
    assert rule_of(refused.kind).verdict is JobVerdict.WAITS
    assert "BILLING_DISABLED" in refused.message
    assert "link a billing account to the project" in refused.message
    gce.faults[:] = [no_billing("GET .*/aggregated/instances")]
    with pytest.raises(ProviderError, match="link a billing account") as failed:
        open_provider(gce).list_deployment("us-central1")
    assert (failed.value.kind, failed.value.scope) == (RefusalKind.DENIED, RefusalScope.PROVIDER)


def test_an_api_that_is_not_enabled_is_named(gce: FakeGce) -> None:
    gce.faults.append(no_api("POST .*/instances", "compute.googleapis.com"))
    refused = the_refusal(gce)
    assert (refused.kind, refused.scope) == (RefusalKind.DENIED, RefusalScope.PROVIDER)
    assert "gcloud services enable compute.googleapis.com" in refused.message


@pytest.mark.parametrize("fault", [no_api, no_billing])
def test_the_other_apis_say_it_too(gce: FakeGce, fault: Any) -> None:
    api = ComputeApi(gcp_settings(gce))
    gce.faults.append(fault("GET /v1/services", "cloudbilling.googleapis.com"))
    with pytest.raises(ProviderError) as failed:
        read_unit_prices(api, price_data(), NOW)
    assert failed.value.kind is RefusalKind.DENIED
    gce.faults[:] = [fault("GET /storage/v1/b/", "storage.googleapis.com")]
    with pytest.raises(ProviderError) as located:
        open_provider(gce).locate_bucket("bucket")
    assert located.value.kind is RefusalKind.DENIED
    for error, service in ((failed, "cloudbilling"), (located, "storage")):
        remedy = "link a billing account" if fault is no_billing else f"enable {service}."
        assert remedy in str(error.value)


def test_a_clock_that_is_an_hour_off_is_said(gce: FakeGce) -> None:
    key = service_account_key(gce.endpoint)
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    settings = gcp_settings(gce, request_seconds=2.0)
    for hours in (-1.1, 1.1):
        gce.engine.read_clock = lambda off=hours: time.time() + off * 3_600  # type: ignore[misc]
        credentials = service_account.Credentials.from_service_account_info(key, scopes=scopes)
        provider = provider_with(gce, ComputeApi(settings, credentials))
        calls: tuple[Callable[[], object], ...] = (
            partial(provider.launch, an_order()),
            partial(provider.list_deployment, "us-central1"),
            partial(provider.find_by_token, "lowtide-1", "us-central1"),
        )
        for call in calls:
            with pytest.raises(ProviderError, match="clock") as denied:
                call()
            assert denied.value.kind is RefusalKind.DENIED
            assert denied.value.scope is RefusalScope.PROVIDER
    gce.engine.read_clock = time.time
    credentials = service_account.Credentials.from_service_account_info(key, scopes=scopes)
    provider = provider_with(gce, ComputeApi(settings, credentials))
    assert len(provider.launch(an_order()).accepted) == 1


def provider_with(gce: FakeGce, api: ComputeApi, deployment: str = OTHERS) -> GcpProvider:
    return GcpProvider(
        api.settings,
        api,
        shipped_catalog("gcp"),
        deployment_id=lambda: deployment,
        render=render,
        price_of=lambda pool: PRICE_MICROUSD[pool.market],
    )


def test_two_deployments_in_one_project_leave_each_other_alone(gce: FakeGce) -> None:
    ours, theirs = open_provider(gce), provider_with(gce, ComputeApi(gcp_settings(gce)))
    tags = {"lowtide:deployment": OTHERS}
    order = an_order(count=2)
    mine = {one.provider_instance_id for one in ours.launch(order).accepted}
    other = replace(order, client_token="lowtide-2", tags=tags)
    yours = {one.provider_instance_id for one in theirs.launch(other).accepted}
    gce.engine.add_disk("us-central1-a", "left", {"lowtide_deployment": OTHERS})
    shown = ours.list_deployment("us-central1").machines
    assert {one.provider_instance_id for one in shown} == mine
    assert ours.find_by_token("lowtide-2", "us-central1") == ()
    (policy,) = ours.list_leftovers("us-central1")
    assert policy.kind == "placement policy"
    for one in gce.engine.policies.values():
        one["creationTimestamp"] = "2020-01-01T00:00:00.000-08:00"
    theirs.terminate(tuple(yours))
    gce.engine.advance(1)
    assert len(ours.launch(replace(order, client_token="lowtide-3")).accepted) == 2
    assert len(gce.engine.policies) == 3, "their policy is theirs to remove"
    assert {vm.name for vm in gce.engine.live.values()} >= mine


def test_a_token_of_another_deployment_is_not_adopted(gce: FakeGce) -> None:
    """A copy of our database, run elsewhere, asks for the same names."""
    theirs = provider_with(gce, ComputeApi(gcp_settings(gce)))
    order = an_order()
    (machine,) = theirs.launch(replace(order, tags={"lowtide:deployment": OTHERS})).accepted
    (refused,) = open_provider(gce).launch(order).refused
    assert refused.kind is RefusalKind.REJECTED
    assert "another deployment" in refused.message
    assert [vm.name for vm in gce.engine.all] == [machine.provider_instance_id]
    assert open_provider(gce).find_by_token(order.client_token, "us-central1") == ()


def test_prices_without_billing_say_so_and_stay(gce: FakeGce) -> None:
    gce.faults.append(no_billing("GET /v1/services", "cloudbilling.googleapis.com"))
    prices = GcpPriceSource(ComputeApi(gcp_settings(gce)), shipped_catalog("gcp"))
    assert a_pool() in {offer.pool for offer in prices.offers()}
    assert prices.problem is not None
    assert "link a billing account" in str(prices.problem)
