"""What a gang's machines are together likely to lose, and when that is worth telling anew."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.domain.availability.gang_hazard import (
    FAULTS_PER_HOUR,
    TOLD_AGAIN_RATIO,
    WARNED_PER_HOUR,
    MachineLife,
    gang_hazard_per_hour,
    seconds_to_next_age,
    worth_telling,
)
from app.domain.availability.hazard_by_age import TAKEN_PER_HOUR

FRESH = MachineLife(0.0, 1.0)
OLD = MachineLife(9 * 3600.0, 1.0)
ON_DEMAND = MachineLife(0.0, None)


def test_hazards_add_up_each_at_its_own_age() -> None:
    expected = TAKEN_PER_HOUR[0] + TAKEN_PER_HOUR[-1] + 3 * FAULTS_PER_HOUR
    assert gang_hazard_per_hour([FRESH, OLD, ON_DEMAND]) == pytest.approx(expected)
    assert gang_hazard_per_hour([ON_DEMAND]) == FAULTS_PER_HOUR


def test_a_pool_that_took_many_is_feared_more() -> None:
    bad = MachineLife(OLD.age_seconds, 5.0)
    assert gang_hazard_per_hour([bad]) == pytest.approx(5 * gang_hazard_per_hour([OLD]), rel=0.02)


def test_a_warned_machine_counts_as_nearly_gone_in_any_market() -> None:
    for machine in (OLD, ON_DEMAND):
        warned = MachineLife(machine.age_seconds, machine.factor, warned=True)
        assert gang_hazard_per_hour([warned]) == WARNED_PER_HOUR


def test_the_next_age_at_which_it_changes() -> None:
    assert seconds_to_next_age([FRESH, OLD]) == 600.0
    assert seconds_to_next_age([MachineLife(700.0, 1.0), OLD]) == 1_100.0
    assert seconds_to_next_age([OLD, ON_DEMAND]) is None


def test_a_figure_that_sways_is_told_once() -> None:
    told, tellings = None, 0
    for hazard in (1.0, 1.2, 0.9, 1.2, 0.85, 1.24, 1.0):
        if worth_telling(told, hazard, TOLD_AGAIN_RATIO):
            told, tellings = hazard, tellings + 1
    assert tellings == 1
    assert worth_telling(1.0, 1.25, TOLD_AGAIN_RATIO)
    assert worth_telling(1.0, 0.8, TOLD_AGAIN_RATIO)
    assert not worth_telling(0.0, 0.0, TOLD_AGAIN_RATIO)
    assert worth_telling(0.0, 0.1, TOLD_AGAIN_RATIO)
    assert worth_telling(1.0, None, TOLD_AGAIN_RATIO)
    assert not worth_telling(None, None, TOLD_AGAIN_RATIO)


def test_every_age_of_a_usual_pool_is_told_anew() -> None:
    for younger, older in pairwise(TAKEN_PER_HOUR):
        assert worth_telling(younger, older, TOLD_AGAIN_RATIO)
