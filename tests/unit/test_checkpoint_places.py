"""In which buckets a job's own checkpoints may lie."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.api.spec_body import check_places
from app.domain.errors import SpecError
from app.domain.job_spec import parse_spec
from app.settings import SettingsError, load_settings

ALLOWED = "s3://acme/team, gs://acme-models/"


def _check(uri: str) -> None:
    spec = parse_spec({"run": "true", "checkpoint": {"uri": uri}})
    buckets = load_settings(checkpoint_buckets=ALLOWED).checkpoint_buckets
    nothing: Any = None
    asyncio.run(check_places(spec, "default", nothing, (), buckets))


@pytest.mark.parametrize(
    "uri", ["s3://acme/team", "s3://acme/team/mine", "gs://acme-models", "gs://acme-models/a/b"]
)
def test_an_address_inside_is_taken(uri: str):
    _check(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://acme",
        "s3://acme/teams",
        "s3://acme/other",
        "s3://acme-models/a",
        "gs://acme-models-2/a",
        "s3://acme/team/../other",
    ],
)
def test_an_address_outside_is_refused(uri: str):
    with pytest.raises(SpecError, match="checkpoint"):
        _check(uri)


def test_what_is_no_bucket_is_refused_at_the_start():
    with pytest.raises(SettingsError, match="LOWTIDE_CHECKPOINT_BUCKETS"):
        load_settings(checkpoint_buckets="/data")
