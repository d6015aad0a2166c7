"""The list of jobs as rows for a page.

Not here: the query (`job_list_statement`), or the markup (`templates/jobs_table.html`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from app.domain.job import LIVE_JOB_STATES, TERMINAL_JOB_STATES, JobState
from app.domain.offer import Pool
from app.ports.job_reports import JobFilter
from app.web.job_sentences import TONES
from app.web.page_frame import PageParts

ROWS_MAX: Final = 50
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
    eta_at: datetime | None
    deadline_at: datetime | None
    is_late: bool
    submitted_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class JobList:
    """A page of the list. `counts` are by filter; `next` goes on where this page ends."""

    rows: tuple[JobRow, ...]
    counts: Mapping[str, int]
    shown: str
    next: str | None
    now: datetime
    is_first: bool


def job_list(parts: PageParts, project_id: UUID, shown: str, before: str | None) -> JobList:
    """The jobs of one filter: `all`, `live`, `ended` or a state; anything else means all."""
    now = parts.runtime.clock.now()
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
        ),
        now,
    )
    by_state = parts.reports.states(project_id)
    return JobList(
        rows=tuple(_row(facts, now) for facts in page["items"]),
        counts=dict(_counts(by_state)),
        shown=shown,
        next=page["next"],
        now=now,
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


def _row(facts: Mapping[str, Any], now: datetime) -> JobRow:
    state = JobState(facts["state"])
    deadline_at, left = _instant(facts["deadline_at"]), facts["remaining_seconds"]
    eta_at = None if left is None else now + timedelta(seconds=left)
    zones = sorted({Pool.parse(key).zone for key in facts["pools"]})
    return JobRow(
        facts=facts,
        tone=TONES[state],
        live=state in LIVE_JOB_STATES,
        where=", ".join(zones),
        eta_at=eta_at,
        deadline_at=deadline_at,
        is_late=eta_at is not None and deadline_at is not None and eta_at > deadline_at,
        submitted_at=datetime.fromisoformat(facts["submitted_at"]),
        ended_at=_instant(facts["ended_at"]),
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
