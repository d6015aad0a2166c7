"""Disk, shared memory, image, types, inputs and outputs: how they are written, and what refuses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.api.submission.data_places import DeploymentPlaces
from app.api.submission.spec_body import check_places
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.no_offer import why_none_fits
from app.domain.placement.placement import capacity_key, need_of, rank_offers
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.units.errors import SpecError
from app.settings import SettingsError, load_settings
from trainer.protocol.run_config import folder_variable

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIGEST = "sha256:" + "0a" * 32


def spec_of(**fields: Any) -> JobSpec:
    return parse_spec({"run": "true", **fields})


def refusal_of(**fields: Any) -> str:
    with pytest.raises(SpecError) as caught:
        spec_of(**fields)
    (problem,) = caught.value.problems
    return problem.message


def test_every_field_is_read_and_stored_in_one_form() -> None:
    spec = spec_of(
        image=f"localhost:5000/team/train:v1@{DIGEST}",
        resources={"disk": "1TB", "shm_size": "16gb"},
        instance_types=["p4d.24xlarge", "a2-highgpu-8g", "p4d.24xlarge"],
        inputs={"/data/": "s3://acme/corpus/", "/mnt/eval": "file:///srv/eval"},
        outputs={"out": "s3://acme/results", "/results": "gs://acme"},
    )
    assert (spec.resources.disk_gb, spec.resources.shm_mb) == (1_000, 16_000)
    assert spec.instance_types == ("a2-highgpu-8g", "p4d.24xlarge")
    assert spec.inputs == {"/data": "s3://acme/corpus", "/mnt/eval": "file:///srv/eval"}
    stored = spec.to_json()
    assert stored["resources"] == {"disk": "1000GB", "shm_size": "16GB"}
    assert parse_spec(stored) == spec
    assert spec_of(instance_types="p3.2xlarge").instance_types == ("p3.2xlarge",)
    assert spec_of(resources={"disk": "10500MB"}).resources.disk_gb == 11


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"image": "UP PER"}, "image: 'UP PER' is not accepted; write an image like"),
        ({"image": f"a@{DIGEST[:-1]}"}, "is not accepted"),
        ({"resources": {"disk": "big"}}, "must be a size like 500GB, not the text 'big'"),
        ({"resources": {"disk": "9GB"}}, "resources.disk: must be 10GB to 16384GB"),
        ({"resources": {"disk": 500}}, "must be a size like 500GB, not the number 500"),
        ({"resources": {"shm_size": "0GB"}}, "resources.shm_size: must be 1MB to 16000GB"),
        ({"instance_types": []}, "must name 1 to 32 types of machine"),
        ({"instance_types": ["A B"]}, "must name types like p3.2xlarge"),
        ({"inputs": ["/data"]}, "must be a mapping like {/data: s3://bucket/path}, not a list"),
        ({"inputs": {"data": "s3://acme/c"}}, "'data' must be a whole path, like /data"),
        ({"inputs": {"/data": "acme"}}, "inputs./data: 'acme' is not an address"),
        ({"inputs": {"/data": "s3://acme/../x"}}, "is not an address"),
        ({"inputs": {"/data": None}}, "nothing is not an address"),
        ({"inputs": {"/data/../etc": "s3://acme/c"}}, "is not a folder"),
        ({"inputs": {"/": "s3://acme/c"}}, "is not a folder"),
        ({"inputs": {"/usr/share/x": "s3://acme/c"}}, "'/usr/share/x' would hide a"),
        ({"inputs": {"/scratch": "s3://acme/c"}}, "would hide a system folder"),
        ({"outputs": {"/tmp": "s3://acme/c"}}, "'/tmp' would hide a system folder"),
        ({"outputs": {"..": "s3://acme/c"}}, "is not a folder"),
        ({"inputs": {"/d": "s3://acme/c", "/d/x": "s3://acme/d"}}, "'/d/x' and '/d' overlap"),
        (
            {"inputs": {"/d": "s3://acme/c"}, "outputs": {"/d/o": "s3://acme/d"}},
            "outputs: '/d/o' and '/d' overlap; keep them apart",
        ),
        (
            {"inputs": {"/a-b": "s3://acme/c", "/a_b": "s3://acme/d"}},
            "would both be LOWTIDE_INPUT_A_B; rename one",
        ),
    ],
)
def test_what_cannot_be_gets_a_sentence(fields: dict[str, Any], told: str) -> None:
    assert told in refusal_of(**fields)


def test_a_folders_variable_says_its_path() -> None:
    assert folder_variable("INPUT", "/data") == "LOWTIDE_INPUT_DATA"
    assert folder_variable("OUTPUT", "runs/best.model") == "LOWTIDE_OUTPUT_RUNS_BEST_MODEL"


# --- types of machine ---


def offer(instance_type: str, gpu: str = "V100", count: int = 1, memory_gb: int = 61) -> Offer:
    return Offer(
        pool=Pool("aws", "us-west-2", "us-west-2a", instance_type, Market.SPOT),
        hardware=Hardware(gpu, count, 16, 8, memory_gb),
        price_microusd_per_hour=900_000,
        on_demand_microusd_per_hour=3_000_000,
        cloud="aws",
        quoted_at=NOW,
        price_source="test",
        available=2,
        billing_speed=1,
    )


def test_only_the_types_asked_for_fit() -> None:
    offers = [(offer("p3.2xlarge"), None), (offer("g4dn.xlarge", "T4"), None)]
    spec = spec_of(instance_types=["g4dn.xlarge"])
    need = need_of(spec, Market.SPOT, 1)
    first, second = rank_offers(offers, need, NOW)
    assert (first.offer.pool.instance_type, first.fits) == ("g4dn.xlarge", True)
    assert (second.fits, second.why) == (
        False,
        "is a p3.2xlarge, which is not in `instance_types`",
    )
    other = replace(need, types=("p3.2xlarg",))
    assert why_none_fits(rank_offers(offers, other, NOW), other) == (
        "no pool there has machines of type p3.2xlarg; did you mean 'p3.2xlarge'"
    )
    assert capacity_key(spec) != capacity_key(spec_of())


def test_shared_memory_is_memory_of_the_machine() -> None:
    need = need_of(spec_of(resources={"shm_size": "100GB"}), Market.SPOT, 1)
    (considered,) = rank_offers([(offer("p3.2xlarge"), None)], need, NOW)
    assert considered.why == "has 61 GB of memory, 100 are needed"


# --- what the deployment says ---

CALLER = Principal(UUID(int=1), "key", UUID(int=2), "default", Role.MAINTAINER)


def check(spec: JobSpec, places: str = "", **more: Any) -> None:
    allowed = DeploymentPlaces.of(load_settings(data_places=places, **more))
    nothing: Any = None
    asyncio.run(check_places(spec, CALLER, nothing, allowed))


def test_inputs_and_outputs_lie_where_the_deployment_allows_it(tmp_path: Path) -> None:
    places = f"s3://acme/corpus, {(tmp_path / 'data').as_uri()}"
    check(spec_of(inputs={"/data": "s3://acme/corpus/v2"}), places)
    check(spec_of(outputs={"out": (tmp_path / "data/mine").as_uri()}), places)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/link").symlink_to("/etc")
    for uri in ("s3://acme/corpus2", "s3://acme", "gs://acme/corpus", tmp_path.as_uri(),
                (tmp_path / "data/link").as_uri()):  # fmt: skip
        with pytest.raises(SpecError, match="LOWTIDE_DATA_PLACES"):
            check(spec_of(inputs={"/data": uri}), places)


def test_a_refusal_lists_places_that_the_project_may_use(tmp_path: Path) -> None:
    """Of the store only the project's own folder: an address beside it would be refused, too."""
    store = (tmp_path / "store").as_uri()
    allowed = DeploymentPlaces(data={store, "s3://acme"}, own={store, "s3://acme/checkpoints"})
    nothing: Any = None
    elsewhere = spec_of(inputs={"/data": "file:///srv/elsewhere"})
    with pytest.raises(SpecError) as caught:
        asyncio.run(check_places(elsewhere, CALLER, nothing, allowed))
    listed = f"({store}/data/default, s3://acme)"
    assert listed in str(caught.value)
    inside = spec_of(outputs={"out": f"{store}/data/default/results"})
    asyncio.run(check_places(inside, CALLER, nothing, allowed))


