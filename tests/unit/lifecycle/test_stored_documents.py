"""JSON in the rows of earlier releases is read as before, and written as before."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from app.domain.billing.rating_basis import RatingBasis
from app.domain.lifecycle.stored_documents import RatingDocument
from app.domain.market.attachments import Attachments
from app.domain.market.offer import Hardware, Market
from app.domain.placement.placement_decision import (
    DecisionVerdict,
    PlacementDecision,
    PoolVerdict,
    Unblock,
    decision_of,
    document_of,
)
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.job_spec_fields import Checkpoint, Estimate, Resources
from app.domain.spec.spec_document import (
    CheckpointDocument,
    EstimateDocument,
    ResourcesDocument,
    SpecDocument,
)
from app.domain.spec.spec_value import SpecModel
from app.domain.throughput.same_work import work_digest

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WRITTEN_AT = "2026-03-01T12:00:00+00:00"
NOT_AVAILABLE_YET = {"keep_on_failure"}
"""Fields that are refused, so that no stored spec has them."""

POOL = {
    "pool": "aws/r/z/t/spot",
    "market": "spot",
    "price_microusd_per_hour": 1,
    "on_demand_microusd_per_hour": 2,
    "quoted_at": WRITTEN_AT,
    "fits": True,
    "chosen": False,
    "why": "full",
}


def test_a_decision_is_written_key_by_key_and_read_back():
    pool = PoolVerdict(
        "aws/r/z/t/spot", Market.SPOT, 1, 2, AT, True, False, "full", 0.1, 5, 6.5, 60
    )
    decision = PlacementDecision(
        AT, DecisionVerdict.WAIT, "no_offer", "It waits.", 3, 2, AT, 1.5, 2.5, 1, 2, None,
        Unblock("A price.", 7), (pool,),
    )  # fmt: skip
    written = json.loads(json.dumps(document_of(decision)))
    assert written == {
        "decided_at": WRITTEN_AT, "verdict": "wait", "reason": "no_offer", "sentence": "It waits.",
        "fence": 3, "node_count": 2, "last_safe_at": WRITTEN_AT, "slack_seconds": 1.5,
        "work_left_seconds": 2.5, "wait_microusd": 1, "spot_microusd": 2,
        "on_demand_microusd": None,
        "unblock": {"sentence": "A price.", "microusd_per_hour": 7},
        "pools": [{**POOL, "hazard_per_hour": 0.1, "expected_microusd": 5,
                   "expected_finish_seconds": 6.5, "billing_speed": 60}],
    }  # fmt: skip
    assert decision_of(written) == decision


def test_a_decision_of_another_release_is_read():
    """Earlier ones lack what came later; a later one's keys are ignored."""
    least = {"decided_at": WRITTEN_AT, "verdict": "spot", "reason": "r", "sentence": "s"}
    assert decision_of(least) == PlacementDecision(AT, DecisionVerdict.SPOT, "r", "s")
    stored: Any = {
        **least,
        "mood": "good",
        "unblock": {"sentence": "u", "tone": 1},
        "pools": [{**POOL, "tone": 2}],
    }
    read = decision_of(stored)
    assert read.unblock == Unblock("u")
    assert read.pools == (
        PoolVerdict("aws/r/z/t/spot", Market.SPOT, 1, 2, AT, True, False, "full"),
    )


def test_hardware_without_later_keys_is_read_and_the_usual_is_not_written():
    stored: Any = {
        "gpu_name": "V100", "gpu_count": 1, "gpu_memory_gb": 16, "vcpus": 8, "memory_gb": 61,
        "of_a_later_release": 1,
    }  # fmt: skip
    plain = Hardware.from_json(stored)
    assert plain == Hardware("V100", 1, 16, 8, 61)
    del stored["of_a_later_release"]
    assert plain.to_json() == {**stored, "interconnect": "", "fast_network": ""}
    special = Hardware("V100", 1, 16, 8, 61, "nvlink", "efa", containers=False, quota="gpus")
    assert special.to_json() == {
        **stored, "interconnect": "nvlink", "fast_network": "efa", "containers": False,
        "quota": "gpus",
    }  # fmt: skip
    assert Hardware.from_json(special.to_json()) == special


