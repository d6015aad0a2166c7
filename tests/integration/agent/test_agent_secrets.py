"""Secrets on a machine, by whole agents: in the command's hands, and nowhere else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.adapters.providers.aws.client.secret_policy import secret_policy
from app.domain.deployment.cloud_secrets import read_cloud_name
from tests.support.agent.agent_world import World
from tests.support.agent.fake_control_plane import FakeControlPlane, wait_until
from tests.support.agent.fake_docker import FakeDocker
from tests.support.agent.fake_secret_services import ACCOUNT, REGION, FakeAwsSecrets
from trainer.agent.machine.control_plane_client import ControlPlaneClient, SecretsDelayed
from trainer.agent.secrets.attempt_secrets import AttemptSecrets, SecretsRefused, registry_of
from trainer.agent.secrets.secret_folder import SecretFolder, filesystem_of
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind
from trainer.protocol.run_config import (
    AWS_SECRETS,
    IN_MEMORY,
    CloudSecrets,
    RunConfig,
    SecretDelivery,
    SecretUse,
)

KEY = "hunter2-of-wandb"
FILE = '{"private_key":\n "hunter2-of-gcp"}\n'
USES = (SecretUse("GCP", "gcp.json"), SecretUse("WANDB_API_KEY"))
COMMAND = """
printf 'key=%s' hunter2-of; sleep 0.3; printf -- '-wandb\\n'
test "$WANDB_API_KEY" = hunter2-of-"$(echo wandb)" && echo the variable is there
cat "$GCP"
stat -c '%a %n' "$GCP" "$(dirname "$GCP")"
touch here; while [ ! -e go ]; do sleep 0.1; done
echo "RuntimeError: 401 for $WANDB_API_KEY" >&2; exit 3
"""


def with_secrets(world: World, **config: Any) -> FakeControlPlane:
    plane = world.open(**{"run": COMMAND, "secrets": USES, **config})
    plane.secrets = {"WANDB_API_KEY": KEY, "GCP": FILE}
    return plane


@pytest.fixture(autouse=True)
def nothing_left(world: World) -> Iterator[None]:
    """An agent that is killed leaves its folder, which the machine's end would take with it."""
    yield
    for agent in world.agents:
        agent.kill()
        agent.wait(timeout=60)
    folder_of(world).clear()


def folder_of(world: World) -> SecretFolder:
    return SecretFolder(world.machine_id("i-1"), lambda _: None)


def lines_of_commands() -> bytes:
    """The command line of every process that may be looked at."""
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes()
        except OSError:
            continue
    return found


