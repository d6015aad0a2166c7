"""Whole agents of two machines with the bundled trainer, one of which vanishes while all save."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent.agent_world import PORTS_EACH, World
from tests.support.agent.fake_control_plane import FakeControlPlane, wait_until
from tests.support.servers.free_port import free_port
from trainer.protocol.agent_report import FactKind
from trainer.protocol.checkpoint_manifest import load_manifest
from trainer.protocol.directive import DirectiveKind, Peer

LARGE = {
    "model": "resnet18",
    "data": "digits",
    "steps": 10_000,
    "batch_size": 4,
    "optimizer": "sgd",
    "eval_every_epochs": 0,
    "checkpoint_interval_steps": 2,
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.full
def test_a_machine_that_vanishes_while_all_save_spoils_nothing(world: World) -> None:
    plane = world.open(run=None, trainer=LARGE)
    agents = start_gang(world, plane)
    plane.wait_for(FactKind.CHECKPOINT, "i-0", seconds=120)
    saving = world.root / "i-1" / "attempts" / "0001" / "checkpoints"
    wait_until(lambda: any(saving.glob("*.tmp-*/weights*")), lambda: "it writes its share")
    agents[1].kill()
    for pid in world.processes("i-1"):
        os.kill(pid, signal.SIGKILL)
    plane.direct(DirectiveKind.LEAVE, None, "i-0")
    assert agents[0].wait(timeout=120) == 0
    # Whatever counts is whole: a file of it that is missing would have been seen by the restore.
    manifests = sorted((world.root / "store").glob("manifests/*1/*.json"))
    newest = load_manifest(manifests[-1].read_bytes())
    assert {entry.name for entry in newest.files} >= {
        *(f"weights-0000{part}-of-00002.safetensors" for part in (1, 2)),
        "manifest-00002-of-00002.json",
    }
    world.start("i-2")
    plane.train(2, "i-2")
    parent = plane.wait_for(FactKind.PREPARED, "i-2", 2).data["parent"]
    assert (parent["fence"], parent["step"]) == (1, newest.step)
    plane.wait_for(FactKind.CHECKPOINT, "i-2", 2, seconds=120)
    first = plane.facts(FactKind.METRICS, "i-2", 2)[0].data["points"][0]
    assert first["step"] == newest.step + 1


def start_gang(world: World, plane: FakeControlPlane) -> list[subprocess.Popen[bytes]]:
    """Machines `i-0` and `i-1` train as attempt 1."""
    ports = [free_port(PORTS_EACH), free_port(PORTS_EACH)]
    peers = tuple(Peer(rank, "127.0.0.1", port, port + 9) for rank, port in enumerate(ports))
    agents = []
    for rank in (0, 1):
        agents.append(world.start(f"i-{rank}", port=ports[rank]))
        plane.direct(DirectiveKind.PREPARE, 1, f"i-{rank}", peers, node_rank=rank)
    port = plane.wait_for(FactKind.PREPARED, "i-0").data["master_port"]
    plane.wait_for(FactKind.PREPARED, "i-1")
    where = {"master_addr": "127.0.0.1", "master_port": port}
    for rank in (0, 1):
        plane.direct(DirectiveKind.TRAIN, 1, f"i-{rank}", peers, node_rank=rank, **where)
    return agents
