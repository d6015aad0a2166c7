"""The whole agent as a process of its own, against a control plane and a metadata server."""

from __future__ import annotations

import io
import json
import re
import socket
import sys
import tarfile
from typing import Any

import pytest

from tests.support.agent.agent_world import COMMAND, PORTS_EACH, World
from tests.support.agent.fake_control_plane import FakeControlPlane, digest_of, wait_until
from tests.support.servers.free_port import free_port
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind, Peer


def last_outcome(plane: FakeControlPlane, fence: int, machine: str = "i-1") -> dict[str, Any]:
    return plane.wait_for(FactKind.TRAINER_ENDED, machine, fence).data


def kinds(plane: FakeControlPlane) -> list[FactKind]:
    hidden = (FactKind.PHASE, FactKind.METRICS)
    return [fact.kind for _, fact in plane.told if fact.kind not in hidden]


def drained_step(plane: FakeControlPlane) -> int:
    """The step at which the first trainer said that it drained, once its line has come."""
    told = re.compile(r"drained at (\d+)\n")
    wait_until(lambda: told.search(plane.log_text()) is not None, plane.log_text)
    return int(told.findall(plane.log_text())[0])


def test_trains_to_the_end_and_leaves(world: World) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as packed:
        member = tarfile.TarInfo("train.py")
        member.size = len(COMMAND.encode())
        packed.addfile(member, io.BytesIO(COMMAND.encode()))
    digest = digest_of(archive.getvalue())
    plane = world.open(
        workdir=digest,
        setup="echo once >> setup-count; echo setting up",
        run=f"env > environment; exec {sys.executable} train.py",
        env={"TOTAL": "25", "FINAL": "1", "MINE": "yes"},
    )
    plane.workdirs[digest] = archive.getvalue()
    plane.not_known_yet = 1
    agent = world.start()
    plane.train(1)
    assert last_outcome(plane, 1)["outcome"] == "finished"
    assert kinds(plane)[-2:] == [FactKind.COMPLETION, FactKind.TRAINER_ENDED]
    final = plane.facts(FactKind.CHECKPOINT)[-1].data
    assert (final["step"], final["final"], final["metrics"]) == (26, True, {"loss": 0.5})
    points = [point for fact in plane.facts(FactKind.METRICS) for point in fact.data["points"]]
    assert points[-1]["step"] == 25
    assert points[-1]["loss"] == pytest.approx(0.04)
    phases = [fact.data["phase"] for fact in plane.facts(FactKind.PHASE)]
    assert phases[:4] == ["boot", "setup", "restore", "idle"]
    assert "train" in phases
    variables = (world.root / "i-1" / "workdir" / "environment").read_text().splitlines()
    assert "MINE=yes" in variables
    assert "LOWTIDE_FENCE=1" in variables
    assert "WANDB_RUN_ID=job-1" in variables
    assert "LOWTIDE_NUM_NODES=1" in variables
    assert not any("launch-token" in line or "credential" in line for line in variables)
    # A second attempt on the kept machine: set up once, and nothing left to train.
    plane.direct(DirectiveKind.PREPARE, 2)
    again = plane.wait_for(FactKind.PREPARED, fence=2).data
    assert again["parent"]["step"] == 26
    assert again["final"] is True
    assert plane.wait_for(FactKind.COMPLETION, fence=2).data["step"] == 26
    assert (world.root / "i-1" / "workdir" / "setup-count").read_text() == "once\n"
    plane.direct(DirectiveKind.LEAVE)
    assert agent.wait(timeout=60) == 0
    assert plane.facts(FactKind.LEAVING)
    text = plane.log_text()
    assert "setting up" in text
    assert "starts at 0" in text
    assert "was once at None" in text
    assert "is committed" in text


def test_an_agent_that_is_ended_before_it_is_answered_ends_well(world: World) -> None:
    world.open()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        agent = world.start(LOWTIDE_CONTROL_URL=url)
        asked, _ = silent.accept()
        with asked:
            agent.terminate()
            assert agent.wait(timeout=60) == 0


