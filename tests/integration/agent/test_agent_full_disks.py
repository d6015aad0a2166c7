"""Real agents whose disks fill up: they train and report on, clear what may go, and say so."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.agent.agent_world import World
from tests.support.agent.fake_control_plane import FakeControlPlane, digest_of, wait_until
from tests.support.disks.small_disk import SmallDisk, small_disk
from trainer.protocol.agent_report import AgentReport, DiskFull, FactKind
from trainer.protocol.directive import DirectiveKind

# Writes as the bundled trainer does: what finds no room is said, and training goes on.
COMMAND = r"""
import json, os, pathlib, shutil, sys, time
root = pathlib.Path(sys.argv[1])
folder = pathlib.Path(os.environ["LOWTIDE_CHECKPOINT_DIR"])
kib = int(os.environ.get("SAVE_KIB", "1"))
def tell(**line):
    try:
        with open(os.environ["LOWTIDE_PROGRESS_FILE"], "a") as file:
            file.write(json.dumps(line) + "\n")
    except OSError:
        pass
step = 0
while not (root / "finish").exists():
    step += 1
    tell(type="step", step=step)
    (root / "stepped").write_text(str(step))
    if step % 10 == 0:
        temporary = folder / f"step-{step:012d}.tmp"
        try:
            temporary.mkdir()
            (temporary / "weights").write_bytes(os.urandom(kib << 10))
            (temporary / "manifest.json").write_text("{}")
            temporary.rename(folder / f"step-{step:012d}")
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            tell(type="checkpoint_failed", step=step, disk_full=True)
            print("no room for step", step, flush=True)
            if (root / "give-up").exists():
                raise
    time.sleep(0.02)
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def world(tmp_path: Path, stack: ExitStack) -> World:
    """Closed before its disks are unmounted."""
    made = World(tmp_path)
    stack.callback(made.close)
    return made


def disk_at(world: World, stack: ExitStack, place: str, size_kib: int = 4_096) -> SmallDisk:
    disk = stack.enter_context(small_disk(world.root / "i-1" / place, size_kib))
    stack.callback(world.close)  # before the unmounting; a second time does no harm
    return disk


def opened(world: World, **more: str) -> FakeControlPlane:
    (world.root / "command.py").write_text(COMMAND)
    command = f"exec {sys.executable} {world.root}/command.py {world.root}"
    return world.open(run=command, env=more)


def stepped(world: World) -> int:
    try:
        return int((world.root / "stepped").read_text() or 0)
    except OSError:
        return 0


def await_steps(world: World, count: int) -> None:
    """That many more."""
    until = stepped(world) + count
    wait_until(lambda: stepped(world) >= until, lambda: f"no steps: {stepped(world)}")


def told_full(plane: FakeControlPlane) -> DiskFull | None:
    return plane.reports[-1].disk_full if plane.reports else None


def await_told(plane: FakeControlPlane, full: bool) -> AgentReport:
    wait_until(
        lambda: (told_full(plane) is not None) is full,
        lambda: f"{told_full(plane)}\n{plane.log_text()[-2000:]}",
        180.0,
    )
    return plane.reports[-1]


PLACES = ("", "agent", "attempts", "attempts/0001/checkpoints", "attempts/0001/progress")
LONG_PLACES = ("attempts/0001/outbox", "workdir", "scratch", "inputs")


@pytest.mark.parametrize(
    "place",
    [
        *(pytest.param(place, id=place or "machine") for place in PLACES[:2]),
        *(pytest.param(place, id=place, marks=pytest.mark.full) for place in PLACES[2:]),
        *(pytest.param(place, id=place, marks=pytest.mark.full) for place in LONG_PLACES),
    ],
)
def test_a_disk_that_fills_up_costs_no_attempt(world: World, stack: ExitStack, place: str) -> None:
    disk = disk_at(world, stack, place)
    plane = opened(world)
    agent = world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    disk.fill()
    told = await_told(plane, True).disk_full
    assert told is not None
    assert told.free_bytes < 64 << 10
    assert Path(told.folder).is_relative_to(world.root / "i-1")
    deadline = world.root / "i-1" / "agent" / "power-off-at"
    armed = float(deadline.read_text())
    await_steps(world, 30)
    wait_until(lambda: float(deadline.read_text()) > armed, deadline.read_text)
    assert agent.poll() is None
    assert not plane.facts(FactKind.TRAINER_ENDED)
    disk.empty()
    before = len(plane.facts(FactKind.CHECKPOINT))
    wait_until(lambda: len(plane.facts(FactKind.CHECKPOINT)) > before, plane.log_text)
    (world.root / "finish").touch()
    assert plane.wait_for(FactKind.TRAINER_ENDED).data["outcome"] == "finished"
    assert await_told(plane, False).disk_full is None
    plane.direct(DirectiveKind.LEAVE)
    assert agent.wait(timeout=60) == 0
    assert len({report.session_id for report in plane.reports}) == 1


def test_checkpoints_that_newer_ones_have_replaced_go_first(world: World, stack: ExitStack) -> None:
    disk_at(world, stack, "attempts", 2_048)
    plane = opened(world, SAVE_KIB="300")
    world.start()
    plane.train(1)
    wait_until(
        lambda: len(plane.facts(FactKind.CHECKPOINT)) >= 12,
        lambda: plane.log_text()[-2_000:],
        180.0,
    )
    steps = [fact.data["step"] for fact in plane.facts(FactKind.CHECKPOINT)]
    assert steps == sorted(set(steps))
    assert "removed this machine's copy of the checkpoint of step 10: newer" in plane.log_text()
    kept = world.root / "i-1" / "attempts" / "0001" / "checkpoints"
    here = sorted(int(path.name[5:]) for path in kept.glob("step-????????????"))
    assert here, "the newest one stays"
    assert here[-1] >= steps[-1] - 10


def test_an_end_that_a_full_disk_made_is_named_after_it(world: World, stack: ExitStack) -> None:
    disk = disk_at(world, stack, "attempts/0001/checkpoints", 512)
    plane = opened(world)
    world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    (world.root / "give-up").touch()
    disk.fill()
    ended = plane.wait_for(FactKind.TRAINER_ENDED).data
    assert (ended["outcome"], ended["error"]["type"]) == ("failed", "disk_full")
    assert "checkpoints was full" in ended["error"]["message"]


def test_a_disk_that_is_full_from_the_start_ends_the_preparation(
    world: World, stack: ExitStack
) -> None:
    disk = disk_at(world, stack, "", 512)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as packed:
        member = tarfile.TarInfo("data")
        member.size = 2 << 20
        packed.addfile(member, io.BytesIO(os.urandom(member.size)))
    plane = world.open(workdir=digest_of(archive.getvalue()))
    plane.workdirs[digest_of(archive.getvalue())] = archive.getvalue()
    disk.fill()
    # Not even the agent's own folder can hold a file with something in it.
    agent = world.start()
    plane.direct(DirectiveKind.PREPARE, 1)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED).data
    assert failed["disk_full"] is True
    assert failed["stage"] == "setup"
    assert await_told(plane, True).disk_full is not None
    disk.empty()
    assert await_told(plane, False).disk_full is None
    identity = world.root / "i-1" / "agent" / "identity.json"
    wait_until(identity.exists, lambda: "the identity is not kept")
    assert json.loads(identity.read_text())["nonce"] == plane.registrations[0].nonce
    plane.direct(DirectiveKind.LEAVE)
    assert agent.wait(timeout=60) == 0
