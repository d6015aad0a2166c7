"""The list of jobs as rows for a page, with what each has saved.

Not here: the query (`job_list_statement`), or the markup (`templates/jobs_table.html`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Final
from uuid import UUID

from app.domain.job import LIVE_JOB_STATES, TERMINAL_JOB_STATES, JobState
from app.domain.offer import Pool
from app.ports.job_reports import JobFilter
from app.ports.read_models import CostReports
from app.web.job_sentences import TONES
from app.web.page_frame import PageParts

ROWS_MAX: Final = 50
_REMEMBERED_MAX: Final = 512
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GROUPS: Final[Mapping[str, frozenset[JobState]]] = {
    "all": frozenset(),
    "live": LIVE_JOB_STATES,
    "ended": TERMINAL_JOB_STATES,
}


@dataclass(frozen=True)
class JobRow:
    """One job in the list. `where` is empty while no machine has a place."""

    facts: Mapping[str, Any]
    tone: str
    live: bool
    where: str
    deadline_at: datetime | None
    submitted_at: datetime
    ended_at: datetime | None
    saved_ratio: Fraction | None


@dataclass(frozen=True)
class JobList:
    """A page of the list. `counts` are by filter; `next` goes on where this page ends."""

    rows: tuple[JobRow, ...]
    counts: Mapping[str, int]
    shown: str
    next: str | None
    now: datetime
    is_first: bool


class SavedRatios:
    """What jobs saved, remembered until more is booked for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[UUID, tuple[object, Fraction | None]] = {}

    def of(self, costs: CostReports, job_id: UUID, version: object) -> Fraction | None:
        """The net saved ratio; `version` changes whenever it may have changed."""
        with self._lock:
            known = self._known.get(job_id)
        if known is not None and known[0] == version:
            return known[1]
        cost = costs.job_cost(job_id)
        ratio = None if cost is None else cost.statement.net_saved_ratio
        with self._lock:
            if len(self._known) >= _REMEMBERED_MAX:
                self._known.clear()
            self._known[job_id] = (version, ratio)
        return ratio


def job_list(
    parts: PageParts, saved: SavedRatios, project_id: UUID, shown: str, before: str | None
) -> JobList:
    """The jobs of one filter: `all`, `live`, `ended` or a state; anything else means all."""
    states = GROUPS.get(shown)
    if states is None:
        try:
            states = frozenset({JobState(shown)})
        except ValueError:
            shown, states = "all", GROUPS["all"]
    page = parts.reports.list_jobs(
        JobFilter(
            project_id=project_id,
            limit=ROWS_MAX,
            states=tuple(sorted(state.value for state in states)),
            before=_place(before),
        )
    )
    by_state = parts.reports.states(project_id)
    return JobList(
        rows=tuple(_row(parts, saved, facts) for facts in page["items"]),
        counts=dict(_counts(by_state)),
        shown=shown,
        next=page["next"],
        now=parts.runtime.clock.now(),
        is_first=_place(before) is None,
    )


def _counts(by_state: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Totals of the groups, then of every state that a job is in."""
    for name, states in GROUPS.items():
        wanted = states or frozenset(JobState)
        yield name, sum(by_state.get(state.value, 0) for state in wanted)
    for state in JobState:
        if by_state.get(state.value):
            yield state.value, by_state[state.value]


def _row(parts: PageParts, saved: SavedRatios, facts: Mapping[str, Any]) -> JobRow:
    state = JobState(facts["state"])
    ratio = None
    if facts["spent_microusd"]:
        version = (facts["spent_microusd"], state, facts["machines"])
        ratio = saved.of(parts.costs, UUID(facts["id"]), version)
    zones = sorted({Pool.parse(key).zone for key in facts["pools"]})
    return JobRow(
        facts=facts,
        tone=TONES[state],
        live=state in LIVE_JOB_STATES,
        where=", ".join(zones),
        deadline_at=_instant(facts["deadline_at"]),
        submitted_at=datetime.fromisoformat(facts["submitted_at"]),
        ended_at=_instant(facts["ended_at"]),
        saved_ratio=ratio,
    )


def _instant(written: str | None) -> datetime | None:
    return None if written is None else datetime.fromisoformat(written)


def _place(cursor: str | None) -> tuple[datetime, UUID] | None:
    """Where the page before ended; None for none, or for one that nobody made."""
    microseconds, _, job_id = (cursor or "").partition("-")
    try:
        return _EPOCH + timedelta(microseconds=int(microseconds)), UUID(job_id)
    except (ValueError, OverflowError):
        return None
