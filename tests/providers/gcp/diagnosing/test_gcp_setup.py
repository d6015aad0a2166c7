"""From settings to a working provider; what a check of the set-up finds; when gcp stays off."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from sqlalchemy import Engine

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.diagnosing.permission_checks import (
    ENDING_ROLE_FILE,
    NEEDED,
    ROLE_FILE,
    check_permissions,
)
from app.adapters.providers.gcp.provider import GcpProvider
from app.adapters.providers.machine_images import shipped_images
from app.adapters.system_entropy import SystemEntropy
from app.bootstrap import NoWakeups, build_runtime
from app.orchestration.access.first_use import prepare_first_use
from app.ports.cloud_provider import LaunchOrder, PoolBid, ProviderError, RefusalKind
from app.ports.provider_diagnosis import CheckResult, MachineTypeSource, ProviderDiagnosis
from app.settings import Settings, SettingsError, load_settings
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.providers.gcp.gcp_under_test import a_pool, gcp_settings, open_provider
from tests.support.gce.gce_fake import FakeGce, LineFault
from tests.support.gce.gce_fake_state import PROJECT
from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT

_BASE = f"/compute/v1/projects/{PROJECT}"
PUBLIC = "https://lowtide.example.com"


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """A database in which the deployment has its id."""
    begin = PostgresUnitOfWorkFactory(engine, NoWakeups())
    prepare_first_use(begin, SystemEntropy(), lambda key: None)
    return engine


def settings_for(gce: FakeGce, tmp_path: Path, **changes: Any) -> Settings:
    given = {
        "state_dir": tmp_path,
        "providers": "gcp",
        "public_url": PUBLIC,
        "gcp_project": PROJECT,
        "gcp_regions": "us-central1, europe-west4",
        "gcp_endpoint": gce.endpoint,
        "gcp_catalog_url": gce.endpoint,
    }
    return load_settings(**{**given, **changes})


def test_the_worker_s_runtime_rents_with_the_boot_script_and_its_deployment_s_id(
    gce: FakeGce, engine: Engine, tmp_path: Path
) -> None:
    runtime = build_runtime(settings_for(gce, tmp_path), role="worker", engine=engine)
    provider, pool = runtime.providers["gcp"], a_pool()
    assert provider.regions() == ("europe-west4", "us-central1")
    order = LaunchOrder(
        client_token="lowtide-1",
        count=1,
        min_count=1,
        market=pool.market,
        bids=(PoolBid(pool, None),),
        user_data={"LOWTIDE_CONTROL_URL": PUBLIC, "LOWTIDE_LAUNCH_TOKEN": "one-time"},
    )
    (machine,) = provider.launch(order).accepted
    (vm,) = gce.engine.live.values()
    script = vm.body["metadata"]["items"][0]["value"]
    assert script.startswith("#!/bin/sh\n")
    assert "export LOWTIDE_LAUNCH_TOKEN=one-time\n" in script
    assert "export LOWTIDE_NOTICE_SECONDS=120\n" in script
    with runtime.begin() as uow:
        deployment = str(uow.operations.deployment_id())
    assert vm.body["labels"]["lowtide_deployment"] == deployment
    (listed,) = provider.list_deployment("us-central1").machines
    assert listed.provider_instance_id == machine.provider_instance_id
    offers = runtime.price_sources["gcp"].offers()
    assert {offer.pool.provider for offer in offers} == {"gcp"}


def test_the_highest_price_is_kept_against_the_price_source(
    gce: FakeGce, engine: Engine, tmp_path: Path
) -> None:
    runtime = build_runtime(settings_for(gce, tmp_path), role="worker", engine=engine)
    price = {o.pool: o for o in runtime.price_sources["gcp"].offers()}[a_pool()]
    bid = PoolBid(a_pool(), price.price_microusd_per_hour - 1)
    order = LaunchOrder("lowtide-1", 1, 1, a_pool().market, (bid,))
    result = runtime.providers["gcp"].launch(order)
    assert [one.kind for one in result.refused] == [RefusalKind.PRICE_TOO_LOW]
    assert gce.engine.all == []


def test_user_data_that_no_script_can_hold_is_rejected(
    gce: FakeGce, engine: Engine, tmp_path: Path
) -> None:
    runtime = build_runtime(settings_for(gce, tmp_path), role="worker", engine=engine)
    order = LaunchOrder("lowtide-1", 1, 1, a_pool().market, (PoolBid(a_pool(), None),))
    with pytest.raises(ProviderError, match="LOWTIDE_CONTROL_URL is missing") as refused:
        runtime.providers["gcp"].launch(order)
    assert refused.value.kind is RefusalKind.REJECTED


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"public_url": None}, "set LOWTIDE_PUBLIC_URL to the https:// address"),
        ({"public_url": "http://plain.example.com"}, "only report over https"),
        ({"gcp_project": None}, "set LOWTIDE_GCP_PROJECT"),
        ({"gcp_zones": "asia-east1-a"}, "asia-east1-a of LOWTIDE_GCP_ZONES lies in none"),
    ],
)
def test_what_is_missing_keeps_gcp_off_and_is_said(
    gce: FakeGce, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    settings = settings_for(gce, tmp_path, providers="local,gcp", **changes)
    assert settings.active_providers == ("local",)
    assert said in settings.provider_problems["gcp"]
    alone = settings_for(gce, tmp_path, **changes)
    with pytest.raises(SettingsError, match="gcp is off"):
        build_runtime(alone, role="worker")


@pytest.mark.parametrize(
    ("name", "value"),
    [("gcp_max_run_seconds", 29), ("gcp_notice_seconds", 60), ("gcp_disk_gb", 1)],
)
def test_a_value_out_of_bounds_names_its_variable(
    gce: FakeGce, tmp_path: Path, name: str, value: int
) -> None:
    with pytest.raises(SettingsError, match=f"LOWTIDE_{name.upper()}={value}"):
        settings_for(gce, tmp_path, **{name: value})


def test_settings_load_no_client_of_google() -> None:
    code = "import app.settings, app.bootstrap, sys; print(*sorted(sys.modules))"
    done = run_command([sys.executable, "-c", code], timeout=300, cwd=ROOT, check=True)
    assert [one for one in done.stdout.split() if one.startswith("google")] == []


def with_documents(gce: FakeGce) -> None:
    """A project in which everything is as it should be."""
    images = [f"/compute/v1/{one.name}" for one in shipped_images("gcp").images]
    assert len(images) == 2
    gce.documents.update(
        {
            _BASE: {"name": PROJECT, "quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": 8}]},
            f"{_BASE}/regions/us-central1": {
                "quotas": [{"metric": "PREEMPTIBLE_NVIDIA_A100_GPUS", "limit": 8, "usage": 2}]
            },
            f"{_BASE}/regions/us-central1/subnetworks/gpu": {
                "ipCidrRange": "10.0.0.0/20",
                "privateIpGoogleAccess": True,
            },
            **{one: {"name": "image-1", "diskSizeGb": "50"} for one in images},
        }
    )


def api_of(gce: FakeGce) -> ComputeApi:
    return ComputeApi(gcp_settings(gce), AnonymousCredentials())


def diagnosed(gce: FakeGce) -> dict[str, CheckResult]:
    provider = open_provider(
        gce, regions=("us-central1",), subnetwork="regions/{region}/subnetworks/gpu"
    )
    assert isinstance(provider, ProviderDiagnosis)
    return {finding.name: finding for finding in provider.diagnose()}


def test_a_good_set_up_has_no_findings_against_it(gce: FakeGce) -> None:
    with_documents(gce)
    found = diagnosed(gce)
    assert [one for one in found.values() if not one.ok] == []
    assert "a100 2/8" in found["quota us-central1"].sentence
    assert [one for one in found.values() if one.warns] == []
    assert list(found) == [
        "clock", "project", "permissions", "machines' account", "quota us-central1",
        "subnet us-central1", "image", "image B200", "prices",
    ]  # fmt: skip
    assert gce.calls("POST .*/instances") == []


@pytest.mark.parametrize(
    ("path", "document", "name", "said"),
    [
        (_BASE, {"quotas": [{"metric": "GPUS_ALL_REGIONS"}]}, "project", "GPUS_ALL_REGIONS is 0"),
        (
            f"{_BASE}/regions/us-central1/subnetworks/gpu",
            {"ipCidrRange": "10.0.0.0/20"},
            "subnet us-central1",
            "private access",
        ),
        (f"{_BASE}/regions/us-central1/subnetworks/gpu", None, "subnet us-central1", "notFound"),
        (f"{_BASE}/regions/us-central1", None, "quota us-central1", "notFound"),
    ],
)
def test_each_thing_that_is_wrong_is_found_with_a_remedy(
    gce: FakeGce, path: str, document: Any, name: str, said: str
) -> None:
    with_documents(gce)
    if document is None:
        del gce.documents[path]
    else:
        gce.documents[path] = document
    found = diagnosed(gce)[name]
    assert not found.ok
    assert said in found.sentence
    assert found.remedy


def test_the_guide_shows_the_line_that_a_region_gets(gce: FakeGce) -> None:
    with_documents(gce)
    rows = [{"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 4}]
    gce.documents[f"{_BASE}/regions/us-central1"] = {"quotas": rows}
    line = diagnosed(gce)["quota us-central1"].sentence
    guide = (ROOT / "docs/gcp.md").read_text("utf-8")
    assert f"✓ quota us-central1   {line}\n" in guide


def test_the_permissions_asked_about_are_those_of_the_role() -> None:
    roles = [json.loads((ROOT / one).read_text("utf-8")) for one in (ROLE_FILE, ENDING_ROLE_FILE)]
    assert sorted(one for role in roles for one in role["permissions"]) == list(NEEDED)


def test_each_missing_permission_is_named(gce: FakeGce) -> None:
    with_documents(gce)
    for permission in NEEDED:
        gce.withheld = {permission}
        found = check_permissions(api_of(gce))
        assert not found.ok
        assert found.sentence == f"missing in {PROJECT}: {permission}"
        assert ROLE_FILE in found.remedy
    gce.withheld = {*NEEDED, "iam.serviceAccounts.actAs"}
    told = diagnosed(gce)
    assert f"and {len(NEEDED) - 8} more" in told["permissions"].sentence
    account = told["machines' account"]
    assert "missing: iam.serviceAccounts.actAs on machines@" in account.sentence
    assert "roles/iam.serviceAccountUser" in account.remedy


def test_permissions_that_cannot_be_asked_for_are_worth_a_word(gce: FakeGce) -> None:
    with_documents(gce)
    text = "Cloud Resource Manager API has not been used in project 1 before or it is disabled."
    gce.faults.append(LineFault("testIamPermissions", 2, 403, "accessNotConfigured", text))
    found = diagnosed(gce)
    for name in ("permissions", "machines' account"):
        assert (found[name].ok, found[name].warns) == (True, True)
        assert "enable" in found[name].remedy
    assert text in found["permissions"].sentence
    enable = "gcloud services enable cloudresourcemanager.googleapis.com"
    assert enable in found["permissions"].sentence


@pytest.mark.parametrize(
    ("quotas", "said", "warns"),
    [
        ({"PREEMPTIBLE_NVIDIA_L4_GPUS": 4, "NVIDIA_L4_GPUS": 1}, "l4 0/4; those", False),
        ({"NVIDIA_T4_GPUS": 4, "PREEMPTIBLE_NVIDIA_T4_GPUS": 0}, "t4 0/4 (of standard", False),
        ({"CPUS": 24, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}, "no GPU quota is listed", True),
    ],
)
def test_quotas_that_count_for_spot(
    gce: FakeGce, quotas: dict[str, int], said: str, warns: bool
) -> None:
    """Standard quota serves spot too; of H200 and B200 the API tells nothing, so nothing fails."""
    with_documents(gce)
    rows = [{"metric": metric, "limit": limit} for metric, limit in quotas.items()]
    gce.documents[f"{_BASE}/regions/us-central1"] = {"quotas": rows}
    found = diagnosed(gce)["quota us-central1"]
    assert (found.ok, found.warns) == (True, warns)
    assert said in found.sentence
    assert "H200, B200" in found.sentence
    assert "refused" not in found.sentence


@pytest.mark.parametrize(
    ("reason", "message", "remedy"),
    [
        ("billingNotEnabled", "This API method requires billing to be enabled.", "linkedaccount"),
        ("accessNotConfigured", "Compute Engine API has not been used.", "gcloud services enable"),
        ("forbidden", "Required 'compute.projects.get' permission", "role.json"),
    ],
)
def test_a_project_that_is_not_ready_is_one_line(
    gce: FakeGce, reason: str, message: str, remedy: str
) -> None:
    gce.faults.append(LineFault(rf"GET {_BASE}$", 9, 403, reason, message))
    found = diagnosed(gce)
    assert [one.name for one in found.values() if not one.ok] == ["project"]
    assert list(found) == ["clock", "project"]
    assert message in found["project"].sentence
    assert remedy in found["project"].remedy


def test_every_image_that_a_launch_could_ask_for_is_looked_at(gce: FakeGce) -> None:
    with_documents(gce)
    own = f"projects/{PROJECT}/global/images/own"
    assert diagnosed(gce)["image B200"].sentence.endswith(", for B200, RTX-PRO-6000")
    gce.documents[f"/compute/v1/{own}"] = {"name": "own", "diskSizeGb": "120"}
    images = (("B200", own), ("V100", f"{own}-misspelt"))
    found = {one.name: one for one in open_provider(gce, images=images).diagnose()}
    assert found["image"].ok
    assert found["image RTX-PRO-6000"].ok
    assert found["image B200"].sentence == "own needs 120 GB, disks have 100"
    assert f"{own}-misspelt: notFound" in found["image V100"].sentence
    assert found["image V100"].remedy == "set LOWTIDE_GCP_IMAGES"
    del gce.documents[f"/compute/v1/{shipped_images('gcp').images[1].name}"]
    assert not diagnosed(gce)["image B200"].ok, "the family for Blackwell is not there"


@pytest.mark.parametrize(
    ("key", "ok"),
    [(f"projects/{PROJECT}/locations/us-central1/keyRings/r/cryptoKeys/k", True), ("k", False)],
)
def test_a_key_of_one_s_own_has_a_whole_name(gce: FakeGce, key: str, ok: bool) -> None:
    with_documents(gce)
    found = {one.name: one for one in open_provider(gce, kms_key=key).diagnose()}
    assert found["key"].ok is ok


def test_a_clock_an_hour_off_is_told(gce: FakeGce) -> None:
    with_documents(gce)
    gce.ahead_seconds = -3_600
    found = diagnosed(gce)["clock"]
    assert not found.ok
    assert "behind this machine" in found.sentence


def test_the_types_that_zones_have_replace_what_was_shipped(gce: FakeGce) -> None:
    provider: GcpProvider = open_provider(gce, zones=("us-central1-a",), regions=("us-central1",))
    assert isinstance(provider, MachineTypeSource)
    gce.documents[f"{_BASE}/aggregated/machineTypes"] = {
        "items": {
            "zones/us-central1-a": {
                "machineTypes": [
                    machine_type("a2-highgpu-1g", 14, 96, 1),
                    machine_type("a2-highgpu-16g", 96, 1_360, 16),
                    machine_type("x9-new-1g", 8, 64, 1),
                    {"name": "n1-standard-8", "guestCpus": 8, "memoryMb": 30 * 1024},
                    {"name": "e2-small", "guestCpus": 2, "memoryMb": 2_048},
                ]
            },
            "zones/us-central1-b": {"machineTypes": [machine_type("g2-standard-8", 8, 32, 1)]},
        }
    }
    found = {one.name: one for one in provider.machine_types()}
    assert sorted(found) == [
        "a2-highgpu-16g",
        "a2-highgpu-1g",
        "n1-standard-8-p100x1",
        "n1-standard-8-t4x1",
        "n1-standard-8-v100x1",
    ]
    assert (found["a2-highgpu-1g"].vcpus, found["a2-highgpu-1g"].memory_gb) == (14, 96)
    assert found["a2-highgpu-16g"].gpu_count == 16
    assert found["a2-highgpu-16g"].interconnect == "nvswitch"


def machine_type(name: str, vcpus: int, memory_gb: int, gpus: int) -> Any:
    accelerators = [{"guestAcceleratorType": "nvidia", "guestAcceleratorCount": gpus}]
    return {
        "name": name,
        "guestCpus": vcpus,
        "memoryMb": memory_gb * 1024,
        "accelerators": accelerators,
    }
