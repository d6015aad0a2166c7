"""What is learned of start-ups, and what is left of one."""

from __future__ import annotations

import pytest

from app.domain.throughput.start_up import (
    StartUp,
    at_least,
    learn_start_up,
    start_up_by_saves,
    start_up_left,
)


def test_a_job_that_never_started_is_expected_to_start_as_its_like() -> None:
    assert learn_start_up((), ()) is None
    alike = [float(second) for second in range(1, 101)]
    assert learn_start_up((), alike) == StartUp(50.5, 95.0)


def test_its_own_starts_say_what_is_usual_and_few_of_them_not_yet_what_is_slow() -> None:
    alike = [60.0] * 19 + [500.0, 400.0]
    assert learn_start_up([90.0], alike) == StartUp(90.0, 400.0)
    assert learn_start_up([90.0, 80.0, 100.0, 95.0, 85.0], alike) == StartUp(90.0, 100.0)


@pytest.mark.parametrize(
    ("usual", "elapsed", "left"),
    [
        (90.0, 30.0, 60.0),
        (90.0, 89.0, 22.25),
        (90.0, 400.0, 100.0),
        (0.0, 5.0, 10.0),
        (0.0, 86_400.0, 300.0),
        (90.0, -5.0, 90.0),
    ],
)
def test_a_process_without_a_step_always_has_some_start_up_left(
    usual: float, elapsed: float, left: float
) -> None:
    assert start_up_left(usual, elapsed) == left


def test_a_start_under_way_takes_as_long_as_it_did_so_far() -> None:
    assert at_least(StartUp(), 200.0) == StartUp(200.0, 200.0)
    assert at_least(StartUp(90.0, 120.0), 200.0) == StartUp(90.0, 200.0)
    assert at_least(StartUp(90.0, 120.0), 86_400.0).slow == 1_200.0


@pytest.mark.parametrize(
    ("first", "second", "start_up"),
    [
        (900.0, 1_200.0, 600.0),
        (300.0, 600.0, 0.0),
        (40.0, 640.0, 0.0),  # it saves once at its start
        (9_000.0, 9_060.0, 1_200.0),  # nobody knows what it did for so long
        (900.0, 900.0, 0.0),
        (900.0, 800.0, 0.0),  # a clock was set back
    ],
)
def test_two_saves_of_a_command_without_steps_tell_its_start_up(
    first: float, second: float, start_up: float
) -> None:
    assert start_up_by_saves(first, second) == start_up
