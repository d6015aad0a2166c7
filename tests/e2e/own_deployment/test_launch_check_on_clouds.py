"""`lowtide doctor --launch` on both fake clouds, whose machines boot by the real script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli.command_line import CommandLine
from tests.support.deployment.cloud_deployment import CloudDeployment, running_on_fake_clouds
from tests.support.deployment.control_plane import Document
from tests.support.servers.postgres import fast_folder

pytestmark = pytest.mark.full

REFUSALS_MAX = 50


@pytest.fixture(scope="module")
def clouds() -> Iterator[CloudDeployment]:
    """Both clouds, the product on them, and prices of both."""
    with fast_folder() as folder, running_on_fake_clouds(folder) as found:
        known = "SELECT DISTINCT provider FROM pools ORDER BY 1"
        both = [("aws",), ("gcp",)]
        found.plane.wait(
            lambda: [tuple(row.values()) for row in found.plane.sql(known)] == both, "prices"
        )
        yield found


def command_line(clouds: CloudDeployment, home: Path) -> CommandLine:
    key = (clouds.plane.state_dir / "admin.key").read_text("ascii").strip()
    return CommandLine(home, {"LOWTIDE_SERVER_URL": clouds.plane.url, "LOWTIDE_API_KEY": key})


def rests_on_aws(clouds: CloudDeployment) -> Iterator[bool]:
    """Whether each pool of AWS rests, as the api tells it."""
    for row in clouds.plane.get("/offers")["items"]:
        if row["pool"].startswith("aws/"):
            yield row["cool_reason"] == "denied"


def launch(clouds: CloudDeployment, home: Path, *options: str) -> Document:
    cli = command_line(clouds, home)
    ran = cli.run("doctor", "--launch", "-y", "--json", "--timeout", "3m", *options)
    assert ran.out, ran
    assert ran.exit_code == (0 if ran.json["ok"] else 1), ran
    assert clouds.living() == []
    told: Document = ran.json
    return told


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_machine_boots_by_the_real_script_and_goes_through_every_stage(
    clouds: CloudDeployment, tmp_path: Path, cloud: str
) -> None:
    told = launch(clouds, tmp_path, "--infra", cloud, "--gpu", "L4")
    assert told["ok"], told
    assert told["plan"]["pool"].startswith(f"{cloud}/")
    assert all(stage["seconds"] is not None for stage in told["stages"])


def test_an_account_without_quota_is_not_waited_for(
    clouds: CloudDeployment, tmp_path: Path
) -> None:
    """A new account's: every pool of the kind is refused, and would be in an hour."""
    clouds.aws.world.quotas["G and VT", False] = 0
    told = launch(clouds, tmp_path, "--infra", "aws", "--gpu", "L4", "--on-demand")
    rent = told["stages"][0]
    assert rent["ok"] is False
    assert "VcpuLimitExceeded" in rent["sentence"]
    assert "GPU quota" in rent["remedy"]
    assert rent["seconds"] < 150, "it did not wait for the time to be up"


def test_a_launch_that_is_denied_fails_at_once_with_the_cloud_s_sentence(
    clouds: CloudDeployment, tmp_path: Path
) -> None:
    clouds.aws.fail("CreateFleet", "UnauthorizedOperation", 403, times=REFUSALS_MAX)
    told = launch(clouds, tmp_path, "--infra", "aws", "--gpu", "L4")
    clouds.aws.world.faults.clear()
    rent, *others, end = told["stages"]
    assert (rent["stage"], rent["ok"]) == ("rent", False)
    assert "UnauthorizedOperation" in rent["sentence"]
    assert "`lowtide doctor`" in rent["remedy"]
    assert [one["ok"] for one in others] == [None] * 4
    assert (end["ok"], end["sentence"]) == (True, "nothing was rented")
    # The api makes the list of offers at most once a second.
    clouds.plane.wait(lambda: all(rests_on_aws(clouds)), "the rest of every pool")
    again = command_line(clouds, tmp_path).fails(2, "doctor", "--launch", "-y", "--infra", "aws")
    assert "after a refusal (denied); try again then" in again.errors


def test_a_bucket_that_machines_may_not_write_is_named(
    clouds: CloudDeployment, tmp_path: Path
) -> None:
    """Checkpoints lie in another bucket than the control plane's own."""
    clouds.s3.steering.withheld = {"put"}
    told = launch(clouds, tmp_path, "--infra", "gcp", "--gpu", "L4")
    clouds.s3.steering.withheld = set()
    wrong = next(one for one in told["stages"] if one["ok"] is False)
    # Its fence is written before it trains, so that it fails before a step is paid for.
    assert wrong["stage"] == "register"
    assert "fences/" in wrong["sentence"]
    assert "the machines' role" in wrong["remedy"]
    assert "preparation failed" in wrong["log"][-1]