@pytest.mark.parametrize("cloud", ["ec2", "gce"])
def test_a_notice_drains_commits_and_the_next_attempt_continues(world: World, cloud: str) -> None:
    plane = world.open()
    world.start(cloud=cloud)
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    if cloud == "ec2":
        told = {"action": "terminate", "time": "2030-01-01T00:00:00Z"}
        world.metadata["i-1"].arm("spot/instance-action", {**told, "action": "hibernate"})
    else:
        world.metadata["i-1"].set_value("preempted", "TRUE")
    ended = last_outcome(plane, 1)
    assert ended["outcome"] == "drained"
    assert ended["drain_cause"] == "notice"
    order = kinds(plane)
    after = order[order.index(FactKind.NOTICE) + 1 :]
    # Nothing is left to save where the notice meets a step that was just saved; two commits come
    # after it where such a save was still on its way.
    assert after[-1] is FactKind.TRAINER_ENDED
    assert set(after[:-1]) <= {FactKind.CHECKPOINT}, after
    drained_at = plane.facts(FactKind.CHECKPOINT)[-1].data["step"]
    assert drained_at == ended["step"]
    world.start("i-2")
    plane.train(2, "i-2")
    wait_until(lambda: f"starts at {drained_at}" in plane.log_text(), plane.log_text)
    parent = plane.facts(FactKind.PREPARED, "i-2")[0].data["parent"]
    assert (parent["fence"], parent["step"]) == (1, drained_at)


def test_a_shutdown_of_the_system_drains_commits_and_ends_the_agent(world: World) -> None:
    plane = world.open()
    agent = world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    agent.terminate()
    assert agent.wait(timeout=60) == 0
    order = kinds(plane)
    assert order[-2:] == [FactKind.TRAINER_ENDED, FactKind.LEAVING]
    assert plane.facts(FactKind.NOTICE)[0].data["action"] == "shutdown"
    ended = last_outcome(plane, 1)
    assert ended["outcome"] == "drained"
    # The step it ended at is committed, whether this drain or a save just before it did so.
    assert plane.facts(FactKind.CHECKPOINT)[-1].data["step"] == ended["step"]
    assert world.processes() == []


def test_ordered_drains_and_stops(world: World) -> None:
    plane = world.open()
    world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    plane.direct(DirectiveKind.DRAIN, 1, drain_seconds=30.0)
    assert last_outcome(plane, 1)["outcome"] == "drained"
    plane.train(2)
    drained_at = plane.facts(FactKind.CHECKPOINT)[-1].data["step"]
    # What it begins with is what was trained on this machine: nothing of it is new.
    wait_until(lambda: f"was once at {drained_at}" in plane.log_text(), plane.log_text)
    plane.direct(DirectiveKind.STOP, 2)
    assert last_outcome(plane, 2)["outcome"] == "killed"
    assert world.processes() == []


def test_a_failed_command_and_its_words(world: World) -> None:
    plane = world.open(run="echo no such luck >&2; exit 3")
    world.start()
    plane.train(1)
    ended = last_outcome(plane, 1)
    assert ended["outcome"] == "failed"
    assert ended["exit_code"] == 3
    wait_until(lambda: "no such luck" in plane.log_text(), plane.log_text)


def test_a_plain_command_completes_the_job(world: World) -> None:
    plane = world.open(run="echo hello")
    world.start()
    plane.train(1)
    assert last_outcome(plane, 1)["outcome"] == "finished"
    assert plane.facts(FactKind.COMPLETION)[0].data["step"] == 0


