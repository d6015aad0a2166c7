"""`make test-cloud`: it says when it tests nothing, and tests the accounts that are named.

Those here are fakes. Not here: what must hold (`test_cloud_provider_conformance`).
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.aws.aws_fake import IMAGE_PARAMETER, open_aws_fake
from tests.support.aws.aws_parts import ENVIRONMENT
from tests.support.gce.gce_fake import open_fake_gce
from tests.support.gce.gce_fake_engine import World
from tests.support.gce.gce_fake_state import PROJECT
from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **ENVIRONMENT, **variables}
    command = [sys.executable, "-m", "tests.cloud"]
    return run_command(command, timeout=400, cwd=ROOT, env=environment)


def test_without_an_account_it_says_that_nothing_was_tested() -> None:
    ran = run()
    assert ran.returncode == 0
    assert ran.stdout.startswith("Nothing was tested: no real account is named.")
    assert "LOWTIDE_TEST_AWS_REGION" in ran.stdout
    assert "passed" not in ran.stdout


def test_an_account_without_credentials_is_an_error() -> None:
    nothing = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    ran = run(LOWTIDE_TEST_AWS_REGION="us-east-1", **nothing)
    assert ran.returncode == 2
    assert "Nothing was tested: aws: boto3 finds no credentials" in ran.stderr
    wrong = run(LOWTIDE_TEST_GCP_PROJECT="p", LOWTIDE_TEST_GCP_ZONES="us-central1-a")
    assert wrong.returncode == 2
    assert "must name two zones" in wrong.stderr


@pytest.mark.full
def test_it_runs_the_conformance_suite_and_leaves_nothing_behind() -> None:
    world = World({"us-central1": ("us-central1-a", "us-central1-b")}, ("e2-small",))
    with open_fake_gce(world) as gce, open_aws_fake() as aws:
        ran = run(
            LOWTIDE_TEST_GCP_PROJECT=PROJECT,
            LOWTIDE_TEST_GCP_ENDPOINT=gce.endpoint,
            LOWTIDE_TEST_AWS_REGION="us-east-1",
            LOWTIDE_TEST_AWS_TYPE="g5.xlarge",
            LOWTIDE_TEST_AWS_IMAGE=IMAGE_PARAMETER,
            LOWTIDE_TEST_AWS_ENDPOINT_URL=aws.url,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "22 passed" in ran.stdout
        assert len(gce.engine.all) > 5
        assert gce.engine.live == {}
        assert gce.engine.disks == {}
        assert len(aws.world.machines) > 5
        assert not any(one.lives for one in aws.world.machines.values())
