"""Jobs whose trainers take long to start: a slow start is not taken for a slow job.

Each replay is a job of its own, drawn from a seed, under the production controllers in virtual
time. With room for the reserve and three start-ups it changes its market once at most and is in
time, on spot that lasts and on spot that is taken away. With less room a miss is foretold.
"""

from __future__ import annotations

import pytest

from tests.support.simulation.slow_starts import Lived, live, roomy, tight

CHANGES_MAX = 1
SHORT_WORK_SECONDS = (300.0, 600.0)


def _broken_promises(lived: list[Lived]) -> list[str]:
    return [str(one) for one in lived if one.missed or len(one.moves) > CHANGES_MAX]


def _surprises(lived: list[Lived]) -> list[str]:
    return [str(one) for one in lived if one.missed and not one.foretold]


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(1, 21))
def test_with_room_a_slow_start_changes_the_market_once_at_most(seed: int, database_url: str):
    lived = live(database_url, seed, roomy(seed, 10), rough=seed % 2 == 0)
    assert len(lived) == 10
    assert _broken_promises(lived) == []


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(101, 106))
def test_with_little_room_a_miss_is_foretold(seed: int, database_url: str):
    lived = live(database_url, seed, tight(seed, 10), rough=seed % 2 == 0, weighed=True)
    assert len(lived) == 10
    assert _surprises(lived) == []


@pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.full)])
def test_short_jobs_that_start_slowly_keep_their_market_and_their_deadline(
    count: int, database_url: str
):
    jobs = roomy(201, count, work=SHORT_WORK_SECONDS)
    assert _broken_promises(live(database_url, 201, jobs, rough=False)) == []


def test_short_jobs_with_little_room_miss_nothing_unforetold(database_url: str):
    jobs = tight(202, 4, work=SHORT_WORK_SECONDS)
    lived = live(database_url, 202, jobs, rough=True, weighed=True)
    assert _surprises(lived) == []
    assert any(one.missed for one in lived), "no job was in danger"
