"""What the list of jobs on the pages is asked for, and what it answers: rows, counts, totals.

Not here: how people write a search (`jobs.job_query`), or the REST API's list (`job_reports`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from app.domain.lifecycle.job import JobState

CONSIDERED_MAX: Final = 10_000
"""Jobs of a project that one search looks at: its newest, and as many live ones before them."""
GROUP_JOBS_MIN: Final = 3
"""Fewer jobs with one prefix stay rows of their own."""


class JobOrder(StrEnum):
    """How the rows are ordered. A group stands where its first job would, or by its sums."""

    STATE = "state"
    """Running, then starting and the like, queued, paused; ended ones last, newest end first."""
    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"
    COST = "cost"
    RATE = "rate"


@dataclass(frozen=True)
class JobSearch:
    """Which jobs of a project, and which rows of them.

    states: empty means all. name: a part of the name. prefix: the name before its last `-NNN`.
    labels: each must be there, with its value; None: with any. grouped: jobs that share a prefix
    are one row. offset, limit: in rows. today_at: when the day of the totals began.
    """

    project_id: UUID
    today_at: datetime
    states: frozenset[JobState] = frozenset()
    name: str = ""
    prefix: str = ""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    order: JobOrder = JobOrder.STATE
    grouped: bool = False
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True)
class FoundJob:
    """A row that is one job: the facts that the REST list has of it."""

    facts: Mapping[str, Any]


@dataclass(frozen=True)
class FoundGroup:
    """A row that stands for all jobs `PREFIX-NNN` that the search finds.

    spent_microusd: since they were submitted. newest_at: when the newest was submitted.
    compared_microusd: what their work would have cost on demand; None unless that is known of each
    of them that cost anything.
    """

    prefix: str
    by_state: Mapping[JobState, int]
    spent_microusd: int
    microusd_per_hour: int
    newest_at: datetime
    compared_microusd: int | None

    @property
    def net_saved_ratio(self) -> float | None:
        """How much less all of them cost than on demand, as of one job."""
        compared = self.compared_microusd
        return 1 - self.spent_microusd / compared if compared else None

    @property
    def jobs(self) -> int:
        """How many there are."""
        return sum(self.by_state.values())


@dataclass(frozen=True)
class ProjectNow:
    """The project as a whole, whatever is searched. Money is of the day that `today_at` began."""

    microusd_per_hour: int
    spent_today_microusd: int
    running: int
    queued: int
    failed_today: int


@dataclass(frozen=True)
class FoundJobs:
    """One page of rows.

    rows_total, jobs_total: of the whole search. by_state: of the search without its states.
    is_cut: the project has more jobs than were looked at. considered: how many were.
    """

    rows: tuple[FoundJob | FoundGroup, ...]
    rows_total: int
    jobs_total: int
    by_state: Mapping[JobState, int]
    considered: int
    is_cut: bool
    now: ProjectNow


@dataclass(frozen=True)
class ChosenJob:
    """A job that somebody has chosen on the page."""

    id: UUID
    name: str
    state: JobState
    spent_microusd: int
