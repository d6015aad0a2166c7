"""Resources as people write them, and the offers that have them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.adapters.providers.machine_catalog import CATALOG_PROVIDERS, shipped_catalog
from app.domain.market.gpu_choice import GpuChoice, parse_gpu_choice, parse_gpu_choices
from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.no_offer import why_none_fits
from app.domain.placement.placement import capacity_key, need_of, rank_offers
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import InvalidValue, SpecError

NOW = datetime(2031, 1, 1, tzinfo=UTC)


def _offers(dollars: dict[str, float] | None = None) -> list[tuple[Offer, None]]:
    """One spot offer of each machine type; prices by its GPU, $1 otherwise."""
    prices = dollars or {}
    return [
        (
            Offer(
                pool=Pool(provider, "r", "r-a", one.name, Market.SPOT),
                hardware=one.hardware,
                price_microusd_per_hour=round(1_000_000 * prices.get(one.gpu, 1.0)),
                on_demand_microusd_per_hour=100_000_000,
                cloud="ec2",
                quoted_at=NOW,
                price_source="test",
            ),
            None,
        )
        for provider in CATALOG_PROVIDERS
        for one in shipped_catalog(provider).types
    ]


def _spec(**resources: Any) -> Any:
    return parse_spec({"run": "x", "resources": resources})


def _fitting(dollars: dict[str, float] | None = None, **resources: Any) -> list[Offer]:
    need = need_of(_spec(**resources), Market.SPOT, 1)
    return [one.offer for one in rank_offers(_offers(dollars), need, NOW) if one.fits]


def _types(**resources: Any) -> set[str]:
    return {offer.pool.instance_type for offer in _fitting(**resources)}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("A100:80GB:8", GpuChoice("A100", 80, 8)),
        ("a100-80gb:8", GpuChoice("A100", 80, 8)),
        ("V100-32GB", GpuChoice("V100", 32, 1)),
        ("RTXPRO6000:2", GpuChoice("RTX-PRO-6000", None, 2)),
        ("rtx-pro-6000", GpuChoice("RTX-PRO-6000", None, 1)),
        ("40GB..", GpuChoice(None, 40, 1)),
        ("l40s:4", GpuChoice("L40S", None, 4)),
        ("V100:16", GpuChoice("V100", None, 16)),
    ],
)
def test_the_ways_to_write_a_gpu(written: str, expected: GpuChoice):
    assert parse_gpu_choice(written) == expected
    assert parse_gpu_choice(str(expected)) == expected


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("A1000", "did you mean 'A100'?"),
        ("H10:8", "did you mean 'H100'?"),
        ("L40", "did you mean 'L40S'?"),
        ("A100:60GB:8", "it comes with 40GB or 80GB"),
        ("A100-60GB", "it comes with 40GB or 80GB"),
        ("A100:80", "memory of a GPU without its unit; write A100:80GB"),
        ("a100:40:8", "memory of a GPU without its unit; write A100:40GB:8"),
        ("A100:60", "the number of GPUs per machine must be 1 to 16"),
        ("H100:40GB..", "a GPU name and a memory range"),
        ("TPU-9", "is not a known GPU; known: T4"),
    ],
)
def test_a_gpu_that_does_not_exist_names_the_nearest(written: str, said: str):
    with pytest.raises(InvalidValue) as refused:
        parse_gpu_choice(written)
    assert said in refused.value.message


def test_by_name_only_the_very_shape_fits():
    assert _types(gpu="A100:80GB:8") == {"p4de.24xlarge", "a2-ultragpu-8g"}
    assert _types(gpu="A100:8") == {
        "p4d.24xlarge", "p4de.24xlarge", "a2-ultragpu-8g", "a2-highgpu-8g"
    }  # fmt: skip


def test_by_need_memory_cpus_and_links_count():
    eight = _types(gpu="80GB..:8")
    assert {"p5.48xlarge", "a3-megagpu-8g", "p4de.24xlarge", "g7e.48xlarge"} <= eight
    linked = _types(gpu="80GB..:8", interconnect="nvlink")
    assert linked == _types(gpu="80GB..:8", interconnect="nvswitch")
    assert eight - linked == {"g7e.48xlarge", "g4-standard-384"}
    assert _types(gpu="80GB..:8", interconnect="tcpx") == {
        "a3-edgegpu-8g", "a3-highgpu-8g", "a3-megagpu-8g"
    }  # fmt: skip
    assert _types(gpu="80GB..:8", interconnect="rdma") == {"a3-ultragpu-8g", "a4-highgpu-8g"}
    assert _types(gpu="V100:4", interconnect="nvlink") == {"p3.8xlarge", "n1-standard-32-v100x4"}
    assert _types(gpu="T4:1", cpus="32+") == {"g4dn.8xlarge", "g4dn.16xlarge"}
    assert _types(gpu="T4:1", cpus=16, memory="128GB") == {"g4dn.8xlarge", "g4dn.16xlarge"}


def test_one_gpu_needs_no_link_inside_its_machine():
    assert "p5.4xlarge" in _types(gpu="H100:1", interconnect="nvlink")
    assert "p5.4xlarge" in _types(gpu="H100:1", interconnect="efa")
    assert "a3-highgpu-1g" not in _types(gpu="H100:1", interconnect="efa")


def test_of_several_gpus_the_cheapest_for_its_work_comes_first():
    """An A10G is expected to do about 1.5 times the work of an L4."""
    first = _fitting({"A10G": 1.0, "L4": 0.8}, gpu=["A10G:1", "L4:1"])[0]
    assert first.hardware.gpu_name == "A10G"
    first = _fitting({"A10G": 1.0, "L4": 0.5}, gpu=["A10G:1", "L4:1"])[0]
    assert first.hardware.gpu_name == "L4"
    # Where only one kind is acceptable, or none is named, the price alone decides.
    assert _fitting({"T4": 0.2})[0].hardware.gpu_name == "T4"


def test_the_reason_names_what_is_missing():
    need = need_of(_spec(gpu="T4:1", cpus="500+", memory="2TB", interconnect="efa"), Market.SPOT, 1)
    considered = rank_offers(_offers(), need, NOW)
    assert not any(one.fits for one in considered)
    whys = {one.why for one in considered if one.offer.pool.instance_type == "g4dn.xlarge"}
    assert whys == {"has 4 CPUs, 500 are needed"}
    said = why_none_fits(considered, need)
    assert "no pool has 1 × T4 with 500+ CPUs, 2000GB+ memory, efa" in said


def test_different_needs_have_different_keys():
    keys = {
        capacity_key(_spec(gpu="T4:1", **more))
        for more in ({}, {"cpus": 8}, {"memory": "64GB"}, {"interconnect": "efa"})
    }
    assert len(keys) == 4
    assert capacity_key(_spec(cpus=8)) == capacity_key(_spec(cpus="8+"))


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"cpus": "many"}, "resources.cpus: must be the least number of CPUs, like 8+"),
        ({"cpus": 0}, "between 1 and 1,024"),
        ({"cpus": True}, "like 8+"),
        ({"memory": 64}, "resources.memory: must be the least memory, like 64GB+"),
        ({"memory": "64MB"}, "like 64GB+"),
        ({"interconnect": "nvlnk"}, "did you mean 'nvlink'?"),
        ({"gpu": "A100O:8"}, "did you mean 'A100'?"),
        ({"gpus": "A100"}, "did you mean 'gpu'?"),
    ],
)
def test_what_cannot_be_read_is_said(resources: dict[str, Any], said: str):
    with pytest.raises(SpecError) as refused:
        _spec(**resources)
    assert said in str(refused.value)


def test_alternatives_of_one_gpu_are_sorted_and_single():
    assert parse_gpu_choices(["L4:1", "A10G"]) == parse_gpu_choices({"A10G": 1, "L4": 1})
    with pytest.raises(InvalidValue, match="same GPU twice"):
        parse_gpu_choices(["A100:80GB", "a100-80gb:1"])
