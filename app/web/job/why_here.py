"""Why a job's machines are where they are: the newest decision with its pools, and those before.

Lives here: rows ready for the template. Not here: the decisions (`placement.placement_decision`),
or what a waiting job waits for (`app.orchestration.placement.unmet_requirements`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from app.domain.lifecycle.entities import Instance, Job
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Pool
from app.domain.placement.placement_decision import DecisionVerdict, PlacementDecision, PoolVerdict
from app.domain.wording.decision_words import reason_now, sentence_now, verdict_word
from app.orchestration.estimates.as_it_runs import AsItRuns, is_rented
from app.storage.jobs.placement_decision_rows import KeptDecision
from app.web import formats

DECISIONS_READ: Final = 6
POOLS_SHOWN: Final = 6
_PLACES_SHOWN: Final = 4

_TONES: Final = {
    DecisionVerdict.SPOT: "good",
    DecisionVerdict.WAIT: "waiting",
    DecisionVerdict.ON_DEMAND: "moving",
    DecisionVerdict.STAY: "good",
    DecisionVerdict.MOVE: "moving",
    DecisionVerdict.RESIZE: "moving",
}


@dataclass(frozen=True)
class PoolLine:
    """One pool as the decision saw it; texts are ready to be shown, instants explain them.

    microusd_per_hour: of all machines; each: that of one of several, as "4 × $1.20", else "".
    by_hour: what is expected is the price of one hour of progress, since the work is not known.
    here: the job has a machine there now. left: of a job that trains there, cost and finish are
    those of now, and `why` begins with what the decision expected (`reason_now`).
    """

    name: str
    key: str
    chosen: bool
    here: bool
    left: bool
    fits: bool
    microusd_per_hour: int
    each: str
    against_on_demand: str
    quote_age_seconds: float
    quoted_at: datetime
    hazard: str
    expected_microusd: int | None
    by_hour: bool
    finish_seconds: float | None
    finish_at: datetime | None
    why: str


@dataclass(frozen=True)
class ToldDecision:
    """One decision. `ways`: what each way from there to the end was expected to cost.

    sentence: of one that is over, in the past. order_note: why the pool that the job is in is not
    the first of them, "" where it is, or it is in none of them.
    """

    number: int
    word: str
    tone: str
    sentence: str
    decided_at: datetime
    confirmed_at: datetime
    ways: tuple[tuple[str, int], ...]
    pools: tuple[PoolLine, ...]
    more_pools: tuple[PoolLine, ...]
    order_note: str


@dataclass(frozen=True)
class WhyHere:
    """The panel: the newest decision, and those before it, newest first.

    placing: the newest that weighed pools; to keep machines is a decision, too. ran: of a job
    without machines, paused or ended, where it was; then `latest` says nothing of the present, and
    all decisions are earlier ones. now: where its machines are, of a job that has any.
    billing_speed: the most seconds that a second is billed as there, which its costs count.
    """

    latest: ToldDecision | None
    placing: ToldDecision | None
    earlier: tuple[ToldDecision, ...]
    ran: str | None
    now: str | None = None
    billing_speed: int = 1


def why_here(
    job: Job,
    decisions: Sequence[KeptDecision],
    machines: Sequence[Instance],
    running: AsItRuns | None,
) -> WhyHere:
    """The panel of a job; `decisions` newest first. machines: those that it had."""
    rented = [] if job.ended_at is not None else [one for one in machines if is_rented(one)]
    here = {one.pool.key for one in rented if one.pool is not None}
    at_rest = job.ended_at is not None or job.state is JobState.PAUSED
    present = _Present(job.node_count, here, running, job.deadline_missed_at)
    told = tuple(
        replace(
            _told(one, present),
            sentence=sentence_now(
                one.decision,
                job,
                machines,
                newest=place == 0
                and not at_rest
                and not _missed_since(job.deadline_missed_at, one),
            ),
        )
        for place, one in enumerate(decisions)
    )
    placing = next((one for one in told if one.pools), None)
    speeds = [one.decision.billing_speed for one in decisions]
    speed = max([1, *speeds, *(one.billing_speed for one in machines)])
    if not at_rest:
        now = f"Now on {_places(rented)}." if rented else None
        return WhyHere(told[0] if told else None, placing, told[1:], None, now, speed)
    return WhyHere(None, placing, told, _ran(machines), billing_speed=speed)


def _ran(machines: Sequence[Instance]) -> str:
    """On how many machines it was, and where."""
    ran = [one for one in machines if one.launched_at is not None]
    return f"It ran on {_places(ran)}." if ran else "No machine ran for it."


def _places(machines: Sequence[Instance]) -> str:
    """ "2 machines: us-west-2a · p3.2xlarge · spot"."""
    places = sorted({_place(one.pool) for one in machines if one.pool is not None})
    count = "1 machine" if len(machines) == 1 else f"{len(machines)} machines"
    where = ", ".join(places[:_PLACES_SHOWN])
    more = len(places) - _PLACES_SHOWN
    where += f" and {more} more" if more > 0 else ""
    return f"{count}: {where}" if where else count


def _place(pool: Pool) -> str:
    return f"{pool.zone} · {pool.instance_type} · {formats.words(pool.market.value)}"


@dataclass(frozen=True)
class _Present:
    """The job as it is: its machines, the pools that they are in, and how it goes on there.

    missed_at: when its deadline passed.
    """

    node_count: int
    here: Collection[str]
    running: AsItRuns | None
    missed_at: datetime | None


def _missed_since(missed_at: datetime | None, kept: KeptDecision) -> bool:
    """Whether the deadline that a decision was made for has passed since.

    What it expected of each way to the end counted on meeting it, which none can any more.
    """
    return missed_at is not None and kept.last_confirmed_at < missed_at


def _told(kept: KeptDecision, present: _Present) -> ToldDecision:
    decision = kept.decision
    count = decision.node_count or present.node_count
    rows = [_row(one, count, kept.last_confirmed_at, present) for one in decision.pools]
    # The pool that the job is in is shown however many were better.
    over = _missed_since(present.missed_at, kept)
    shown = [row for place, row in enumerate(rows) if row.here or place < POOLS_SHOWN]
    return ToldDecision(
        number=kept.decision_no,
        word=verdict_word(decision.verdict),
        tone=_TONES[decision.verdict],
        sentence=decision.sentence,
        decided_at=decision.decided_at,
        confirmed_at=kept.last_confirmed_at,
        ways=() if over else _ways(decision),
        pools=tuple(shown),
        more_pools=tuple(row for row in rows[POOLS_SHOWN:] if not row.here),
        order_note=_order_note(rows),
    )


def _order_note(rows: Sequence[PoolLine]) -> str:
    here = next((place for place, row in enumerate(rows) if row.here), 0)
    if here == 0:
        return ""
    if rows[here].chosen:
        return (
            "Machines were requested in every pool that is marked ✓, and the cloud picked one: so "
            "the job may be in a pool that is not the first here."
        )
    return (
        "The job got its machines before this decision, and moves only where that saves more than "
        "the move costs: so it may be in a pool that is not the first here."
    )


def _ways(decision: PlacementDecision) -> tuple[tuple[str, int], ...]:
    costs = (
        ("with spot machines", decision.spot_microusd),
        ("by waiting", decision.wait_microusd),
        ("with on-demand machines", decision.on_demand_microusd),
    )
    return tuple((name, cost) for name, cost in costs if cost is not None)


def _row(row: PoolVerdict, count: int, at: datetime, present: _Present) -> PoolLine:
    """count: the machines of the decision's gang. at: the instant of the decision's figures."""
    finish, hazard = row.expected_finish_seconds, row.hazard_per_hour
    here = row.pool in present.here
    each = row.price_microusd_per_hour
    running = present.running if here else None
    as_decided = PoolLine(
        name=_name(row.pool),
        key=row.pool,
        chosen=row.chosen,
        here=here,
        left=False,
        fits=row.fits,
        microusd_per_hour=count * each,
        each=f"{count} × {formats.per_hour(each)}" if count > 1 else "",
        against_on_demand=_against(row),
        quote_age_seconds=max(0.0, (at - row.quoted_at).total_seconds()),
        quoted_at=row.quoted_at,
        hazard=formats.DASH if hazard is None or not math.isfinite(hazard) else f"{hazard:.2f}",
        expected_microusd=row.expected_microusd,
        by_hour=finish is None,
        finish_seconds=finish,
        finish_at=None if finish is None else at + timedelta(seconds=finish),
        why=reason_now(row, at, trains_there=running is not None),
    )
    return as_decided if running is None else _left(as_decided, running)


def _left(row: PoolLine, running: AsItRuns) -> PoolLine:
    """A pool that the job trains in, with what is left for the figures that were expected."""
    return replace(
        row,
        left=True,
        expected_microusd=running.remaining_microusd,
        by_hour=False,
        finish_seconds=running.remaining_seconds,
        finish_at=running.ends_at,
    )


def _name(key: str) -> str:
    try:
        pool = Pool.parse(key)
    except ValueError:
        return key
    return _place(pool)


def _against(row: PoolVerdict) -> str:
    full_price = row.on_demand_microusd_per_hour
    return formats.against(row.price_microusd_per_hour / full_price if full_price > 0 else None)
