"""The end of an attempt: its last lines of log and its last step arrive, however much precedes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.agent.agent_world import World
from tests.support.agent.fake_control_plane import wait_until
from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.machine.progress_file import ProgressTail, StepLine
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind

NOISY = r"""
import sys
line = "x" * 99 + "\n"
for _ in range(10 * 1024):
    sys.stdout.write(line * 10)
sys.stdout.write("RuntimeError: the reason\n")
sys.stdout.flush()
sys.exit(3)
"""
QUICK = r"""
import os
with open(os.environ["LOWTIDE_PROGRESS_FILE"], "w") as file:
    for first in range(0, int(os.environ["STEPS"]), 10_000):
        steps = range(first + 1, first + 10_001)
        file.write("".join(f'{{"type":"step","step":{step},"loss":0.5}}\n' for step in steps))
"""


def command(world: World, script: str) -> str:
    (world.root / "said.py").write_text(script)
    return f"exec {sys.executable} {world.root}/said.py"


# An api of an older release, which knows no gaps, is for the long run alone.
@pytest.mark.parametrize("knows_gaps", [True, pytest.param(False, marks=pytest.mark.full)])
def test_the_error_behind_much_output_is_there_when_the_end_is_told(
    world: World, knows_gaps: bool
) -> None:
    plane = world.open(run=command(world, NOISY))
    plane.log_gaps = knows_gaps
    plane.log_seconds = 0.5  # 10 MB in 256 KiB each take 20 s
    agent = world.start()
    plane.train(1)
    ended = plane.wait_for(FactKind.TRAINER_ENDED).data
    assert (ended["outcome"], ended["exit_code"]) == ("failed", 3)
    held = plane.logs["attempt-0001/node-0.log"]
    assert b"RuntimeError: the reason\n" in held[-4_096:]
    sent = held.count(b"x")
    assert sent < 9_000_000, "the end was to go first"
    plane.direct(DirectiveKind.LEAVE)
    plane.log_seconds = 0.0
    assert agent.wait(timeout=60) == 0
    held = plane.logs["attempt-0001/node-0.log"]
    if knows_gaps:
        assert held.count(b"x") == 99 * 10 * 10 * 1024, "the rest follows while there is time"
        assert b"missing" not in held
    else:
        assert b"bytes of log are missing here: they could not be sent in time" in held


SAVED = r"""
import pathlib, signal, sys, time
def leave(*_):
    print("saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
print("listens", flush=True)
time.sleep(600)
"""


def test_the_end_of_a_drain_is_told_before_its_deadline_whatever_becomes_of_the_log(
    world: World,
) -> None:
    plane = world.open(run=command(world, SAVED))
    world.start()
    plane.train(1)
    # A process is started before it listens, and SIGTERM ends it there.
    wait_until(lambda: "listens" in plane.log_text(), plane.log_text)
    plane.log_seconds = 60.0
    asked_at = boot_seconds()
    plane.direct(DirectiveKind.DRAIN, 1, drain_seconds=18.0)
    assert plane.wait_for(FactKind.TRAINER_ENDED).data["exit_code"] == 75
    assert boot_seconds() < asked_at + 18.0
    plane.log_seconds = 0.0


@pytest.mark.parametrize("steps", [200_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_the_last_of_very_many_steps_is_the_one_that_counts(world: World, steps: int) -> None:
    plane = world.open(run=command(world, QUICK), env={"STEPS": str(steps)})
    world.start()
    plane.train(1)
    ended = plane.wait_for(FactKind.TRAINER_ENDED).data
    assert (ended["outcome"], ended["step"]) == ("finished", steps)
    assert plane.facts(FactKind.CHECKPOINT)[-1].data["step"] == steps
    wait_until(
        lambda: plane.reports[-1].progress is not None and plane.reports[-1].progress.step == steps,
        lambda: str(plane.reports[-1].progress),
    )


def written(path: Path, steps: int) -> int:
    path.write_text("".join(f'{{"type":"step","step":{n}}}\n' for n in range(1, steps + 1)))
    return path.stat().st_size


def test_the_newest_lines_are_read_when_there_is_no_time_for_all(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    assert written(path, 100_000) > 2 << 20
    lines = list(ProgressTail(path).poll_to_end(0.0, lambda: 0.0))
    assert lines[-1] == StepLine(100_000)


@pytest.mark.parametrize("length", range(1, 29))
def test_progress_cut_at_any_byte_is_read_up_to_there(tmp_path: Path, length: int) -> None:
    path = tmp_path / "progress.jsonl"
    last = b'{"type":"step","step":12345}'
    path.write_bytes(b'{"type":"step","step":7}\n' + last[:length])
    ticks = iter(range(100))
    lines = list(ProgressTail(path).poll_to_end(50.0, lambda: float(next(ticks))))
    assert lines[-1] == StepLine(12_345 if length == len(last) else 7)
