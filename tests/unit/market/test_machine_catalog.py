"""The shipped tables of GPUs and machine types, and the reader that checks such tables."""

from __future__ import annotations

import gzip
import importlib.resources
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from app.adapters.providers.machine_catalog import (
    CATALOG_PROVIDERS,
    load_catalog,
    save_catalog,
    shipped_catalog,
)
from app.domain.market.gpu_catalog import (
    CATALOG_DATE,
    GPU_MODELS,
    expected_throughput,
    model_of,
    models_of,
    relative_speed,
)
from app.domain.market.machine_catalog import make_catalog, read_catalog
from app.domain.units.errors import InvalidValue

MOTO_TYPES = importlib.resources.files("moto.ec2") / "resources/instance_types.json.gz"

# What the two clouds call the families that carry GPUs.
_FAMILIES = {
    "aws": ("g4dn", "g5", "g6", "g6e", "p3", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200"),
    "gcp": (
        "n1-standard-8-t4x1", "n1-standard-8-v100x1", "g2-", "a2-highgpu", "a2-ultragpu",
        "a3-highgpu", "a3-megagpu", "a3-ultragpu", "a4-highgpu", "g4-",
    ),
}  # fmt: skip


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(shipped_catalog("aws").to_json()))
    return document


@pytest.mark.parametrize("provider", CATALOG_PROVIDERS)
def test_the_shipped_catalog_holds_every_family_and_says_where_from(provider: str):
    catalog = shipped_catalog(provider)
    for family in _FAMILIES[provider]:
        mark = f"{family}." if provider == "aws" else family
        assert any(one.name.startswith(mark) for one in catalog.types), family
    assert catalog.source
    assert date(2026, 1, 1) <= catalog.as_of
    assert read_catalog(catalog.to_json()) == catalog


@pytest.mark.parametrize(
    ("provider", "name", "gpu", "count", "memory", "interconnect", "network", "fast", "vcpus"),
    [
        ("aws", "p4de.24xlarge", "A100", 8, 80, "nvswitch", 400, "efa", 96),
        ("aws", "p5.48xlarge", "H100", 8, 80, "nvswitch", 3200, "efa", 192),
        ("aws", "p5en.48xlarge", "H200", 8, 141, "nvswitch", 3200, "efa", 192),
        ("aws", "g6e.xlarge", "L40S", 1, 48, "pcie", 20, "", 4),
        ("aws", "p3.8xlarge", "V100", 4, 16, "nvlink", 10, "", 32),
        ("aws", "p3dn.24xlarge", "V100", 8, 32, "nvlink", 100, "efa", 96),
        ("gcp", "a3-megagpu-8g", "H100", 8, 80, "nvswitch", 200, "tcpxo", 208),
        ("gcp", "g2-standard-48", "L4", 4, 24, "pcie", 50, "", 48),
        ("gcp", "n1-standard-32-t4x4", "T4", 4, 16, "pcie", 32, "", 32),
    ],
)
def test_what_well_known_types_carry(
    provider: str, name: str, gpu: str, count: int, memory: int, interconnect: str,
    network: float, fast: str, vcpus: int,
):  # fmt: skip
    one = shipped_catalog(provider).get(name)
    assert one is not None
    assert (one.gpu, one.gpu_count, one.gpu_memory_gb) == (gpu, count, memory)
    assert (one.interconnect, one.network_gbps, one.fast_network) == (interconnect, network, fast)
    assert one.vcpus == vcpus
    assert one.hardware.interconnect == interconnect


def test_a_gpu_attached_to_a_general_type_says_what_to_ask_for():
    one = shipped_catalog("gcp").get("n1-standard-16-v100x2")
    assert one is not None
    assert (one.base_type, one.accelerator) == ("n1-standard-16", "nvidia-tesla-v100")


def test_every_gpu_is_carried_and_has_its_sources():
    carried = {
        (one.gpu, one.gpu_memory_gb)
        for provider in CATALOG_PROVIDERS
        for one in shipped_catalog(provider).types
    }
    assert carried == {(model.name, model.memory_gb) for model in GPU_MODELS}
    assert all(model.source and model.vendor for model in GPU_MODELS)
    assert date.fromisoformat(CATALOG_DATE)


def test_expected_speed_agrees_with_what_was_measured():
    """NVIDIA's NeMo guide, ViT g/14 on one DGX: 1,428 samples/s (H100) and 693 (A100 80 GB)."""
    h100, a100 = models_of("H100")[0], models_of("A100")[1]
    ratio = expected_throughput(h100).vit / expected_throughput(a100).vit
    assert ratio == pytest.approx(1_428 / 693, rel=0.2)


def test_relative_speed_counts_gpus_and_knows_its_reference():
    assert relative_speed("V100", 16) == 1.0
    assert relative_speed("v100", 16, 4) == 4.0
    assert relative_speed("Unheard-of", 12, 2) == 2.0
    assert relative_speed("H100", 80) > relative_speed("A100", 80) > relative_speed("A10G", 24)


