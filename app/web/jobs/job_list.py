"""The list of jobs as rows for a page.

Not here: how a search is written (`job_query`), the query (`job_search_statement`), or the markup
(`templates/jobs_table.html`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final
from uuid import UUID

from app.domain.lifecycle.job import LIVE_JOB_STATES, TERMINAL_JOB_STATES, JobState
from app.domain.market.offer import Pool
from app.storage.reports.job_search import (
    CONSIDERED_MAX,
    FoundGroup,
    FoundJob,
    FoundJobs,
    JobOrder,
    ProjectNow,
)
from app.web.job_sentences import TONES
from app.web.jobs.job_query import ORDER_WORDS, ROWS_MAX, STATE_GROUPS, JobQuery
from app.web.page_frame import PageParts

_LABELS_SHOWN: Final = 3
_REFRESH_SECONDS: Final = 2
_MANY: Final = 1_000
_REFRESH_SECONDS_OF_MANY: Final = 10


@dataclass(frozen=True)
class JobRow:
    """One job in the list. `where` is empty while no machine has a place."""

    facts: Mapping[str, Any]
    tone: str
    why: str
    labels: tuple[tuple[str, str], ...]
    where: str
    eta_at: datetime | None
    deadline_at: datetime | None
    is_late: bool
    ended_at: datetime | None
    is_group: ClassVar = False


@dataclass(frozen=True)
class GroupRow:
    """Jobs that share a prefix. by_state: (state, tone, how many); ended: how many have ended."""

    found: FoundGroup
    by_state: tuple[tuple[JobState, str, int], ...]
    ended: int
    is_group: ClassVar = True

    @property
    def percent(self) -> float:
        """How many of its jobs have ended, in percent of them: 0 to 100."""
        return 100 * self.ended / max(1, self.found.jobs)


@dataclass(frozen=True)
class JobList:
    """A page of the list. first, last: its rows among `found.rows_total`, from 1."""

    query: JobQuery
    found: FoundJobs
    rows: tuple[JobRow | GroupRow, ...]
    counts: Mapping[str, int]
    first: int
    last: int
    now: datetime

    @property
    def project(self) -> ProjectNow:
        """Totals above the list."""
        return self.found.now

    @property
    def refresh_seconds(self) -> int:
        """How often the list is read again: seldom where that is work."""
        return _REFRESH_SECONDS_OF_MANY if self.found.considered > _MANY else _REFRESH_SECONDS

    @property
    def place(self) -> str:
        """Where in the list this page is, in words."""
        total, jobs = self.found.rows_total, self.found.jobs_total
        here = f"{self.first:,}–{self.last:,} of {total:,}"
        return here if total == jobs else f"{here} rows, {jobs:,} jobs"

    @property
    def last_page(self) -> int:
        """The number of the last page that has rows."""
        return max(1, -(-self.found.rows_total // ROWS_MAX))

    @property
    def newer(self) -> str | None:
        """The address of the page before, if there is one."""
        page = min(self.query.page - 1, self.last_page)
        return None if page < 1 else self.query.address(page=page)

    @property
    def older(self) -> str | None:
        """The address of the next page, if there is one."""
        more = self.last < self.found.rows_total
        return self.query.address(page=self.query.page + 1) if more else None

    @property
    def label_choices(self) -> list[str]:
        """Labels of the jobs on the page, as they are written into the search."""
        rows = [row for row in self.rows if isinstance(row, JobRow)]
        return sorted(
            {f"{name}={value}" for row in rows for name, value in row.facts["labels"].items()}
        )

    @property
    def considered_max(self) -> int:
        """How many of the newest jobs a search looks at."""
        return CONSIDERED_MAX

    @staticmethod
    def order_of(word: str) -> JobOrder:
        """The order that a column's heading chooses."""
        return JobOrder(word)

    @property
    def orders(self) -> Mapping[JobOrder, str]:
        """What the list may be sorted by."""
        return ORDER_WORDS


def job_list(parts: PageParts, project_id: UUID, query: JobQuery) -> JobList:
    """The page of a query that has no problem; without rows for a page past the last one."""
    now = parts.runtime.clock.now()
    found = parts.reports.search_jobs(query.search(project_id, now), now)
    first = (query.page - 1) * ROWS_MAX + 1
    return JobList(
        query=query,
        found=found,
        rows=tuple(
            _group_row(row) if isinstance(row, FoundGroup) else _row(row, now) for row in found.rows
        ),
        counts=dict(_counts(found.by_state, query)),
        first=first,
        last=first + len(found.rows) - 1,
        now=now,
    )


def _counts(by_state: Mapping[JobState, int], query: JobQuery) -> Iterator[tuple[str, int]]:
    """Totals of the groups, then of every state that a job is in or that is asked for."""
    for name, states in STATE_GROUPS.items():
        yield name, sum(by_state.get(state, 0) for state in states or frozenset(JobState))
    for state in JobState:
        if by_state.get(state) or state.value == query.state:
            yield state.value, by_state.get(state, 0)


def _row(row: FoundJob, now: datetime) -> JobRow:
    facts = row.facts
    state = JobState(facts["state"])
    deadline_at, left = _instant(facts["deadline_at"]), facts["remaining_seconds"]
    eta_at = None if left is None else now + timedelta(seconds=left)
    zones = sorted({Pool.parse(key).zone for key in facts["pools"]})
    ended_at = _instant(facts["ended_at"])
    return JobRow(
        facts=facts,
        tone=TONES[state],
        why="" if state is JobState.SUCCEEDED else facts["why"] or "",
        labels=tuple(facts["labels"].items())[:_LABELS_SHOWN],
        where=", ".join(zones),
        eta_at=eta_at,
        deadline_at=None if ended_at is not None else deadline_at,
        is_late=eta_at is not None and deadline_at is not None and eta_at > deadline_at,
        ended_at=ended_at,
    )


def _group_row(found: FoundGroup) -> GroupRow:
    return GroupRow(
        found=found,
        by_state=tuple(
            (state, TONES[state], count) for state, count in _live_first(found.by_state)
        ),
        ended=sum(found.by_state.get(state, 0) for state in TERMINAL_JOB_STATES),
    )


def _live_first(by_state: Mapping[JobState, int]) -> list[tuple[JobState, int]]:
    running_first = sorted(by_state, key=lambda state: state is not JobState.RUNNING)
    ended_last = sorted(running_first, key=lambda state: state not in LIVE_JOB_STATES)
    return [(state, by_state[state]) for state in ended_last]


def _instant(written: str | None) -> datetime | None:
    return None if written is None else datetime.fromisoformat(written)