def holding(root: Path, *besides: Path) -> list[Path]:
    """The files below a folder that hold a value."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return [
        path
        for path in files
        if b"hunter2-of-wandb" in path.read_bytes()
        and not any(path.is_relative_to(one) for one in besides)
    ]


def test_a_command_has_its_secrets_and_nothing_that_is_sent_or_stored_has(world: World) -> None:
    plane = with_secrets(world)
    agent = world.start()
    plane.train(1)
    workdir = world.root / "i-1" / "workdir"
    wait_until((workdir / "here").exists, plane.log_text)
    assert KEY.encode() not in lines_of_commands()
    assert (folder_of(world).path / "gcp.json").read_text() == FILE
    (workdir / "go").touch()
    ended = plane.wait_for(FactKind.TRAINER_ENDED).data
    assert ended["error"]["message"] == "RuntimeError: 401 for ***"
    wait_until(lambda: "401 for ***" in plane.log_text(), plane.log_text)
    text = plane.log_text()
    assert "key=***\n" in text
    assert "the variable is there" in text
    assert f"***\n600 {folder_of(world).path}/gcp.json\n700 {folder_of(world).path}\n" in text
    assert "hunter2" not in text
    assert not folder_of(world).path.exists(), "it is emptied when the attempt ends"
    assert plane.secrets_asked == [("i-1", 1)]
    assert plane.registrations[0].takes_secrets
    # The next attempt asks again, and gets what was set since.
    plane.secrets = {"WANDB_API_KEY": "rotated-of-wandb", "GCP": FILE}
    plane.direct(DirectiveKind.PREPARE, 2)
    plane.wait_for(FactKind.PREPARED, fence=2)
    assert plane.secrets_asked[1:] == [("i-1", 2)]
    assert holding(world.root, world.root / "command.py") == []
    plane.direct(DirectiveKind.LEAVE)
    assert agent.wait(timeout=60) == 0
    assert not folder_of(world).path.exists()


def test_in_a_container_they_come_by_memory_alone(world: World, tmp_path: Path) -> None:
    docker = FakeDocker(tmp_path / "docker")
    docker.push({"acme/train:1": "sha256:" + "a" * 64})
    plane = with_secrets(world, image="acme/train:1", setup='test -n "$WANDB_API_KEY" && echo set')
    world.start(environment=docker.environment())
    plane.train(1)
    workdir = world.root / "i-1" / "workdir"
    wait_until((workdir / "here").exists, plane.log_text)
    assert KEY not in str(docker.calls())
    assert holding(world.root, docker.root) == []
    (workdir / "go").touch()
    plane.wait_for(FactKind.TRAINER_ENDED)
    wait_until(lambda: "the variable is there" in plane.log_text(), plane.log_text)
    assert "hunter2" not in plane.log_text()
    [setup, trainer] = [call for call in docker.calls() if call[0] == "run"]
    for call in (setup, trainer):
        mount = f"source={folder_of(world).path},target=/run/lowtide-secrets,readonly"
        assert mount in " ".join(call)
    assert not folder_of(world).path.exists()


def test_an_image_is_pulled_with_the_credentials_that_no_command_gets(
    world: World, tmp_path: Path
) -> None:
    docker = FakeDocker(tmp_path / "docker")
    docker.push({"registry.acme.example/train:1": "sha256:" + "a" * 64})
    docker.require("registry.acme.example", "robot", "hunter2:of-registry")
    show = f"ls -A {folder_of(world).path}; env | grep -c hunter2; true"
    plane = world.open(image="registry.acme.example/train:1", image_secret="REGISTRY", run=show)
    plane.secrets = {"REGISTRY": "robot:hunter2"}
    world.start(environment=docker.environment())
    plane.direct(DirectiveKind.PREPARE, 1)
    refused = plane.wait_for(FactKind.PREPARATION_FAILED).data["message"]
    assert "name them with `image_secret`" in refused
    plane.secrets = {"REGISTRY": "no colon"}
    plane.direct(DirectiveKind.PREPARE, 2)
    told = plane.wait_for(FactKind.PREPARATION_FAILED, fence=2).data["message"]
    assert told == "the secret of the image must be user:password, of its registry"
    plane.secrets = {"REGISTRY": "robot:hunter2:of-registry\n"}
    plane.train(3)
    assert plane.wait_for(FactKind.TRAINER_ENDED, fence=3).data["outcome"] == "finished"
    wait_until(lambda: ".trainer.sh\n0\n" in plane.log_text(), plane.log_text)
    assert ".registry" not in plane.log_text()
    assert "hunter2" not in str(docker.calls()) + plane.log_text()


def test_docker_knows_a_registry_by_the_name_that_it_has_in_its_configuration() -> None:
    assert registry_of("train") == registry_of("acme/train:1") == "https://index.docker.io/v1/"
    assert registry_of("nvcr.io/nvidia/pytorch:25.05-py3") == "nvcr.io"
    assert registry_of("localhost:5000/a") == "localhost:5000"
    assert registry_of("train:1.2") == "https://index.docker.io/v1/"


def test_what_is_not_given_ends_the_preparation_with_its_reason(world: World) -> None:
    plane = with_secrets(world)
    plane.secrets_refusal = "The project has no secret GCP any more."
    world.start()
    plane.direct(DirectiveKind.PREPARE, 1)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED).data
    assert failed["stage"] == "secrets"
    assert failed["message"] == "The project has no secret GCP any more."
    plane.secrets_refusal, plane.secrets = "", {"GCP": FILE}
    plane.direct(DirectiveKind.PREPARE, 2)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED, fence=2).data
    assert "did not send WANDB_API_KEY" in failed["message"]
    plane.secrets = {"GCP": FILE, "WANDB_API_KEY": "x" * (600 << 10)}
    plane.direct(DirectiveKind.PREPARE, 3)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED, fence=3).data
    assert "at most 524,288 fit" in failed["message"]
    assert not folder_of(world).path.exists()


def test_what_a_cloud_has_is_read_by_the_agent_and_hidden_like_the_rest(world: World) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/data"
    policy = secret_policy([read_cloud_name("aws-sm:vision/key")], role, REGION)
    aws = FakeAwsSecrets(values={"vision/key": KEY}, policy=policy)
    show = (
        'test "$WANDB_API_KEY" = hunter2-of-"$(echo wandb)" && echo key=$WANDB_API_KEY; env; exit 3'
    )
    uses = (SecretUse("WANDB_API_KEY", source="aws-sm:vision/key"),)
    plane = world.open(run=show, secrets=uses)
    named = {"WANDB_API_KEY": "vision/key"}
    plane.cloud_secrets = (CloudSecrets(AWS_SECRETS, REGION, aws.url, named, aws.credential),)
    plane.secrets_delayed = 1
    world.start()
    plane.train(1)
    plane.wait_for(FactKind.TRAINER_ENDED)
    wait_until(lambda: "key=***\n" in plane.log_text(), plane.log_text)
    assert "hunter2" not in plane.log_text()
    for secret in aws.credential.values():
        assert secret not in plane.log_text(), "no command is given what opens it"
    assert (plane.secrets_asked, aws.asked) == ([("i-1", 1)] * 2, ["vision/key"])
    assert holding(world.root, world.root / "command.py") == []
    aws.values.clear()
    plane.direct(DirectiveKind.PREPARE, 2)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED, fence=2).data
    assert failed["stage"] == "secrets"
    assert failed["message"].startswith("WANDB_API_KEY: the secret vision/key of AWS Secrets Manag")
    assert "is not there" in failed["message"]
    aws.close()


def test_the_control_plane_is_asked_again_where_a_cloud_gave_it_nothing(tmp_path: Path) -> None:
    waits: list[float] = []
    config = RunConfig("job", "job", 1, 1, "file:///x", 1, 60.0, secrets=USES[:1])

    class RefusedClient(ControlPlaneClient):
        """Its cloud issues no credential."""

        def fetch_secrets(self, fence: int) -> SecretDelivery:
            raise SecretsDelayed("No credential for aws-sm was issued: injected.")

    folder = SecretFolder(f"i-{os.getpid()}-{tmp_path.name}", lambda _: None)
    client = RefusedClient("http://127.0.0.1:1")
    secrets = AttemptSecrets(client, folder, lambda _: None, waits.append)
    with pytest.raises(SecretsDelayed, match="injected"):
        secrets.fetch(1, config, "")
    assert waits == [1.0, 4.0]


def test_an_answer_that_is_late_leaves_the_files_of_the_next_attempt_alone(
    tmp_path: Path,
) -> None:
    folder = SecretFolder(f"i-{os.getpid()}-{tmp_path.name}", lambda _: None)
    config = RunConfig("job", "job", 1, 1, "file:///x", 1, 60.0, secrets=USES[:1])

    class LateClient(ControlPlaneClient):
        """While the first attempt waits for its answer, the second one gets its own."""

        def fetch_secrets(self, fence: int) -> SecretDelivery:
            if fence == 1:
                secrets.fetch(2, config, "")
            return SecretDelivery({"GCP": f"of attempt {fence}"})

    secrets = AttemptSecrets(LateClient("http://127.0.0.1:1"), folder, lambda _: None)
    try:
        with pytest.raises(SecretsRefused, match="attempt 2 has begun"):
            secrets.fetch(1, config, "")
        secrets.clear(1)
        assert (folder.path / "gcp.json").read_text() == "of attempt 2"
        secrets.clear(2)
        assert not folder.path.exists()
    finally:
        folder.clear()


def test_a_pull_that_ends_late_leaves_the_credentials_of_the_next_one_alone(
    tmp_path: Path,
) -> None:
    folder = SecretFolder(f"i-{os.getpid()}-{tmp_path.name}", lambda _: None)
    config = RunConfig(
        "job", "job", 1, 1, "file:///x", 1, 60.0, image="acme.example/a:1", image_secret="REGISTRY"
    )

    class Client(ControlPlaneClient):
        def fetch_secrets(self, fence: int) -> SecretDelivery:
            return SecretDelivery({"REGISTRY": f"robot:of-attempt-{fence}"})

    secrets = AttemptSecrets(Client("http://127.0.0.1:1"), folder, lambda _: None)
    try:
        first, second = (secrets.fetch(fence, config, "").registry for fence in (1, 2))
        assert first is not None
        assert second is not None
        shutil.rmtree(first, ignore_errors=True)  # as the pull of the first attempt does
        assert (second / "config.json").exists()
    finally:
        folder.clear()


def test_a_folder_that_is_on_a_disk_or_somebody_elses_is_not_used(tmp_path: Path) -> None:
    assert filesystem_of(Path(IN_MEMORY)) == "tmpfs"
    given: list[Path] = []
    on_disk = SecretFolder("i-1", given.append, tmp_path)
    if filesystem_of(tmp_path) != "tmpfs":
        with pytest.raises(OSError, match="in memory alone"):
            on_disk.open()
        assert not on_disk.path.exists()
    folder = SecretFolder(f"i-{os.getpid()}-{tmp_path.name}", given.append)
    folder.path.symlink_to(tmp_path)
    try:
        with pytest.raises(FileExistsError):
            folder.open()
    finally:
        folder.path.unlink()
    folder.open()
    written = folder.write("key", "value")
    assert written.stat().st_mode & 0o777 == 0o600
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert given == [written], "a folder that is the job's could be replaced by a link"
    folder.hand_over()
    assert given == [written, folder.path]
    folder.open()
    assert not written.exists()
    folder.clear()