@pytest.mark.parametrize(
    ("name", "reported", "memory"),
    [("A10G", 22_888 / 1_024, 24), ("H200", 141.0, 141), ("B200", 183_359 / 1_024, 180),
     ("A100", 40.0, 40), ("A100", 80.0, 80), ("V100", 16.0, 16), ("V100", 32.0, 32)],
)  # fmt: skip
def test_reported_memory_finds_the_variant(name: str, reported: float, memory: int):
    model = model_of(name, reported)
    assert model is not None
    assert model.memory_gb == memory
    assert model_of(name, reported * 2.3) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpu": "A100X"}, "has the unknown GPU"),
        ({"gpu_memory_gb": 17}, "which does not exist"),
        ({"gpu_count": 0}, "at least one GPU"),
        ({"gpu_count": True}, "not a whole number"),
        ({"vcpus": "8"}, "not a whole number"),
        ({"interconnect": "nvlnk"}, "not pcie or nvlink or nvswitch"),
        ({"fast_network": "wifi"}, "network 'wifi'"),
        ({"network_gbps": 0}, "no network speed"),
        ({"local_nvme_disks": 0}, "or neither"),
        ({"name": "Bad Name"}, "is not a valid name of a machine type"),
        ({"name": "p5.48xlarge"}, "listed twice"),
        ({"price": 3}, "unknown field 'price'"),
    ],
)
def test_a_wrong_entry_is_named(change: dict[str, Any], said: str):
    document = _document()
    document["types"][0].update(change)
    with pytest.raises(InvalidValue) as refused:
        read_catalog(document)
    assert said in str(refused.value)
    assert str(refused.value).startswith("aws: ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"as_of": "soon"}, "has no date"),
        ({"source": ""}, "its source"),
        ({"types": {}}, "a list `types`"),
        ({"types": []}, "lists no machine type"),
        ({"types": [3]}, "types[0] must be an object"),
        ({"types": [{}]}, "types[0] lacks name"),
    ],
)
def test_a_wrong_document_is_refused(change: dict[str, Any], said: str):
    with pytest.raises(InvalidValue) as refused:
        read_catalog({**_document(), **change})
    assert said in str(refused.value)
    with pytest.raises(InvalidValue, match="JSON object"):
        read_catalog([])


def test_a_newer_catalog_in_the_state_folder_counts(tmp_path: Path):
    shipped = shipped_catalog("gcp")
    assert load_catalog("gcp", tmp_path) == shipped
    older = make_catalog("gcp", date(2020, 1, 1), "test", shipped.types[:1])
    save_catalog(older, tmp_path)
    assert load_catalog("gcp", tmp_path) == shipped
    newer = make_catalog("gcp", date(2100, 1, 1), "test", shipped.types[:2])
    path = save_catalog(newer, tmp_path)
    assert load_catalog("gcp", tmp_path) == newer
    path.write_text("{")
    with pytest.raises(InvalidValue, match=r"cannot be used.*delete it"):
        load_catalog("gcp", tmp_path)
    with pytest.raises(LookupError):
        shipped_catalog("azure")


def test_the_shipped_types_of_aws_are_as_ec2_describes_them():
    """Against DescribeInstanceTypes as moto has recorded it; p3 had left it by then."""
    described = json.loads(gzip.decompress(MOTO_TYPES.read_bytes()))
    compared = 0
    for one in shipped_catalog("aws").types:
        told = described.get(one.name)
        if told is None:
            assert one.name.startswith("p3.")
            continue
        compared += 1
        (gpu,) = told["GpuInfo"]["Gpus"]
        disks = told.get("InstanceStorageInfo", {}).get("Disks", [])
        assert one.gpu_count == gpu["Count"], one.name
        assert model_of(one.gpu, gpu["MemoryInfo"]["SizeInMiB"] / 1_024) in models_of(one.gpu)
        assert one.vcpus == told["VCpuInfo"]["DefaultVCpus"], one.name
        assert one.memory_gb == told["MemoryInfo"]["SizeInMiB"] // 1_024, one.name
        assert (one.fast_network == "efa") is bool(told["NetworkInfo"]["EfaSupported"]), one.name
        cards = told["NetworkInfo"]["NetworkCards"]
        efa = [card["NetworkCardIndex"] for card in cards if "efa-only" in card["InterfaceTypes"]]
        assert one.network_cards == told["NetworkInfo"]["MaximumNetworkCards"], one.name
        assert list(one.efa_cards) == efa, one.name
        assert one.local_nvme_disks == sum(disk["Count"] for disk in disks), one.name
        assert one.spot is ("spot" in told["SupportedUsageClasses"]), one.name
    assert compared > 40
