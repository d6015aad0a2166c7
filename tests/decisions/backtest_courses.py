"""Decisions of the back-test: a job's whole course tick by tick, recorded and asked for again.

What a policy believes rests on all that it has seen, so the state of one answer is the job's
briefing with every view before it: a course is kept as a whole, and each of its answers is a
triple. What came of an answer is the next view; of the course, what it cost. Prices and capacity
are those of the recordings that the local provider carries. Not here: the policy itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import app.adapters.providers.local
from app.backtest.policy_view import (
    Briefing,
    JobView,
    Policy,
    PolicyAction,
    PolicyChoice,
    RunningCapacity,
    Terms,
)
from app.backtest.replay import PoolVisibility, Replay
from app.backtest.traces import Window, cut_window, read_trace
from tests.decisions.todays_code import backtest_policy

TRACES: Final = Path(app.adapters.providers.local.__file__).parent / "traces"

_FILES = (
    ("aws_2023_v100_9z.npz", 1),
    ("gcp_2025_h100_13z.npz", 1),
    ("gcp_2025_h100_13z.npz", 8),
    ("aws_2023_v100_4node.npz", 4),
)
_JOB_HOURS: Final = 10.0
_HISTORY_HOURS: Final = 48.0
_SLACKS = (1.15, 1.3, 1.5)
_SEEN = {-1: "?", 0: "-", 1: "+"}
_KNOWN = {sign: seen for seen, sign in _SEEN.items()}


@dataclass(frozen=True)
class JobKind:
    """How a job starts and saves, what is seen of pools, and from where in a recording it runs."""

    place: float
    information: str
    overhead_seconds: float
    start_up_seconds: float
    checkpoint_seconds: float
    egress_usd: float


@dataclass(frozen=True)
class Job:
    """What a course is of. place: of the window, as a share of the recording."""

    file: str
    gang: int
    zones: int
    slack: float
    place: float
    information: str
    overhead_seconds: float
    start_up_seconds: float
    checkpoint_seconds: float
    egress_usd: float


_KINDS = (
    JobKind(0.2, PoolVisibility.VISIBLE.value, 180.0, 0.0, 0.0, 0.0),
    JobKind(0.7, PoolVisibility.ATTEMPTS.value, 1_020.0, 300.0, 1_800.0, 2.0),
)


@dataclass(frozen=True)
class Course:
    """A job with what its policy was asked, and answered.

    views: one list for each question: tick, what ran before, what runs, pool, work done, work at
    risk, start that is left, and a sign for each pool (`+` up, `-` down, `?` unknown).
    answers: what to do (0 wait, 1 spot, 2 on-demand, 3 look), and the pool or -1.
    """

    job: Job
    views: Sequence[Sequence[Any]]
    answers: Sequence[Sequence[int]]
    outcome: Mapping[str, Any]


def recorded_courses() -> Iterator[Course]:
    """All of them, in the order of the file."""
    for job in _jobs():
        yield record(job)


def _jobs() -> Iterator[Job]:
    for (file, gang), zones, slack, kind in product(_FILES, (1, 3), _SLACKS, _KINDS):
        yield Job(file, gang, zones, slack=slack, **asdict(kind))


def record(job: Job) -> Course:
    """The course that the policy of today takes."""
    window, briefing = _window_of(job)
    asked = _Asked(backtest_policy(briefing))
    outcome = Replay(window, briefing.terms, PoolVisibility(job.information)).run(asked)
    told = {
        "cost_usd": round(outcome.cost_usd, 6),
        "finish_seconds": outcome.finish_seconds,
        "missed": outcome.missed,
        "launches": outcome.launches,
        "probes": outcome.probes,
    }
    return Course(job, asked.views, asked.answers, told)


def answers_of(course: Course) -> list[list[int]]:
    """What the policy of today answers to a course's views, whatever it would have led to."""
    window, briefing = _window_of(course.job)
    policy = backtest_policy(briefing)
    prices = window.prices.T.tolist()
    return [_plain(policy.decide(_view_of(view, prices))) for view in course.views]


def kinds_of(course: Course) -> Iterator[str]:
    """What each answer is counted as."""
    for view, (act, pool) in zip(course.views, course.answers, strict=True):
        runs_on, here = RunningCapacity(view[2]), view[3]
        did = PolicyAction(act).name.lower()
        if act == PolicyAction.SPOT and runs_on is RunningCapacity.SPOT:
            did = "stay" if pool == here else "move"
        elif act == PolicyAction.ON_DEMAND and runs_on is RunningCapacity.ON_DEMAND:
            did = "stay"
        yield f"back-test: {did} with {runs_on.name.lower()}"


class _Asked:
    """A policy, with a note of every question and answer."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.views: list[list[Any]] = []
        self.answers: list[list[int]] = []

    def decide(self, view: JobView) -> PolicyChoice:
        """As the policy does."""
        self.views.append(
            [
                view.tick,
                int(view.was_on),
                int(view.running_on),
                view.pool,
                view.progress_seconds,
                view.at_risk_seconds,
                view.overhead_left_seconds,
                "".join(_SEEN[int(one)] for one in view.seen),
            ]
        )
        choice = self._policy.decide(view)
        self.answers.append(_plain(choice))
        return choice


def _plain(choice: PolicyChoice) -> list[int]:
    return [int(choice.act), choice.pool]


def _view_of(view: Sequence[Any], prices: list[list[float]]) -> JobView:
    tick, was_on, running_on, pool, progress, at_risk, overhead_left, seen = view
    return JobView(
        tick=tick,
        was_on=RunningCapacity(was_on),
        running_on=RunningCapacity(running_on),
        pool=pool,
        progress_seconds=progress,
        at_risk_seconds=at_risk,
        overhead_left_seconds=overhead_left,
        seen=[_KNOWN[sign] for sign in seen],
        prices=prices[tick],
    )


def _window_of(job: Job) -> tuple[Window, Briefing]:
    trace = read_trace(TRACES / job.file)
    terms = Terms(
        job_seconds=_JOB_HOURS * 3600,
        deadline_seconds=job.slack * _JOB_HOURS * 3600,
        overhead_seconds=job.overhead_seconds,
        start_up_seconds=job.start_up_seconds,
        checkpoint_seconds=job.checkpoint_seconds,
        egress_usd=job.egress_usd,
    )
    ticks = math.ceil(terms.deadline_seconds / trace.gap_seconds) + 2
    past = math.ceil(_HISTORY_HOURS * 3600 / trace.gap_seconds)
    start = past + round(job.place * (trace.ticks - past - ticks))
    window = cut_window(trace, trace.zones[: job.zones], job.gang, start, ticks, past)
    briefing = Briefing(
        pools=window.pools,
        tick_seconds=window.tick_seconds,
        on_demand=window.on_demand,
        terms=terms,
        past_up=window.past_up,
        past_prices=window.past_prices,
    )
    return window, briefing