@pytest.mark.parametrize("way_out", ["%2e%2e", ".%2E", "%2e", "a%2f.."])
def test_a_buckets_address_leads_nowhere_else(way_out: str) -> None:
    """Stores decode an address and follow its dots: `corpus/%2e%2e/x` is `x`."""
    uri = f"s3://acme/corpus/{way_out}/other"
    with pytest.raises(SpecError, match="LOWTIDE_DATA_PLACES"):
        check(spec_of(inputs={"/data": uri}), "s3://acme/corpus")
    nothing: Any = None
    kept = spec_of(checkpoint={"uri": uri})
    places = DeploymentPlaces(checkpoint_buckets={"s3://acme/corpus"})
    with pytest.raises(SpecError, match="LOWTIDE_CHECKPOINT_BUCKETS"):
        asyncio.run(check_places(kept, CALLER, nothing, places))


def test_training_data_lead_nowhere_else() -> None:
    trainer = {"model": "cnn", "data": "s3://acme/corpus/../other", "epochs": 1}
    with pytest.raises(SpecError):
        check(spec_of(run=None, trainer=trainer), "s3://acme/corpus")


def test_without_a_word_data_lie_where_checkpoints_may() -> None:
    settings = load_settings(checkpoint_roots="/srv/ckpt", checkpoint_buckets="s3://acme/team")
    assert settings.data_places == {"file:///srv/ckpt", "s3://acme/team"}
    with pytest.raises(SettingsError, match="LOWTIDE_DATA_PLACES"):
        load_settings(data_places="/srv/data")


def test_a_type_that_no_cloud_has_is_refused_with_the_nearest() -> None:
    check(spec_of(instance_types=["p3.2xlarge"]))
    check(spec_of(instance_types=["p4d.24xlarge"], resources={"gpu": "A100:40GB:8"}))
    with pytest.raises(SpecError, match=r"'p4d.24xlarg' is not a type.*mean 'p4d.24xlarge'\?"):
        check(spec_of(instance_types=["p4d.24xlarg"]))
    with pytest.raises(SpecError, match=r"p4d\.24xlarge carries 8 GPUs; say that"):
        check(spec_of(instance_types=["p4d.24xlarge"]))
