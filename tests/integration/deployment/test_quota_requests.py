"""The scripts that ask the clouds for quota, run for real on recorded answers of their CLIs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.adapters.providers.aws.machines.quotas import quota_markets
from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT

_G = "All G and VT Spot Instance Requests"
_LISTED = "list-service-quotas"
_DEFAULTS = "list-aws-default-service-quotas"
_HISTORY = "list-requested-service-quota-change-history-by-quota"
_ASKED = "request-service-quota-increase"
_REPLY = {"RequestedQuota": {"Id": "r-1", "Status": "PENDING", "DesiredValue": 16.0}}
# gcloud beta quotas preferences update --help, gcloud beta quotas info describe --help.
_GCLOUD = """#!/bin/sh
echo "$*" >>"$STUB_CALLS"
for word in "$@"; do
    case $word in
        beta | quotas | info | preferences | describe | update | lowtide-* | *-per-project*) ;;
        --service=compute.googleapis.com | --project=* | --flatten=* | --format=*) ;;
        --quota-id=* | --preferred-value=* | --dimensions=* | --email=*) ;;
        --justification=* | --allow-missing) ;;
        *) echo "unrecognized arguments: $word" >&2; exit 2 ;;
    esac
done
case $3-$4 in
    info-describe) cat "$STUB_STATE/$5" ;;
    preferences-update) echo "projects/1/locations/global/quotaPreferences/$5" ;;
    *) exit 2 ;;
