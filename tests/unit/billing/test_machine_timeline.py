"""From the instants at which phases began to spans and steps; which word on a time corrects which.

Not here: the bill (`test_billing_ledger`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.billing.machine_facts import TimeSource, is_better_end, is_better_start
from app.domain.billing.machine_timeline import AttemptReach, PhaseStart, machine_timeline
from trainer.protocol.agent_report import MachinePhase as Phase

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def shown(
    *starts: PhaseStart, until: float = 100, attempts: dict[int, AttemptReach] | None = None
) -> list[tuple[object, ...]]:
    spans = machine_timeline(starts, START, after(until), attempts or {})
    return [
        (
            span.phase.value,
            (span.from_at - START).total_seconds(),
            (span.to_at - START).total_seconds(),
            span.first_step,
            span.last_step,
        )
        for span in spans
    ]


def test_a_machine_that_tells_nothing_boots() -> None:
    assert shown() == [("boot", 0, 100, None, None)]


def test_a_phase_lasts_until_the_next_one_and_the_last_until_the_end() -> None:
    found = shown(PhaseStart(Phase.SETUP, after(10)), PhaseStart(Phase.IDLE, after(30)))
    assert found == [
        ("boot", 0, 10, None, None), ("setup", 10, 30, None, None), ("idle", 30, 100, None, None)
    ]  # fmt: skip


def test_of_phases_that_began_together_the_last_told_counts() -> None:
    found = shown(PhaseStart(Phase.SETUP, after(10)), PhaseStart(Phase.IDLE, after(10)))
    assert [span[0] for span in found] == ["boot", "idle"]


def test_what_was_told_after_the_end_is_left_out() -> None:
    found = shown(PhaseStart(Phase.SETUP, after(10)), PhaseStart(Phase.IDLE, after(120)), until=100)
    assert [span[:3] for span in found] == [("boot", 0, 10), ("setup", 10, 120)]
    assert shown(PhaseStart(Phase.IDLE, after(120))) == [("boot", 0, 100, None, None)]


def test_training_covers_the_steps_between_two_phases_of_its_attempt() -> None:
    found = shown(
        PhaseStart(Phase.TRAIN, after(10), 1, 40),
        PhaseStart(Phase.CHECKPOINT, after(50), 1, 90),
        PhaseStart(Phase.TRAIN, after(60), 1, 90),
    )
    assert [span[3:] for span in found] == [(None, None), (41, 90), (None, None), (None, None)]


def test_the_attempt_says_what_no_phase_does() -> None:
    attempts = {2: AttemptReach(80, 200)}
    found = shown(
        PhaseStart(Phase.TRAIN, after(10), 2), PhaseStart(Phase.IDLE, after(50)), attempts=attempts
    )
    assert found[1][3:] == (81, 200)
    stranger = shown(
        PhaseStart(Phase.TRAIN, after(10), 2, 90),
        PhaseStart(Phase.DRAIN, after(50), 3, 300),
        attempts=attempts,
    )
    assert stranger[1][3:] == (91, 200)


def test_an_attempt_that_got_nowhere_has_no_steps() -> None:
    found = shown(PhaseStart(Phase.TRAIN, after(10), 2, 80), attempts={2: AttemptReach(80, 80)})
    assert found[1][3:] == (None, None)


def test_training_begins_with_the_first_step_and_what_was_before_it_is_setup() -> None:
    attempts = {1: AttemptReach(0, 50, first_step=1, start_up_seconds=30.0)}
    found = shown(
        PhaseStart(Phase.TRAIN, after(10), 1),
        PhaseStart(Phase.CHECKPOINT, after(80), 1, 50),
        attempts=attempts,
    )
    assert found == [
        ("boot", 0, 10, None, None), ("setup", 10, 40, None, None), ("train", 40, 80, 2, 50),
        ("checkpoint", 80, 100, None, None),
    ]  # fmt: skip


def test_a_phase_within_the_start_up_keeps_its_name() -> None:
    """A command that tells of compiling, and then that it trains, before its first step."""
    attempts = {1: AttemptReach(0, 50, first_step=1, start_up_seconds=30.0)}
    found = shown(
        PhaseStart(Phase.TRAIN, after(10), 1),
        PhaseStart(Phase.COMPILE, after(15), 1),
        PhaseStart(Phase.TRAIN, after(25), 1),
        attempts=attempts,
    )
    assert [span[:3] for span in found[1:]] == [
        ("setup", 10, 15), ("compile", 15, 25), ("setup", 25, 40), ("train", 40, 100)
    ]  # fmt: skip


def test_an_end_within_the_start_up_leaves_no_training() -> None:
    attempts = {1: AttemptReach(0, 0, start_up_seconds=30.0)}
    found = shown(
        PhaseStart(Phase.TRAIN, after(10), 1), PhaseStart(Phase.IDLE, after(20)), attempts=attempts
    )
    assert [span[0] for span in found] == ["boot", "setup", "idle"]


def test_a_first_step_that_a_phase_tells_is_believed() -> None:
    attempts = {1: AttemptReach(0, 50, first_step=1, start_up_seconds=30.0)}
    found = shown(PhaseStart(Phase.TRAIN, after(10), 1, 1), attempts=attempts)
    assert found[1][:3] == ("train", 10, 100)


def test_of_a_failed_job_what_came_after_its_last_checkpoint_is_lost() -> None:
    starts = [
        PhaseStart(Phase.TRAIN, after(0), 1, 0), PhaseStart(Phase.CHECKPOINT, after(20), 1, 20),
        PhaseStart(Phase.TRAIN, after(30), 2, 10), PhaseStart(Phase.TRAIN, after(60), 3),
    ]  # fmt: skip
    reach = {1: AttemptReach(0, 20), 2: AttemptReach(10, 40), 3: AttemptReach(20, 60)}

    def training(kept_step: int | None) -> list[tuple[object, ...]]:
        known = {fence: replace(one, kept_step=kept_step) for fence, one in reach.items()}
        spans = machine_timeline(starts, START, after(100), known)
        return [
            ((span.to_at - START).total_seconds(), span.first_step, span.last_step, span.lost)
            for span in spans
            if span.phase is Phase.TRAIN
        ]

    assert training(None) == [(20, 1, 20, False), (60, 11, 40, False), (100, 21, 60, False)]
    assert training(20) == [
        (20, 1, 20, False), (40, 11, 20, False), (60, 21, 40, True), (100, 21, 60, True)
    ]  # fmt: skip
    assert [one[3] for one in training(0)] == [True, True, True]


def test_only_training_of_a_lost_attempt_is_lost() -> None:
    starts = [
        PhaseStart(Phase.SETUP, after(10), 1), PhaseStart(Phase.TRAIN, after(20), 1),
        PhaseStart(Phase.TRAIN, after(60), 2),
    ]  # fmt: skip
    attempts = {1: AttemptReach(0, 0, lost=True), 2: AttemptReach(0, 0)}
    spans = machine_timeline(starts, START, after(100), attempts)
    assert [(span.phase, span.lost) for span in spans[1:]] == [
        (Phase.SETUP, False), (Phase.TRAIN, True), (Phase.TRAIN, False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "known", "better"),
    [
        (TimeSource.LAST_START, TimeSource.CREATION, True),
        (TimeSource.LAST_START, TimeSource.INSERT_OPERATION, True),
        (TimeSource.LAUNCH_TIME, TimeSource.FIRST_SEEN, True),
        (TimeSource.CREATION, TimeSource.FIRST_SEEN, True),
        (TimeSource.CREATION, TimeSource.INSERT_OPERATION, False),
        (TimeSource.CREATION, TimeSource.LAST_START, False),
        (TimeSource.LAST_START, TimeSource.LAST_START, False),
        # A machine that runs again: what came before is in another row's bill.
        (TimeSource.LAST_START, "end_of_earlier_row", False),
        (TimeSource.LAST_START, None, False),
        ("", TimeSource.CREATION, False),
    ],
)
def test_which_start_corrects_which(source: str, known: str | None, better: bool) -> None:
    assert is_better_start(source, known) is better


@pytest.mark.parametrize(
    ("source", "known", "better"),
    [
        (TimeSource.OPERATION_END, TimeSource.FIRST_SEEN_GONE, True),
        (TimeSource.STATE_CHANGE_EVENT, TimeSource.STATE_TRANSITION_REASON, True),
        (TimeSource.NOTICE, TimeSource.STATE_TRANSITION_REASON, False),
        (TimeSource.STATE_CHANGE_EVENT, TimeSource.OPERATION_END, False),
    ],
)
def test_which_end_corrects_which(source: str, known: str, better: bool) -> None:
    assert is_better_end(source, known) is better
