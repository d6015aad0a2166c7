"""Whole agents of two machines with a user's own script: what all its ranks save is one checkpoint.

Not here: the hooks themselves (tests/training/hooks/test_script_hooks.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent.agent_world import PORTS_EACH, World
from tests.support.agent.fake_control_plane import FakeControlPlane, wait_until
from tests.support.servers.free_port import free_port
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind, Peer

LONGEST = 240.0
SCRIPT = """
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard
from lowtide_hooks import Hooks

TOTAL = int(os.environ["TOTAL"])
hooks = Hooks()
dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
rows = torch.zeros(4, 1000)
state = {"rows": DTensor.from_local(rows, mesh, [Shard(0)]), "step": torch.zeros(1)}
if folder := hooks.resume():
    dcp.load(state, checkpoint_id=folder)
    print(f"rank {hooks.rank} goes on at {int(state['step'])} with {rows.sum():.0f}", flush=True)
for step in range(int(state["step"]) + 1, TOTAL + 1):
    rows += hooks.rank + 1
    state["step"] += 1
    hooks.progress(step, TOTAL)
    time.sleep(0.02)
    draining = hooks.should_drain()
    if draining or step == TOTAL or step % 5 == 0:
        write = lambda folder: dcp.save(state, checkpoint_id=folder)
        hooks.save(step, write, final=step == TOTAL, every_rank=True)
        left = [path.name for path in hooks.folder.glob("*.tmp*")]
        assert hooks.should_drain() in (False, True) and not left, left
    if draining and step < TOTAL:
        hooks.leave_drained(step)
hooks.finish(TOTAL)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def direct(plane: FakeControlPlane, fence: int, peers: tuple[Peer, ...]) -> None:
    """Machines `i-0` and `i-1` train as this attempt."""
    for rank in (0, 1):
        plane.direct(DirectiveKind.PREPARE, fence, f"i-{rank}", peers, node_rank=rank)
    prepared = [plane.wait_for(FactKind.PREPARED, f"i-{rank}", fence) for rank in (0, 1)]
    where = {"master_addr": "127.0.0.1", "master_port": prepared[0].data["master_port"]}
    for rank in (0, 1):
        plane.direct(DirectiveKind.TRAIN, fence, f"i-{rank}", peers, node_rank=rank, **where)


@pytest.mark.full
def test_a_distributed_checkpoint_of_two_machines_loads_on_both_after_a_drain(
    world: World,
) -> None:
    (world.root / "script.py").write_text(SCRIPT)
    command = f"{sys.executable} -m torch.distributed.run $LOWTIDE_TORCHRUN_ARGS"
    plane = world.open(
        # Where others use the processors too, importing torch on both takes a minute: no stall.
        lease_seconds=900.0,
        stall_timeout_seconds=600.0,
        run=f"exec {command} {world.root}/script.py",
        env={"TOTAL": "100000", "OMP_NUM_THREADS": "1"},
    )
    ports = [free_port(PORTS_EACH), free_port(PORTS_EACH)]
    peers = tuple(Peer(rank, "127.0.0.1", port, port + 9) for rank, port in enumerate(ports))
    for rank in (0, 1):
        world.start(f"i-{rank}", port=ports[rank])
    direct(plane, 1, peers)
    plane.wait_for(FactKind.CHECKPOINT, "i-0", 1, seconds=LONGEST)
    for rank in (0, 1):
        plane.direct(
            DirectiveKind.DRAIN, 1, f"i-{rank}", peers, node_rank=rank, drain_seconds=LONGEST
        )
    ended = [plane.wait_for(FactKind.TRAINER_ENDED, f"i-{rank}", 1, LONGEST) for rank in (0, 1)]
    assert [each.data["outcome"] for each in ended] == ["drained"] * 2
    assert "unsent_step" not in ended[0].data
    assert not plane.facts(FactKind.CHECKPOINT, "i-1")
    assert not list(world.root.glob("i-*/attempts/0001/checkpoints/*.tmp*"))
    step = plane.facts(FactKind.CHECKPOINT, "i-0", 1)[-1].data["step"]
    assert step == ended[0].data["step"]

    direct(plane, 2, peers)
    told = [f"rank {rank} goes on at {step} with {4000 * step * (rank + 1)}" for rank in (0, 1)]
    plane.wait_for(FactKind.CHECKPOINT, "i-0", 2, seconds=LONGEST)
    # Each machine sends its log by itself, every half second: nothing waits for it.
    wait_until(lambda: all(one in plane.log_text() for one in told), plane.log_text)
    for rank in (0, 1):
        resumed = world.root / f"i-{rank}" / "attempts" / "0002"
        names = {path.name for path in resumed.glob(f"resume/step-{step:012d}/*")}
        assert names == {
            *(".metadata", "__0_0.distcp", "__1_0.distcp"),
            *("manifest.json", "manifest-00002-of-00002.json"),
        }


def test_a_command_that_knows_nothing_of_shares_is_published_from_node_0_alone(
    world: World,
) -> None:
    """On machine 1 nothing is linked or sent, whatever it writes."""
    plane = world.open(env={"TOTAL": "30", "FINAL": "1"})
    ports = [free_port(PORTS_EACH), free_port(PORTS_EACH)]
    peers = tuple(Peer(rank, "127.0.0.1", port, port + 9) for rank, port in enumerate(ports))
    for rank in (0, 1):
        world.start(f"i-{rank}", port=ports[rank])
    direct(plane, 1, peers)
    for rank in (0, 1):
        end = plane.wait_for(FactKind.TRAINER_ENDED, f"i-{rank}", 1).data
        assert (end["outcome"], "unsent_step" in end) == ("finished", False)
    assert plane.facts(FactKind.COMPLETION, "i-0", 1)[0].data["step"] == 31
    assert not list((world.root / "i-1" / "attempts" / "0001" / "outbox").iterdir())
    store = world.root / "store"
    assert not list(store.glob("shares/*/*"))
    (final,) = store.glob("manifests/*/*31.json")
    files = [entry["name"] for entry in json.loads(final.read_text())["files"]]
    assert files == ["manifest.json", "step"]