esac
"""


def run(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """With the stubs first on PATH."""
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "STUB_STATE": str(folder / "state"),
        "STUB_CALLS": str(folder / "calls"),
    }
    return run_command(["sh", str(ROOT / script), *arguments], timeout=300, env=environment)


def stub(folder: Path, name: str, text: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def aws(folder: Path, *arguments: str, **answers: Any) -> tuple[int, str, list[dict[str, Any]]]:
    """(exit code, output, calls) of the script for AWS; answers by operation."""
    program = ROOT / "tests/support/aws/aws_command.py"
    stub(folder, "aws", f'#!/bin/sh\nexec {sys.executable} -P {program} "$@"\n')
    told: dict[str, Any] = {
        _LISTED: {"Quotas": [quota(0.0)]},
        _DEFAULTS: {"Quotas": []},
        _HISTORY: {"RequestedQuotas": []},
        _ASKED: _REPLY,
    }
    told |= {name.replace("_", "-"): value for name, value in answers.items()}
    (folder / "state").write_text(json.dumps(told), "utf-8")
    calls = folder / "calls"
    calls.write_text("", "utf-8")
    done = run("deploy/aws/request-quota.sh", *arguments, folder=folder)
    lines = calls.read_text("utf-8").splitlines()
    return done.returncode, done.stdout + done.stderr, [json.loads(one) for one in lines]


def quota(value: float, name: str = _G, code: str = "L-3819A6DF") -> dict[str, Any]:
    return {"QuotaName": name, "QuotaCode": code, "Value": value}


def test_a_quota_of_aws_is_asked_for_by_its_name(tmp_path: Path) -> None:
    code, told, calls = aws(tmp_path, "us-east-1", "G", "16")
    assert code == 0, told
    assert [one["operation"] for one in calls] == [_LISTED, _HISTORY, _ASKED]
    assert calls[-1] == {
        "operation": _ASKED,
        "region": "us-east-1",
        "ServiceCode": "ec2",
        "QuotaCode": "L-3819A6DF",
        "DesiredValue": 16.0,
    }
    assert "asked for 16 vCPUs: r-1\tPENDING" in told


def test_enough_quota_or_a_request_that_is_open_asks_for_nothing(tmp_path: Path) -> None:
    code, told, calls = aws(
        tmp_path, "us-east-1", "G", "16", list_service_quotas={"Quotas": [quota(64.0)]}
    )
    assert (code, [one["operation"] for one in calls]) == (0, [_LISTED])
    assert "64 vCPUs\nenough" in told
    open_request = {"Id": "r-0", "DesiredValue": 16.0, "Status": "CASE_OPENED"}
    answers = {_HISTORY: {"RequestedQuotas": [{"Status": "DENIED"}, open_request]}}
    code, told, calls = aws(tmp_path, "us-east-1", "G", "16", **answers)
    assert (code, [one["operation"] for one in calls]) == (0, [_LISTED, _HISTORY])
    assert "asked for already: r-0\t16.0\tCASE_OPENED" in told


def test_a_quota_that_was_never_raised_is_found_among_the_defaults(tmp_path: Path) -> None:
    name = "All P5 Spot Instance Requests"
    answers = {_DEFAULTS: {"Quotas": [quota(0.0, name, "L-C4BD4855")]}}
    code, told, calls = aws(tmp_path, "eu-north-1", "P5", "192", **answers)
    assert code == 0, told
    assert [one["operation"] for one in calls] == [_LISTED, _DEFAULTS, _HISTORY, _ASKED]
    assert calls[-1]["QuotaCode"] == "L-C4BD4855"
    code, told, calls = aws(tmp_path, "eu-north-1", "P6", "192")
    assert (code, len(calls)) == (1, 2)
    assert 'has no quota "All P6 Spot Instance Requests"' in told


@pytest.mark.parametrize(
    "arguments", [("us-east-1", "G"), ("us-east-1", "X", "4"), ("us-east-1", "G", "many"), ()]
)
def test_wrong_words_ask_aws_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, told, calls = aws(tmp_path, *arguments)
    assert (code, calls) == (2, [])
    assert "usage:" in told


def test_the_script_knows_the_quotas_that_the_provider_counts() -> None:
    text = (ROOT / "deploy/aws/request-quota.sh").read_text("utf-8")
    assert quota_markets()
    for name in quota_markets():
        assert f'name="{name}"' in text


def gcp(folder: Path, *arguments: str, **rows: str) -> tuple[int, str, list[str]]:
    """(exit code, output, calls) of the script for Google; rows of a quota by its id."""
    stub(folder, "gcloud", _GCLOUD)
    (folder / "state").mkdir(exist_ok=True)
    for name, text in rows.items():
        (folder / "state" / name.replace("_", "-")).write_text(text, "utf-8")
    (folder / "calls").write_text("", "utf-8")
    done = run("deploy/gcp/request-quota.sh", *arguments, folder=folder)
    calls = (folder / "calls").read_text("utf-8").splitlines()
    return done.returncode, done.stdout + done.stderr, [one for one in calls if "update" in one]


_L4 = "PREEMPTIBLE-NVIDIA-L4-GPUS-per-project-region"
_ALL = "GPUS-ALL-REGIONS-per-project"
_WORDS = ("acme", "us-central1", "L4", "4", "ops@example.com")


def test_quotas_of_google_are_asked_for_the_region_and_for_all_regions(tmp_path: Path) -> None:
    rows = {_L4: ",,1\nus-central1,,0\neurope-west4,,9\n", _ALL: ",,0\n"}
    code, told, calls = gcp(tmp_path, *_WORDS, **rows)
    assert code == 0, told
    [region, everywhere] = calls
    assert f"--quota-id={_L4} --preferred-value=4 --dimensions=region=us-central1 " in region
    assert f"--quota-id={_ALL} --preferred-value=4 --email=" in everywhere
    assert "--project=acme" in region


def test_no_quota_of_google_is_ever_lowered(tmp_path: Path) -> None:
    code, told, calls = gcp(tmp_path, *_WORDS, **{_L4: ",,8\neurope-west4,,0\n", _ALL: ",,-1\n"})
    assert (code, calls) == (0, []), told
    assert told.count("enough") == 2


def test_newer_gpus_on_demand_are_told_apart_by_their_family(tmp_path: Path) -> None:
    family = "GPUS-PER-GPU-FAMILY-per-project-region"
    rows = {family: "us-central1,NVIDIA_H100,8\nus-central1,NVIDIA_B200,0\n", _ALL: ",,64\n"}
    words = ("acme", "us-central1", "B200", "8", "ops@example.com", "on-demand")
    code, told, calls = gcp(tmp_path, *words, **rows)
    assert code == 0, told
    [asked] = calls
    assert "--dimensions=region=us-central1,gpu_family=NVIDIA_B200" in asked


def test_a_quota_that_google_does_not_show_ends_with_a_sentence(tmp_path: Path) -> None:
    code, told, calls = gcp(tmp_path, *_WORDS)
    assert (code, calls) == (1, [])
    assert f"acme has no quota {_L4}" in told
    code, told, _ = gcp(tmp_path, "acme", "us-central1", "L5", "4", "ops@example.com")
    assert (code, "usage:" in told) == (2, True)
