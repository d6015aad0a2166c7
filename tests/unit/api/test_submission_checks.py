"""What a deployment alone can tell of a spec, without one that is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.api.submission.submission_checks import _check_data, check_infra
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import SpecError
from app.settings import load_settings


def test_a_place_counts_with_its_region() -> None:
    settings = load_settings(
        providers=frozenset({"local", "aws"}),
        aws_regions=("us-east-1", "us-west-2"),
        public_url="https://lowtide.example.com",
    )
    assert set(settings.active_providers) == {"aws", "local"}

    def check(*infra: str) -> None:
        check_infra(parse_spec({"run": "true", "infra": list(infra)}).infra or (), settings)

    for places in (
        ["aws"],
        ["aws/us-west-2"],
        ["aws/us-west-2/us-west-2a"],
        ["aws/eu-west-1", "local"],
    ):
        check(*places)
    for places in (["aws/eu-west-1"], ["aws/eu-west-1/eu-west-1a"], ["aws/eu-west-1", "gcp"]):
        with pytest.raises(SpecError) as error:
            check(*places)
        assert [one.field for one in error.value.problems] == ["infra"]
    check_infra((), settings)


def _refused(active: tuple[str, ...], **spec: Any) -> str | None:
    try:
        _check_data(parse_spec(spec), active)
    except SpecError as error:
        return error.problems[0].field
    return None


def test_data_is_looked_for_where_this_machine_alone_can_have_it(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    trainer = {"model": "resnet18", "data": "/data/photos", "epochs": 1}
    assert _refused(("local",), trainer=trainer) == "trainer.data"
    assert _refused(("local",), trainer={**trainer, "data": str(there)}) is None
    # Rented machines, images, setups and inputs bring what is not here.
    assert _refused(("local", "aws"), trainer=trainer) is None
    assert _refused(("local",), trainer=trainer, image="acme/train:1") is None
    assert _refused(("local",), trainer=trainer, setup="fetch") is None
    assert _refused(("local",), trainer=trainer, inputs={"/data": there.as_uri()}) is None
    assert _refused(("local",), trainer=trainer, inputs={"/dat": there.as_uri()}) == "trainer.data"
    # What cannot be looked at here may be there for the machine, which tells.
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for unseen in (tmp_path / "loop" / "photos", tmp_path / ("x" * 300)):
        assert _refused(("local",), trainer={**trainer, "data": str(unseen)}) is None
        assert _refused(("local",), run="true", inputs={"/data": unseen.as_uri()}) is None
    # An input that is a folder of this machine is one wherever the job runs.
    gone = {"/data": (tmp_path / "gone").as_uri()}
    assert _refused(("local", "aws"), run="true", inputs=gone) == "inputs./data"
    assert _refused(("local",), run="true", inputs={"/data": "s3://acme/x"}) is None
