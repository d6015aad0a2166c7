"""What an agent measures of a trainer's steps. Not here: the rate that follows from it."""

from __future__ import annotations

import pytest

from tests.support.agent.supervised_machine import Machine, ended
from trainer.agent.machine.progress_file import parse_line
from trainer.agent.rules import observations as seen
from trainer.agent.rules.step_pace import StepPace
from trainer.protocol.agent_report import FactKind, Pace, Progress, TrainerOutcome
from trainer.protocol.checkpoint_manifest import CheckpointRef
from trainer.protocol.directive import DirectiveKind
from trainer.protocol.wire import decode


def measured(*lines: tuple[int, float], parent_step: int | None = None) -> Pace | None:
    """lines: steps and when they were seen; the process starts at 100 s."""
    pace = StepPace(100.0)
    for step, at in lines:
        pace = pace.seen(step, parent_step, at)
    return pace.told


def test_a_slow_start_is_no_part_of_the_pace():
    assert measured() is None
    assert measured((1, 190.0)) == Pace(1, 1, 0.0, 90.0)
    assert measured((1, 190.0), (2, 191.0), (11, 200.0)) == Pace(1, 11, 10.0, 90.0)
    with_a_stall = measured((1, 190.0), (2, 191.0), (3, 252.0))
    assert with_a_stall == Pace(1, 3, 62.0, 90.0), "saves and evaluation are included"


@pytest.mark.parametrize("before", [(0, 110.0), (400, 130.0)])
def test_a_line_before_the_first_step_ends_no_start(before: tuple[int, float]):
    found = measured(before, (401, 200.0), (402, 201.0), parent_step=400)
    assert found == Pace(401, 402, 1.0, 100.0)


def test_a_count_of_its_own_is_measured_from_the_first_step_that_was_seen():
    assert measured((9_000, 130.0), (9_020, 150.0)) == Pace(9_000, 9_020, 20.0, 30.0)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([(1, 110), (20, 130), (5, 140)], Pace(1, 20, 20.0, 10.0), id="it falls"),
        pytest.param([(1, 110), (9, 120), (9, 900)], Pace(1, 9, 10.0, 10.0), id="it repeats"),
        pytest.param(
            [(1, 110), (20, 130), (5, 140), (21, 150)], Pace(1, 21, 40.0, 10.0), id="it is redone"
        ),
        pytest.param(
            [(1, 110), (2, 111), (3, 112), (10**11, 113), (10**11 + 5, 118)],
            Pace(10**11, 10**11 + 5, 5.0, 10.0),
            id="it jumps",
        ),
        pytest.param(
            [(1, 110), (5_000, 111), (5_001, 121), (5_002, 131)],
            Pace(5_000, 5_002, 20.0, 10.0),
            id="its second line jumps",
        ),
        pytest.param(
            [(1, 110), (1_001, 210), (2_001, 310), (2_002, 311)],
            Pace(1, 2_002, 201.0, 10.0),
            id="some lines are closer",
        ),
        pytest.param([(1, 110), (9, 120), (12, 90)], Pace(1, 9, 10.0, 10.0), id="time goes back"),
        pytest.param([(1, 50), (2, 51)], Pace(1, 2, 1.0, 0.0), id="seen before the start"),
    ],
)
def test_steps_that_no_training_makes(lines: list[tuple[int, float]], expected: Pace):
    assert measured(*lines) == expected


def test_a_step_beyond_any_count_is_not_read():
    assert parse_line(b'{"type": "step", "step": 1000000000000000000}') is None


def test_it_travels_in_reports_and_in_the_fact_of_the_end():
    machine = Machine(bundled=False).running()
    assert machine.report().progress is None
    machine.after(90.0)
    machine.see(seen.ProgressSeen(1, 1, 900))
    machine.after(20.0)
    machine.see(seen.ProgressSeen(1, 21))
    expected = Pace(1, 21, 20.0, 90.0)
    assert machine.report().progress == Progress(21, 900, {}, expected)
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FAILED, exit_code=1)))
    told = machine.fact(FactKind.TRAINER_ENDED)["pace"]
    assert decode(Pace, told) == expected


def test_every_attempt_is_measured_anew():
    machine = Machine(bundled=False).running()
    machine.after(10.0)
    machine.see(seen.ProgressSeen(1, 1))
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FAILED, exit_code=1)))
    machine.told(DirectiveKind.PREPARE, 2)
    machine.see(seen.Prepared(2, CheckpointRef(1, 40, "d"), 29_501))
    machine.told(DirectiveKind.TRAIN, 2, master_port=29_501)
    machine.see(seen.TrainerStarted(2))
    machine.after(30.0)
    machine.see(seen.ProgressSeen(2, 40))
    progress = machine.report().progress
    assert progress is not None
    assert progress.pace is None, "step 40 is where it resumed"
    machine.after(5.0)
    machine.see(seen.ProgressSeen(2, 41))
    progress = machine.report().progress
    assert progress is not None
    assert progress.pace == Pace(41, 41, 0.0, 35.0)
