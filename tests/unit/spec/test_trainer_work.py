"""What a trainer section tells of memory and hours, against the trainer's own formulas."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.market.offer import Market
from app.domain.placement.placement import RUN_GPU_MEMORY_GB_MIN, capacity_key, need_of
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.job_spec_fields import ESTIMATE_HOURS_MAX
from app.domain.spec.trainer_work import described_work, trainer_memory_gb, why_not_described

PHOTOS: dict[str, Any] = {"model": "resnet50", "data": "/data/photos", "batch_size": 256}


def spec_of(trainer: dict[str, Any], **fields: Any) -> JobSpec:
    length = {} if "epochs" in trainer else {"steps": 1_000}
    return parse_spec({"trainer": {**length, **trainer}, **fields})


def test_a_larger_share_of_the_batch_needs_a_larger_gpu():
    whole = trainer_memory_gb(spec_of(PHOTOS))
    # NVIDIA's own ResNet-50 trains 256 in fp32 on 32 GB and not on 16 (DeepLearningExamples).
    assert 16 < whole <= 32
    for smaller in (
        {"batch_size": 128},
        {"accumulation": 4},
        {"precision": "bf16"},
        {"activation_checkpointing": True},
        {"on_oom": "adapt"},
    ):
        assert 1 < trainer_memory_gb(spec_of({**PHOTOS, **smaller})) < whole, smaller
    assert trainer_memory_gb(spec_of(PHOTOS, nodes=4)) < whole
    # An elastic gang gets machines that suffice when only its least number is left.
    assert trainer_memory_gb(spec_of(PHOTOS, nodes="2..4")) == trainer_memory_gb(
        spec_of(PHOTOS, nodes=2)
    )


@pytest.mark.parametrize(
    "change",
    [
        {"model": "acme.nets:build"},
        {"model": "timm:resnet50"},
        {"model_options": {"width": 2}},
        {"parallel": "fsdp"},
    ],
)
def test_what_the_spec_does_not_tell_asks_for_nothing(change: dict[str, Any]):
    assert trainer_memory_gb(spec_of({**PHOTOS, **change})) == 0


def test_only_a_job_that_names_no_gpu_is_kept_from_small_ones():
    def least(spec: JobSpec) -> int:
        return need_of(spec, Market.SPOT, spec.node_count).gpu_memory_gb_min

    assert least(spec_of(PHOTOS)) == trainer_memory_gb(spec_of(PHOTOS))
    assert least(spec_of(PHOTOS, resources={"gpu": "T4"})) == 0
    assert least(parse_spec({"run": "true"})) == RUN_GPU_MEMORY_GB_MIN
    assert capacity_key(spec_of(PHOTOS)) != capacity_key(spec_of({**PHOTOS, "batch_size": 8}))


def test_hours_follow_from_steps_or_from_epochs_of_data_that_is_built_in():
    by_steps = described_work(spec_of({**PHOTOS, "precision": "bf16", "steps": 450_411}))
    assert by_steps is not None
    # The worked example of docs/estimate.md.
    assert by_steps.estimate.hours == pytest.approx(13.07, rel=0.01)
    assert str(by_steps.estimate.gpu) == "A100:80GB:1"
    made: dict[str, Any] = {
        "model": "vit_base",
        "data": "synthetic",
        "synthetic_shape": [3, 224, 224],
    }
    made |= {"synthetic_samples": 100_000, "epochs": 10}
    by_epochs = described_work(spec_of(made, resources={"gpu": "H100:8"}))
    assert by_epochs is not None
    assert "700,000 samples of vit_base (10 epochs of 70,000 in batches of" in by_epochs.sentence
    assert "8 × H100 80 GB" in by_epochs.sentence
    assert described_work(spec_of({**PHOTOS, "epochs": 3})) is None
    assert described_work(parse_spec({"run": "true"})) is None


@pytest.mark.parametrize(
    ("resized", "same"),
    [
        (
            {"data": "synthetic", "synthetic_shape": [3, 64, 64], "image_size": 160},
            {"data": "synthetic", "synthetic_shape": [3, 160, 160]},
        ),
        (
            {"data": "digits", "image_size": 160},
            {"data": "synthetic", "synthetic_shape": [1, 160, 160]},
        ),
        (
            {"model": "gpt_tiny", "data": "synthetic", "synthetic_shape": [512], "image_size": 160},
            {"model": "gpt_tiny", "data": "synthetic", "synthetic_shape": [512]},
        ),
    ],
)
def test_images_of_built_in_data_count_at_the_size_that_the_model_gets(
    resized: dict[str, Any], same: dict[str, Any]
):
    whole, compared = ({"model": "resnet18", "batch_size": 256, **one} for one in (resized, same))
    assert described_work(spec_of(whole)) == described_work(spec_of(compared)) is not None
    assert trainer_memory_gb(spec_of(whole)) == trainer_memory_gb(spec_of(compared))


def test_the_job_of_the_readme_is_estimated_with_the_pauses_that_it_asks_for():
    tour = {"model": "cnn", "data": "digits", "steps": 2_000, "step_delay_seconds": 0.2}
    found = described_work(spec_of(tour, resources={"gpu": "V100"}))
    assert found is not None
    assert 400 <= found.estimate.seconds < 405
    assert "128,000 samples of cnn (2,000 steps of 64) in fp32 at " in found.sentence
    assert found.sentence.endswith("a second on 1 × V100 16 GB with 0.2s of pause after each step")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"run": "true"}, "the work of a `run` command is unknown; add `estimate: {hours:"),
        ({"trainer": {**PHOTOS, "epochs": 3}}, "of samples in /data/photos is unknown"),
        (
            {"trainer": {**PHOTOS, "epochs": 3, "model": "timm:resnet50"}},
            "the model timm:resnet50 has no cost formula; add `estimate: {hours: 2, gpu: V100}`",
        ),
        (
            {"trainer": {**PHOTOS, "steps": 3, "model_options": {"dropout": 0.1}}},
            "the model resnet50 with `model_options` has no cost formula",
        ),
    ],
)
def test_what_cannot_be_estimated_says_which_part_is_missing(spec: dict[str, Any], words: str):
    parsed = parse_spec(spec)
    assert described_work(parsed) is None
    told = why_not_described(parsed)
    assert words in told
    # Only where it would help.
    assert ("`steps` in place of `epochs`" in told) == ("samples" in told)


def test_work_of_more_than_a_year_is_counted_as_one_and_says_so():
    year = described_work(spec_of({**PHOTOS, "steps": 10**9}))
    assert year is not None
    assert year.estimate.hours == ESTIMATE_HOURS_MAX
    assert year.sentence.endswith("a second on 1 × A100 80 GB, of which 8,760 hours are counted")
    short = described_work(spec_of({**PHOTOS, "steps": 1}))
    assert short is not None
    assert short.estimate.seconds == 1
    assert "counted" not in short.sentence
