"""A stop that meets an upload: the checkpoint is committed, and the next attempt begins with it.

Not here: the bounds of that (tests/unit/agent/test_agent_last_checkpoint.py), or the agent's usual
life (`test_agent_run`).
"""

from __future__ import annotations

import sys

from tests.support.agent.agent_world import World
from tests.support.agent.fake_control_plane import wait_until
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind

# Saves once, when it is told to, and then waits for a peer that never answers, deaf to SIGTERM.
HANGS = r"""
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path(os.environ["LOWTIDE_CHECKPOINT_DIR"])
print("resumes", os.environ.get("LOWTIDE_RESUME_DIR"), flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
(folder / "step-7.tmp").mkdir()
(folder / "step-7.tmp" / "weights").write_text("seven steps")
(folder / "step-7.tmp").rename(folder / "step-7")
time.sleep(600)
"""

# Drains when it is told that it has much less time than it was told at first.
LISTENS = r"""
import json, os, pathlib, signal, sys, time
notice = pathlib.Path(os.environ["LOWTIDE_NOTICE_FILE"])
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(json.loads(notice.read_text())["deadline"]))
print("listens", flush=True)
ends = time.monotonic() + 60
while time.monotonic() < ends:
    if told:
        print("asked", flush=True)
        if json.loads(notice.read_text())["deadline"] < told[0] - 30:
            sys.exit(75)
    time.sleep(0.05)
sys.exit(3)
"""


def test_a_checkpoint_that_was_complete_at_the_stop_is_committed_and_continued(
    world: World,
) -> None:
    (world.root / "hangs.py").write_text(HANGS)
    plane = world.open(run=f"exec {sys.executable} {world.root}/hangs.py")
    store, away = world.root / "store", world.root / "store-away"
    world.start()
    plane.train(1)
    plane.wait_for(FactKind.TRAINER_STARTED, fence=1)
    store.rename(away)
    store.write_text("no folder: nothing can be written below it")
    (world.root / "i-1" / "workdir" / "go").touch()
    wait_until(lambda: "is not published" in plane.log_text(), plane.log_text)
    plane.direct(DirectiveKind.STOP, 1)
    wait_until(lambda: not world.processes(), lambda: f"alive: {world.processes()}")
    store.unlink()
    away.rename(store)
    saved = plane.wait_for(FactKind.CHECKPOINT, fence=1)
    assert (saved.data["step"], saved.data["final"]) == (7, False)
    assert plane.wait_for(FactKind.TRAINER_ENDED, fence=1).data["outcome"] == "killed"
    plane.direct(DirectiveKind.PREPARE, 2)
    prepared = plane.wait_for(FactKind.PREPARED, fence=2)
    assert prepared.data["parent"] == {"fence": 1, "step": 7, "digest": saved.data["digest"]}
    assert [path.name for path in store.glob("manifests/*/*")] == ["000000000007.json"]


def test_a_stop_with_nothing_saved_is_over_at_once(world: World) -> None:
    (world.root / "hangs.py").write_text(HANGS)
    plane = world.open(run=f"exec {sys.executable} {world.root}/hangs.py")
    world.start()
    plane.train(1)
    plane.wait_for(FactKind.TRAINER_STARTED, fence=1)
    plane.direct(DirectiveKind.STOP, 1)
    ended = plane.wait_for(FactKind.TRAINER_ENDED, fence=1, seconds=20.0)
    assert ended.data["outcome"] == "killed"
    assert plane.facts(FactKind.CHECKPOINT) == []


def test_a_drain_whose_deadline_comes_nearer_tells_the_trainer_so(world: World) -> None:
    (world.root / "listens.py").write_text(LISTENS)
    plane = world.open(run=f"exec {sys.executable} {world.root}/listens.py")
    world.start()
    plane.train(1)
    # A process is started before it listens, and SIGTERM ends it there.
    wait_until(lambda: "listens" in plane.log_text(), plane.log_text)
    plane.direct(DirectiveKind.DRAIN, 1, drain_seconds=300.0)
    wait_until(lambda: "asked" in plane.log_text(), plane.log_text)
    plane.direct(DirectiveKind.DRAIN, 1, drain_seconds=120.0)
    assert plane.wait_for(FactKind.TRAINER_ENDED, fence=1).data["exit_code"] == 75
