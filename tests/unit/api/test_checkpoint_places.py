"""In which buckets a job's own checkpoints may lie."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.api.submission.data_places import DeploymentPlaces
from app.api.submission.spec_body import check_places
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import SpecError
from app.settings import SettingsError, load_settings

CALLER = Principal(UUID(int=1), "key", UUID(int=2), "default", Role.MAINTAINER)
ALLOWED = "s3://acme/team, gs://acme-models/"
JOB = "01911111-2222-7333-8444-55555555555a"


def _check(uri: str, **more: Any) -> None:
    spec = parse_spec({"run": "true", "checkpoint": {"uri": uri}})
    places = DeploymentPlaces.of(load_settings(checkpoint_buckets=ALLOWED, **more))
    nothing: Any = None
    asyncio.run(check_places(spec, CALLER, nothing, places))


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
        "s3://acme/team/%2e%2e/other",
        "s3://acme/team/%2E%2E%2Fother",
        "s3://acme/team//../other",
        "s3://acme/team/./other",
    ],
)
def test_an_address_outside_is_refused(uri: str):
    with pytest.raises(SpecError, match="checkpoint"):
        _check(uri)


def test_what_is_no_bucket_is_refused_at_the_start():
    with pytest.raises(SettingsError, match="LOWTIDE_CHECKPOINT_BUCKETS"):
        load_settings(checkpoint_buckets="/data")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3://acme/team/data", "for inputs and outputs"),
        ("s3://acme/team/data/default/mine", "for inputs and outputs"),
        ("s3://acme/team/corpus/x", "reserves for data"),
        (f"s3://acme/team/{JOB}/fences", "named after a job"),
        (f"s3://acme/team/{JOB.upper()}", "named after a job"),
    ],
)
def test_checkpoints_lie_neither_among_data_nor_in_another_jobs_folder(uri: str, words: str):
    """`<lineage>/fences/<own id>/fences/5.json` would be a fence of that lineage."""
    with pytest.raises(SpecError, match=words):
        _check(uri, data_places="s3://acme/team/corpus")


def test_no_link_and_no_other_case_leads_there(tmp_path: Path):
    root = tmp_path / "root"
    (root / JOB / "fences").mkdir(parents=True)
    (root / "link").symlink_to(root / JOB)
    roots = frozenset({root})
    for name in ("link", "link/mine", "Data/mine", "DATA", "data", JOB.upper()):
        with pytest.raises(SpecError) as error:
            _check((root / name).as_uri(), checkpoint_roots=roots)
        assert error.value.problems[0].field == "checkpoint.uri"
    assert sorted(path.name for path in root.rglob("*")) == [JOB, "fences", "link"]
    _check((root / "mine").as_uri(), checkpoint_roots=roots)


def test_a_key_that_only_looks_alike_is_another_one():
    _check("s3://acme/team/Data")
    _check("s3://acme/team/datas")
