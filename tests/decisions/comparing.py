"""Holds the code of today against what was recorded, and says what is otherwise.

Not here: deciding (`todays_code`), or printing (`__main__`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from tests.decisions.backtest_courses import Course, Job, answers_of, record
from tests.decisions.outcome import Outcome
from tests.decisions.replaying import Replays
from tests.decisions.triples_file import RECORDED, Triple, read_lines

# Made from tables of float32, whose last digit depends on the processor's own matrix product.
_FROM_TABLES = ("wait_microusd", "spot_microusd", "on_demand_microusd")
_TABLES_DIFFER_BY = 1e-6  # float32 holds 2**-24 of a value; the product rounds a few times

# Events stand in a kind in the order of the alphabet: this one is the last.
_WAITING_TOLD = ", waiting"


@dataclass(frozen=True)
class Difference:
    """A triple, and what the code of today makes of its state instead."""

    triple: Triple
    now: Any

    def __str__(self) -> str:
        situation, was = self.triple.situation, self.triple.outcome
        lines = [f"{situation.world} at {situation.at}: {was.kind}"]
        before = _lines(was)
        now = [repr(self.now).encode()]
        if isinstance(self.now, Outcome):
            now = _lines(with_recorded_digits(self.now, was))
        lines += [f"  - {line.decode()}" for line in before if line not in now]
        lines += [f"  + {line.decode()}" for line in now if line not in before]
        return "\n".join(lines)


@dataclass(frozen=True)
class OtherCourse:
    """A course of the back-test. answers: how many are others; ends: it comes to another end."""

    job: Job
    answers: int
    ends: bool


def differing_triples(triples: Iterable[Triple], again: Replays) -> Iterator[Difference]:
    """Those whose decision or effects are not as recorded; one that raises is one of them."""
    for triple in triples:
        try:
            now: Any = again.outcome(triple.situation)
        except Exception as error:
            yield Difference(triple, error)
            continue
        if _lines(with_recorded_digits(now, triple.outcome)) != _lines(triple.outcome):
            yield Difference(triple, now)


def differing_courses(courses: Iterable[Course]) -> Iterator[OtherCourse]:
    """Those that today's policy would answer otherwise, or take elsewhere."""
    for course in courses:
        answers = answers_of(course)
        others = sum(a != list(b) for a, b in zip(answers, course.answers, strict=True))
        ends = record(course.job).outcome != course.outcome
        if others or ends:
            yield OtherCourse(course.job, others, ends)


def read_courses(path: Path = RECORDED) -> Iterator[Course]:
    """The courses in a file of triples."""
    for line in read_lines(path):
        if "course" in line:
            course = line["course"]
            yield Course(
                Job(**course["job"]), course["views"], course["answers"], course["outcome"]
            )


def with_recorded_digits(now: Outcome, was: Outcome) -> Outcome:
    """Expected costs that are the recorded ones within float32's digits, as they were recorded."""
    if now.decision is None or was.decision is None:
        return now
    decision = dict(now.decision)
    for name in _FROM_TABLES:
        a, b = decision.get(name), was.decision.get(name)
        if a is not None and b is not None and abs(a - b) <= _TABLES_DIFFER_BY * abs(b):
            decision[name] = b
    return replace(now, decision=decision)


def _lines(outcome: Outcome) -> list[bytes]:
    """The decision's fields and the effects, each as one line that is equal if it is."""
    decision = [] if outcome.decision is None else sorted(outcome.decision.items())
    told = [outcome.kind.removesuffix(_WAITING_TOLD), *decision, *_without_waits(outcome.effects)]
    return [orjson.dumps(one, option=orjson.OPT_SORT_KEYS) for one in told]


def _without_waits(effects: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Less how often people are told of one wait, and in which words: no machine rests on it."""
    for effect in effects:
        *place, values = effect
        if not isinstance(values, dict):
            yield effect
            continue
        if values.get("kind") == "waiting":
            continue
        kept = {name: value for name, value in values.items() if name != "wait_reason"}
        if kept:
            yield [*place, kept]
