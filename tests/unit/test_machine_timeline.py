"""From the instants at which phases began to spans, and which steps a training phase covered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.domain.machine_timeline import AttemptReach, PhaseStart, machine_timeline
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
