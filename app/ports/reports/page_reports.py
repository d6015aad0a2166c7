"""What the web pages read besides the reports that the API answers too.

Lives here: the questions and the shapes of the answers. Not here: a job's facts and history
(`job_reports`), its money (`read_models`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.domain.billing.phase_timeline import PhaseSpan
from app.domain.lifecycle.entities import Attempt, Instance
from app.domain.market.offer import Pool
from app.domain.market.price_book import PriceSegment
from app.ports.reports.job_reports import JobFilter, KeyOwner
from app.ports.reports.job_search import ChosenJob, FoundJobs, JobSearch

LANES_MAX = 24


@dataclass(frozen=True)
class MachineLane:
    """One machine of a job over time. `spans` are disjoint; `prices` is empty when none is known.

    label: m1, m2, … among the job's machines that ran, as in reports of cost; "" before it ran.
    """

    instance: Instance
    label: str
    spans: tuple[PhaseSpan, ...]
    prices: tuple[PriceSegment, ...]


@dataclass(frozen=True)
class JobTimeline:
    """What a job's machines did, oldest first, at most the `LANES_MAX` newest of them.

    earlier_machines: how many older ones are left out.
    """

    attempts: tuple[Attempt, ...]
    lanes: tuple[MachineLane, ...]
    earlier_machines: int


@dataclass(frozen=True)
class PriceSample:
    """From `at` on, a machine of the pool costs this much, until the next point."""

    at: datetime
    microusd_per_hour: int


class PageReports(Protocol):
    """Short reads; each answer is one consistent snapshot."""

    def key_owner(self, key_hash: str) -> KeyOwner | None:
        """Whose key has this hash; None when it is unknown or revoked."""
        ...

    def deployment_secret(self) -> str:
        """The secret that sessions are signed with; raises NotFound before the first use."""
        ...

    def list_jobs(self, wanted: JobFilter, now: datetime) -> Mapping[str, Any]:
        """A page of jobs as of now, newest first, as the API lists them: `items` and `next`."""
        ...

    def search_jobs(self, search: JobSearch, now: datetime) -> FoundJobs:
        """A page of the rows that a search finds, as of now."""
        ...

    def chosen_jobs(
        self, search: JobSearch, prefixes: Collection[str], *, everything: bool, limit: int
    ) -> list[ChosenJob]:
        """Jobs that a search finds: all of them, or those whose name has one of the prefixes."""
        ...

    def jobs_by_id(self, project_id: UUID, ids: Collection[UUID]) -> list[ChosenJob]:
        """The project's jobs among these ids, newest first."""
        ...

    def timeline(self, job_id: UUID, now: datetime) -> JobTimeline:
        """What the job's machines have done until now."""
        ...

    def pool_prices(
        self, pools: Collection[Pool], since: datetime
    ) -> Mapping[Pool, tuple[PriceSample, ...]]:
        """Recorded prices by time, from what held at `since` on; pools without any are left out."""
        ...

    def recent_events(self, job_id: UUID, limit: int) -> list[dict[str, Any]]:
        """The end of the history, newest first; `machine`: the one that an entry is about."""
        ...

    def machine_names(self, job_id: UUID) -> dict[UUID, str]:
        """What people call the job's machines that the cloud has started, by instance id."""
        ...

    def recent_metrics(self, job_id: UUID, points_max: int) -> list[dict[str, Any]]:
        """Points in order of (fence, step), thinned evenly where there are more."""
        ...
