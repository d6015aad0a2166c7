"""Jobs with an image, by whole agents; docker is a stand-in that runs containers as processes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.agent.agent_world import World
from tests.support.agent.fake_control_plane import FakeControlPlane, wait_until
from tests.support.agent.fake_docker import FakeDocker
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind

FIRST, SECOND = "sha256:" + "a" * 64, "sha256:" + "b" * 64
IMAGE = "acme/train:1"


@pytest.fixture
def docker(tmp_path: Path) -> FakeDocker:
    made = FakeDocker(tmp_path / "docker")
    made.push({IMAGE: FIRST})
    return made


def ended(plane: FakeControlPlane, fence: int) -> dict[str, object]:
    return plane.wait_for(FactKind.TRAINER_ENDED, fence=fence).data


def failed_preparation(plane: FakeControlPlane) -> tuple[str, str]:
    plane.direct(DirectiveKind.PREPARE, 1)
    told = plane.wait_for(FactKind.PREPARATION_FAILED).data
    return told["stage"], told["message"]


def test_a_job_runs_in_its_image_with_its_folders(world: World, docker: FakeDocker) -> None:
    corpus = world.root / "corpus"
    corpus.mkdir()
    (corpus / "words").write_text("low tide")
    plane = world.open(
        image=IMAGE,
        shm_mb=64,
        setup="echo set up; echo once >> setups",
        run="cat $LOWTIDE_INPUT_DATA/words; cp $LOWTIDE_INPUT_DATA/words $LOWTIDE_OUTPUT_OUT/copy; "
        "echo token=$TOKEN; echo path=$MINE",
        env={"TOKEN": "it's\ntwo lines"},
        inputs={"/data": corpus.as_uri()},
        outputs={"/out": (world.root / "results").as_uri()},
    )
    world.start(environment=docker.environment(), MINE="the machine's own")
    plane.train(1)
    assert ended(plane, 1)["outcome"] == "finished", plane.log_text()
    assert plane.facts(FactKind.PREPARED)[0].data["image"] == f"acme/train@{FIRST}"
    assert (world.root / "results/job-1/copy").read_text() == "low tide"
    wait_until(lambda: "path=\n" in plane.log_text(), plane.log_text)
    assert "token=it's two lines" in plane.log_text(), "variables arrive whole"
    (setup, trainer) = [call for call in docker.calls() if call[0] == "run"]
    shown = " ".join(trainer)
    assert "--network host --pid host" in shown
    assert "--shm-size 64m" in shown
    assert "--ipc" not in trainer
    assert "--gpus" not in trainer, "this machine has none"
    assert f"source={world.root}/i-1/inputs/" in shown
    assert "target=/data,readonly" in shown
    assert "two lines" not in shown
    assert "launch-token" not in shown
    assert f"acme/train@{FIRST}" in setup
    # What setup did to the image's own files is kept for the trainer.
    assert any(part.startswith("lowtide-setup:") for part in trainer)
    assert docker.containers() == []
    plane.direct(DirectiveKind.PREPARE, 2)
    plane.wait_for(FactKind.PREPARED, fence=2)
    assert (world.root / "i-1/workdir/setups").read_text() == "once\n"
    docker.forget("lowtide-setup")
    plane.direct(DirectiveKind.PREPARE, 3)
    plane.wait_for(FactKind.PREPARED, fence=3)
    assert (world.root / "i-1/workdir/setups").read_text() == "once\nonce\n"


@pytest.mark.full
def test_a_replacement_runs_in_the_same_image_when_its_tag_has_moved(
    world: World, docker: FakeDocker
) -> None:
    plane = world.open(image=IMAGE, run="true")
    world.start(environment=docker.environment())
    plane.direct(DirectiveKind.PREPARE, 1)
    plane.wait_for(FactKind.PREPARED)
    docker.push({IMAGE: SECOND, "acme/train:old": FIRST})
    world.start("i-2", environment=docker.environment("two"))
    plane.direct(DirectiveKind.PREPARE, 2, "i-2")
    prepared = plane.wait_for(FactKind.PREPARED, "i-2").data
    assert prepared["image"] == f"acme/train@{FIRST}"
    assert [call for call in docker.calls("two") if call[0] == "pull"] == [
        ["pull", f"acme/train@{FIRST}"]
    ]
    pin = json.loads((world.root / "store/pins/image.json").read_text())
    assert pin == {"image": IMAGE, "reference": f"acme/train@{FIRST}"}


def test_a_drain_lets_what_runs_in_a_container_save(world: World, docker: FakeDocker) -> None:
    # The shell dies of the signal at once; the command below it saves, and that is waited for.
    plane = world.open(image=IMAGE, run=f"true; {sys.executable} {world.root}/command.py; echo no")
    world.start(environment=docker.environment())
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    assert docker.containers()
    plane.direct(DirectiveKind.DRAIN, 1, drain_seconds=30.0)
    assert ended(plane, 1)["outcome"] == "drained"
    told = re.compile(r"drained at (\d+)\n")
    wait_until(lambda: told.search(plane.log_text()) is not None, plane.log_text)
    drained_at = int(told.findall(plane.log_text())[0])
    assert plane.facts(FactKind.CHECKPOINT)[-1].data["step"] == drained_at
    assert docker.containers() == []
    assert world.processes() == []


def test_stops_and_restarts_end_the_container(world: World, docker: FakeDocker) -> None:
    plane = world.open(image=IMAGE, run=f"{sys.executable} {world.root}/command.py; true")
    agent = world.start(environment=docker.environment())
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    plane.direct(DirectiveKind.STOP, 1)
    assert ended(plane, 1)["outcome"] == "killed"
    assert (docker.containers(), world.processes()) == ([], [])
    plane.train(2)
    plane.wait_for(FactKind.CHECKPOINT, fence=2)
    agent.kill()
    agent.wait(timeout=60)
    assert docker.containers(), "a container outlives the agent"
    world.start(environment=docker.environment())
    assert "restarted" in str(ended(plane, 2)["error"])
    assert (docker.containers(), world.processes()) == ([], [])


@pytest.mark.full
def test_a_stalled_container_shows_its_stacks(world: World, docker: FakeDocker) -> None:
    (world.root / "stuck.py").write_text(
        "import faulthandler,signal,time,os\n"
        "faulthandler.register(signal.SIGUSR1)\n"
        "open(os.environ['LOWTIDE_PROGRESS_FILE'],'a').write('{\"type\":\"step\",\"step\":1}\\n')\n"
        "def stuck_here():\n"
        "    time.sleep(600)\n"
        "stuck_here()\n"
    )
    run = f"{sys.executable} {world.root}/stuck.py; true"
    plane = world.open(image=IMAGE, run=run, stall_timeout_seconds=4.0)
    world.start(environment=docker.environment())
    plane.train(1)
    assert ended(plane, 1)["outcome"] == "killed"
    wait_until(lambda: "stuck_here" in plane.log_text(), plane.log_text)


def test_an_exit_code_comes_out_of_a_container(world: World, docker: FakeDocker) -> None:
    plane = world.open(image=IMAGE, run="echo no such luck; exit 3")
    world.start(environment=docker.environment())
    plane.train(1)
    end = ended(plane, 1)
    assert (end["outcome"], end["exit_code"]) == ("failed", 3)


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        ("", "the registry has no such image or tag"),
        ("pull access denied for acme/train, repository does not exist", "the registry refuses"),
        ("write /var/lib/x: no space left on device", "the machine's disk is full"),
    ],
)
def test_an_image_that_cannot_be_pulled_says_why(
    world: World, docker: FakeDocker, refusal: str, told: str
) -> None:
    docker.push({})
    if refusal:
        docker.refuse(refusal)
    plane = world.open(image=IMAGE, run="true")
    world.start(environment=docker.environment())
    stage, message = failed_preparation(plane)
    assert stage == "image"
    assert message.startswith("the image acme/train:1 cannot be pulled: ")
    assert told in message


def test_a_machine_without_docker_says_so(world: World) -> None:
    plane = world.open(image=IMAGE, run="true")
    world.start(PATH=str(Path(sys.executable).parent))
    assert failed_preparation(plane) == (
        "image",
        "this machine has no docker, which a job with an image needs; use a machine image that "
        "brings it",
    )


def test_the_bundled_trainer_needs_torch_in_the_image(world: World, docker: FakeDocker) -> None:
    docker.push({"acme/bare:1": FIRST})
    trainer = {"model": "mlp", "data": "digits", "steps": 5}
    plane = world.open(image="acme/bare:1", run=None, trainer=trainer)
    world.start(environment=docker.environment())
    stage, message = failed_preparation(plane)
    assert stage == "image"
    assert "needs python3, 3.11 or newer, with torch and numpy" in message
    assert "No module named" in message


@pytest.mark.full
def test_the_bundled_trainer_trains_in_an_image(world: World, docker: FakeDocker) -> None:
    trainer = {"model": "mlp", "data": "digits", "steps": 5}
    plane = world.open(image=IMAGE, run=None, trainer=trainer)
    world.start(environment=docker.environment())
    plane.train(1)
    end = plane.wait_for(FactKind.TRAINER_ENDED, fence=1, seconds=120).data
    assert (end["outcome"], end["step"]) == ("finished", 5), plane.log_text()
