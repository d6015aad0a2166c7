"""Which image each GPU's machines boot, and what a person may say about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.machine_catalog import shipped_catalog
from app.adapters.providers.machine_images import (
    IMAGE_PROVIDERS,
    booted_hardware,
    read_named_images,
    shipped_images,
    with_images,
)
from app.domain.market.gpu_catalog import GPU_NAMES
from app.settings import SettingsError, load_settings
from tests.support.sources.source_tree import ROOT


@pytest.mark.parametrize("provider", IMAGE_PROVIDERS)
def test_every_shipped_image_runs_the_agent_and_says_where_that_is_known_from(provider: str):
    for image in shipped_images(provider).images:
        assert tuple(map(int, image.python.split("."))) >= (3, 11), image.name
        assert image.source
        assert image.driver


@pytest.mark.parametrize("provider", IMAGE_PROVIDERS)
def test_every_gpu_of_the_catalog_has_one_image_or_a_reason_why_not(provider: str):
    shipped = shipped_images(provider)
    served = [gpu for image in shipped.images for gpu in image.gpus]
    without = [gpu for missing in shipped.without_image for gpu in missing.gpus]
    assert len(set(served + without)) == len(served + without)
    assert {one.gpu for one in shipped_catalog(provider).types} <= {*served, *without}
    assert all(missing.reason and missing.source for missing in shipped.without_image)


# NVIDIA's driver installation guide, "Kernel modules": the open modules, which alone know
# Blackwell, know neither Volta nor Pascal.
@pytest.mark.parametrize(("provider", "gpus"), [("aws", {"V100"}), ("gcp", {"V100", "P100"})])
def test_gpus_that_no_image_knows_are_not_offered(provider: str, gpus: set[str]):
    catalog = shipped_catalog(provider)
    settings = _settings(provider)
    assert {one.gpu for one in catalog.types} & gpus == gpus
    offered = with_images(catalog, settings.image_for)
    assert {one.gpu for one in offered.types} == {one.gpu for one in catalog.types} - gpus
    named = _settings(provider, images=(("V100", "own-image"),))
    assert named.image_for("V100") == "own-image"
    assert {one.gpu for one in with_images(catalog, named.image_for).types} >= {"V100"}


@pytest.mark.parametrize("provider", IMAGE_PROVIDERS)
def test_an_image_of_ones_own_is_for_the_gpus_that_the_shipped_ones_serve(provider: str):
    settings = _settings(provider, image="own-image", images=(("B200", "own-blackwell"),))
    assert settings.image_for("") == "own-image"
    assert settings.image_for("A100") == "own-image"
    assert settings.image_for("B200") == "own-blackwell"
    # Whether it knows Volta only its maker can say, by naming it for that GPU.
    assert settings.image_for("V100") is None


@pytest.mark.parametrize(
    ("provider", "gpu", "changes", "containers"),
    [
        ("aws", "H100", {}, True),
        ("gcp", "H100", {}, False),
        ("gcp", "B200", {}, False),
        # What is in an image of one's own nobody here can know.
        ("gcp", "H100", {"image": "own-image"}, True),
        ("gcp", "B200", {"images": (("B200", "own-blackwell"),)}, True),
        ("gcp", "H100", {"images": (("B200", "own-blackwell"),)}, False),
    ],
)
def test_machines_run_containers_unless_their_shipped_image_lacks_docker(
    provider: str, gpu: str, changes: dict[str, Any], containers: bool
):
    kind = next(one for one in shipped_catalog(provider).types if one.gpu == gpu)
    image = _settings(provider, **changes).image_for(gpu)
    assert booted_hardware(provider, kind, image) == replace(kind.hardware, containers=containers)


def _settings(provider: str, **changes: object) -> AwsSettings | GcpSettings:
    if provider == "aws":
        return AwsSettings(regions=("us-east-1",), **changes)  # type: ignore[arg-type]
    return GcpSettings(project="p", regions=("us-central1",), **changes)  # type: ignore[arg-type]


def test_blackwell_has_the_image_that_is_known_to_run_it():
    settings = _settings("gcp")
    assert "ubuntu-accelerator-2404" in (settings.image_for("B200") or "")
    assert "common-cu129-ubuntu-2404" in (settings.image_for("L4") or "")
    assert "V100" in GPU_NAMES
    assert "Volta" in shipped_images("aws").why_not("V100")


def test_images_are_named_by_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_AWS_IMAGES", "v100=ami-1, B200 = /own/parameter")
    monkeypatch.setenv("LOWTIDE_GCP_IMAGES", "P100=projects/p/global/images/family/f")
    settings = load_settings()
    assert settings.aws_images == (("B200", "/own/parameter"), ("V100", "ami-1"))
    assert settings.gcp_images == (("P100", "projects/p/global/images/family/f"),)
    assert read_named_images("") == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("ami-1", "'ami-1' must have the form GPU=IMAGE"),
        ("V100=", "must have the form GPU=IMAGE"),
        ("p3=ami-1", "'P3' is not a GPU; write one of A100, A10G"),
        ("V100=ami-1,v100=ami-2", "names V100 twice"),
    ],
)
@pytest.mark.parametrize("variable", ["LOWTIDE_AWS_IMAGES", "LOWTIDE_GCP_IMAGES"])
def test_a_wrong_list_of_images_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert variable in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("provider", IMAGE_PROVIDERS)
def test_the_docs_name_every_image_and_every_gpu_without_one(provider: str):
    page = (ROOT / "docs/machines.md").read_text("utf-8")
    shipped = shipped_images(provider)
    for image in shipped.images:
        parts = image.name.split("/")
        assert (parts[-1] if provider == "gcp" else parts[-3]) in page
        assert image.architecture in page or provider == "gcp"
        assert all(gpu.replace("-", " ") in page for gpu in image.gpus)
    assert all(gpu in page for missing in shipped.without_image for gpu in missing.gpus)