def test_a_shell_that_dies_first_does_not_cut_the_save_short(world: World) -> None:
    script = (
        "import signal,sys,time,os,pathlib\n"
        "def save(*_):\n"
        "    time.sleep(1)\n"
        "    folder = pathlib.Path(os.environ['LOWTIDE_CHECKPOINT_DIR'])\n"
        "    (folder / 'step-7.tmp').mkdir()\n"
        "    (folder / 'step-7.tmp' / 'x').write_text('x')\n"
        "    (folder / 'step-7.tmp').rename(folder / 'step-7')\n"
        "    sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    (world.root / "slow.py").write_text(script)
    plane = world.open(run=f"true; {sys.executable} {world.root}/slow.py; echo never")
    world.start()
    plane.train(1)
    wait_until(lambda: "ready" in plane.log_text(), plane.log_text)
    plane.direct(DirectiveKind.DRAIN, 1, drain_seconds=30.0)
    assert last_outcome(plane, 1)["outcome"] == "drained"
    assert plane.facts(FactKind.CHECKPOINT)[0].data["step"] == 7


def test_no_answer_drains_and_commits_within_the_lease(world: World) -> None:
    plane = world.open(lease_seconds=6.0)
    world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    plane.report_status = 503
    wait_until(lambda: not world.processes(), lambda: "the trainer ends with the lease")
    plane.report_status = 200
    ended = last_outcome(plane, 1)
    assert ended["outcome"] == "drained"
    assert ended["drain_cause"] == "lease"
    numbers = [fact.fact_no for _, fact in plane.told]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_revoked_credential_ends_trainer_and_agent(world: World) -> None:
    plane = world.open()
    agent = world.start()
    plane.train(1)
    wait_until(lambda: bool(world.processes()), lambda: "the trainer")
    plane.report_status = 401
    assert agent.wait(timeout=60) == 0
    assert world.processes() == []


def test_a_machine_whose_row_is_lost_trains_on_and_registers_again(world: World) -> None:
    plane = world.open()
    agent = world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    trainer = world.processes()
    plane.forget(refusals=1_000)
    wait_until(lambda: plane.not_known_yet <= 998, lambda: "it asks to register again")
    assert world.processes() == trainer, "nobody has told it to end"
    # Its new row belongs to a later attempt: what runs saves first, and goes on in that one.
    told_before = len(plane.told)
    plane.direct(DirectiveKind.PREPARE, 1001)
    plane.not_known_yet = 0
    plane.train(1001)
    first, second = plane.registrations
    assert (second.nonce, second.session_id) == (first.nonce, first.session_id)
    plane.wait_for(FactKind.TRAINER_STARTED, fence=1001)
    assert {fact.fence for _, fact in plane.told[told_before:]} <= {None, 1001}
    drained_at = drained_step(plane)
    wait_until(lambda: f"starts at {drained_at}\n" in plane.log_text(), plane.log_text)
    plane.wait_for(FactKind.CHECKPOINT, fence=1001)
    assert agent.poll() is None


def test_cut_off_by_a_later_fence(world: World) -> None:
    plane = world.open()
    world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    record = {"fence": 2, "parent": None, "instance_id": "another"}
    # At once, as stores write: the agent may look at any moment.
    (world.root / "record").write_text(json.dumps(record))
    (world.root / "record").replace(world.root / "store" / "fences" / "0000000002.json")
    assert plane.wait_for(FactKind.FENCED_OFF).data == {"by_fence": 2}
    assert last_outcome(plane, 1)["outcome"] == "killed"
    before = sorted((world.root / "store" / "manifests").rglob("*.json"))
    assert world.processes() == []
    assert sorted((world.root / "store" / "manifests").rglob("*.json")) == before


def test_a_restarted_agent_kills_the_trainer_it_finds(world: World) -> None:
    plane = world.open()
    port = free_port(PORTS_EACH)
    agent = world.start(port=port)
    plane.train(1)
    # Its last words before it trains: what it prints to an agent that is gone would end it.
    wait_until(lambda: "was once at" in plane.log_text(), plane.log_text)
    agent.kill()
    agent.wait(timeout=60)
    assert world.processes()
    world.start(port=port)
    ended = last_outcome(plane, 1)
    assert ended["outcome"] == "killed"
    assert "restarted" in ended["error"]["message"]
    assert world.processes() == []
    first, second = plane.registrations
    assert first.nonce == second.nonce
    assert first.session_id != second.session_id
    plane.train(2)
    assert plane.facts(FactKind.PREPARED, fence=2)


def test_a_stalled_command_shows_its_stacks(world: World) -> None:
    script = (
        "import faulthandler,signal,time,os\n"
        "faulthandler.register(signal.SIGUSR1)\n"
        "open(os.environ['LOWTIDE_PROGRESS_FILE'],'a').write('{\"type\":\"step\",\"step\":1}\\n')\n"
        "def stuck_here():\n"
        "    time.sleep(600)\n"
        "stuck_here()\n"
    )
    (world.root / "stuck.py").write_text(script)
    plane = world.open(
        run=f"{sys.executable} {world.root}/stuck.py; true", stall_timeout_seconds=4.0
    )
    world.start()
    plane.train(1)
    assert plane.wait_for(FactKind.STALLED).data["step"] == 1
    assert last_outcome(plane, 1)["outcome"] == "killed"
    wait_until(lambda: "stuck_here" in plane.log_text(), plane.log_text)


def test_preparation_failures_name_their_stage(world: World) -> None:
    plane = world.open(setup="echo broken; exit 9")
    world.start()
    plane.direct(DirectiveKind.PREPARE, 1)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED).data
    assert failed["stage"] == "setup"
    assert "exit code 9" in failed["message"]
    wait_until(lambda: "broken" in plane.log_text(), plane.log_text)


