"""The code of today decides, in every recorded state, as it did when that was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.decisions.comparing import (
    differing_courses,
    differing_triples,
    read_courses,
    with_recorded_digits,
)
from tests.decisions.outcome import Outcome
from tests.decisions.replaying import Replays, replays
from tests.decisions.triples_file import RECORDED, read_lines, read_triples
from tests.decisions.watch_world import TURNS
from tests.support.servers.postgres import PostgresForTests

DECISIONS_MIN = 5_000
BYTES_MAX = 1_500_000
SAMPLED = 40
COURSES_SAMPLED = 2
PARTS = range(6)
"""All of them takes minutes: each part has a time limit of its own."""


@pytest.fixture
def again(postgres: PostgresForTests) -> Iterator[Replays]:
    """Replays in a database of their own, which they fill with triggers."""
    url = postgres.clone()
    with replays(url) as made:
        yield made
    postgres.drop(url)


def test_some_recorded_decisions_are_made_again(again: Replays):
    every = max(1, sum("at" in line for line in read_lines()) // SAMPLED)
    sample = read_triples(wanted=lambda place: place % every == 0)
    assert [str(one) for one in differing_triples(sample, again)] == []


def test_some_courses_of_the_back_test_are_taken_again():
    courses = [one for place, one in enumerate(read_courses()) if place < COURSES_SAMPLED]
    assert list(differing_courses(courses)) == []


@pytest.mark.full
@pytest.mark.parametrize("part", PARTS)
def test_all_recorded_decisions_are_made_again(again: Replays, part: int):
    triples = read_triples(wanted=lambda place: place % len(PARTS) == part)
    differing = list(differing_triples(triples, again))
    kinds = Counter(one.triple.outcome.kind for one in differing)
    assert kinds == Counter(), str(differing[0])


@pytest.mark.full
@pytest.mark.parametrize("part", PARTS)
def test_all_courses_of_the_back_test_are_taken_again(part: int):
    courses = islice(read_courses(), part, None, len(PARTS))
    assert list(differing_courses(courses)) == []


def test_the_recording_has_every_trigger_and_is_small():
    triples = [line["trigger"] for line in read_lines() if "at" in line]
    triggers = {trigger["kind"] for trigger in triples}
    turns = {trigger.get("controller") for trigger in triples} - {None}
    assert triggers == {"turn", "report", "registration", "launch", "seen"}
    assert turns == set(TURNS)
    answers = sum(len(one.answers) for one in read_courses())
    assert len(triples) + answers >= DECISIONS_MIN
    assert RECORDED.stat().st_size <= BYTES_MAX


def test_only_the_last_digit_of_an_expected_cost_may_differ():
    was, last_digit, more = (
        Outcome("stay", {"on_demand_microusd": cost, "verdict": "stay"}, [])
        for cost in (3_312_461, 3_312_462, 3_312_467)
    )
    assert with_recorded_digits(last_digit, was) == was
    assert with_recorded_digits(more, was) == more