def test_attachments_of_before_disks_had_a_speed_are_read_and_written_so():
    stored: Any = {
        "disk_gb": 100,
        "disk_microusd_per_gb_month": 80_000,
        "public_ip_microusd_per_hour": 5_000,
        "source": "price list",
        "captured_at": WRITTEN_AT,
    }
    slow = Attachments.from_json(stored)
    assert slow == Attachments(100, 80_000, 5_000, "price list", AT)
    assert slow.to_json() == stored
    fast: Any = {**stored, "disk_microusd_per_month": 9}
    assert Attachments.from_json(fast).disk_microusd_per_month == 9
    assert Attachments.from_json(fast).to_json() == fast


def test_a_rating_is_read_as_it_was_written():
    stored: RatingDocument = {
        "until_at": WRITTEN_AT, "run_from_at": None, "run_to_at": WRITTEN_AT, "waived": False,
        "minimum_applied": True, "price_digest": "p", "assignments_digest": "a",
        "transfers_digest": "t",
    }  # fmt: skip
    basis = RatingBasis.from_json(stored)
    assert basis == RatingBasis(AT, None, AT, False, True, "p", "a", "t")
    assert basis.to_json() == stored


@pytest.mark.parametrize(
    ("spec", "digest"),
    [
        (
            {"name": "a", "trainer": {"model": "mlp", "data": "digits", "epochs": 2,
                                      "batch_size": 8}},
            "d2f5e77fb9c135862b2e4d30d2081688b38925a026b03a5a73992b89311205d6",
        ),
        (
            {"run": "python train.py", "image": "ubuntu:22.04"},
            "079dfb37e8377b616508efc459de10c163d0847724390be3c3e0d95388ec5407",
        ),
        ({}, "5f37ac5de3da3871e6b92c40367e103c179f09bf60e35f6929fa40246e73c4fe"),
    ],
)  # fmt: skip
def test_the_digest_of_a_jobs_work_stays_that_of_earlier_rows(spec: SpecDocument, digest: str):
    """Attempts are compared by it: another digest would forget all that was measured."""
    assert work_digest(UUID(int=7), spec) == digest


@pytest.mark.parametrize(
    ("model", "document"),
    [
        (JobSpec, SpecDocument),
        (Resources, ResourcesDocument),
        (Checkpoint, CheckpointDocument),
        (Estimate, EstimateDocument),
    ],
)
def test_a_stored_spec_has_the_keys_of_the_fields(model: type[SpecModel], document: Any):
    written = {field.alias or name for name, field in model.model_fields.items()}
    assert set(document.__annotations__) == written - NOT_AVAILABLE_YET


def test_a_spec_with_every_key_is_stored_in_the_types_that_are_declared():
    """Durations, sizes and money are texts; counts are numbers."""
    stored = parse_spec(
        {
            "name": "a", "project": "p", "run": "x", "setup": "y", "nodes": "2..4",
            "workdir": f"sha256:{'0' * 64}",
            "resources": {"gpu": ["H100:8"], "cpus": "8+", "memory": "64GB", "disk": "500GB",
                          "shm_size": "16GB", "interconnect": "nvlink"},
            "market": "auto", "infra": ["aws/us-east-1"], "deadline": "36h",
            "estimate": {"hours": 3, "gpu": "H100:8", "nodes": 2}, "budget_usd": 25.5,
            "max_duration": "2h", "max_wait": "1h", "retry_on_exit_codes": [3],
            "checkpoint": {"uri": "s3://bucket/x", "interval": "5m"}, "env": {"A": "b"},
            "env_visible": True, "secrets": ["A_KEY", {"name": "B_KEY", "file": "b.json"}],
            "labels": {"x": "y"}, "image": "ubuntu:22.04", "instance_types": ["p4d.24xlarge"],
            "image_secret": "REGISTRY",
            "inputs": {"/data": "s3://bucket/y"}, "outputs": {"out": "s3://bucket/z"},
            "notify": ["team"],
        }
    ).to_json()  # fmt: skip
    assert set(stored) == set(SpecDocument.__annotations__) - {"trainer"}
    assert set(stored["resources"]) == set(ResourcesDocument.__annotations__)
    assert (stored["budget_usd"], stored["deadline"], stored["nodes"]) == ("25.50", "36h", "2..4")
    texts = ("max_duration", "max_wait", "patience", "stall_timeout")
    whole: dict[str, object] = {**stored}
    assert [type(whole[key]) for key in texts] == [str] * 4
    assert all(type(value) is str for key, value in stored["resources"].items() if key != "gpu")
    assert (stored["checkpoint"]["keep"], stored["estimate"]["hours"]) == (3, 3.0)