def test_a_store_that_cannot_be_reached_is_said(world: World) -> None:
    (world.root / "file").write_text("")
    plane = world.open(checkpoint_uri=(world.root / "file" / "store").as_uri())
    world.start()
    plane.direct(DirectiveKind.PREPARE, 1)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED).data
    assert failed["stage"] == "restore"
    assert failed["store_unavailable"] is True


def start_gang(world: World, plane: FakeControlPlane, fence: int) -> None:
    """Two machines, `i-0` and `i-1`, prepared and told to train."""
    ports = [free_port(PORTS_EACH), free_port(PORTS_EACH)]
    peers = tuple(Peer(rank, "127.0.0.1", port, port + 9) for rank, port in enumerate(ports))
    for rank in (0, 1):
        world.start(f"i-{rank}", port=ports[rank])
        plane.direct(DirectiveKind.PREPARE, fence, f"i-{rank}", peers, node_rank=rank)
    port = plane.wait_for(FactKind.PREPARED, "i-0").data["master_port"]
    assert plane.wait_for(FactKind.PREPARED, "i-1").data["master_port"] is None
    for rank in (0, 1):
        plane.direct(
            DirectiveKind.TRAIN,
            fence,
            f"i-{rank}",
            peers,
            node_rank=rank,
            master_addr="127.0.0.1",
            master_port=port,
        )


def test_a_gang_meets_publishes_once_and_ends_on_every_machine(world: World) -> None:
    plane = world.open(run=f"exec {sys.executable} {world.root}/command.py", env={"TOTAL": "30"})
    start_gang(world, plane, fence=1)
    for rank in (0, 1):
        ended = last_outcome(plane, 1, f"i-{rank}")
        assert ended["outcome"] == "finished", (ended, plane.log_text())
    assert plane.facts(FactKind.CHECKPOINT, "i-0")
    assert not plane.facts(FactKind.CHECKPOINT, "i-1")
    phases = [fact.data["phase"] for fact in plane.facts(FactKind.PHASE, "i-1")]
    assert "gang_wait" in phases


@pytest.mark.full
def test_the_bundled_trainer_drains_under_torchrun_and_finishes_elsewhere(world: World) -> None:
    trainer = {
        "model": "mlp",
        "data": "digits",
        "steps": 150,
        "checkpoint_interval_steps": 40,
        "step_delay_seconds": 0.05,
    }
    plane = world.open(run=None, trainer=trainer)
    start_gang(world, plane, fence=1)
    plane.wait_for(FactKind.CHECKPOINT, "i-0", seconds=120)
    for rank in (0, 1):
        plane.direct(DirectiveKind.DRAIN, 1, f"i-{rank}", node_rank=rank, drain_seconds=60.0)
    for rank in (0, 1):
        drained = plane.wait_for(FactKind.TRAINER_ENDED, f"i-{rank}", 1, seconds=120).data
        assert (drained["outcome"], drained["exit_code"]) == ("drained", 75)
    # What torchrun prints of it looks like a failure; the last words say what it was.
    told = "have saved and stopped, as they were asked to"
    wait_until(lambda: plane.log_text().count(told) == 2, plane.log_text)
    newest = plane.facts(FactKind.CHECKPOINT, "i-0")[-1].data
    assert newest["step"] == drained["step"]
    # Both have written it, and both have uploaded what they wrote.
    saved = {path.name for path in (world.root / "store").glob("data/*1/*/*")}
    assert {f"training_state-0000{part}-of-00002.safetensors" for part in (1, 2)} <= saved
    assert "share-00001-of-save-000001.json" in saved
    plane.train(2, "i-1")
    ended = plane.wait_for(FactKind.TRAINER_ENDED, "i-1", 2, seconds=120).data
    assert (ended["outcome"], ended["step"]) == ("finished", 150)
    first = plane.facts(FactKind.METRICS, "i-1", 2)[0].data["points"][0]
    assert first["step"] == drained["step"] + 1
    phases = [fact.data["phase"] for fact in plane.facts(FactKind.PHASE, "i-0")]
    assert phases[:5] == ["boot", "setup", "restore", "gang_wait", "setup"]
    assert {"train", "checkpoint", "drain"} <= set(phases)


@pytest.mark.full
def test_the_bundled_trainers_own_words_when_it_fails(world: World) -> None:
    plane = world.open(run=None, trainer={"unknown_key": 1})
    world.start()
    plane.train(1)
    ended = plane.wait_for(FactKind.TRAINER_ENDED, fence=1, seconds=120).data
    assert ended["outcome"] == "failed"
    assert ended["exit_code"] == 2
    assert "unknown_key" in ended["error"]["message"]
