"""What Prometheus may know of this process and of the deployment.

Lives here: counting requests (an ASGI layer) and the gauges that a scrape reads from the database.
Both cost the same on any day: routes are counted by their pattern, gauges stop at a bound. Not
here: the route that hands them out (`health_routes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES
from app.domain.lifecycle.job import LIVE_JOB_STATES
from app.domain.units.money import MICROUSD_PER_USD
from app.storage.reports.deployment_facts import DeploymentFacts

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_UNKNOWN = "unknown"

# A second series for each counter, which nobody reads.
disable_created_metrics()  # type: ignore[no-untyped-call]


class RequestCounts:
    """Requests of one process by method, route and status, and how long they took."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "lowtide_api_requests",
            "Requests answered",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "lowtide_api_request_seconds",
            "Time from a request to the end of its answer",
            ("route",),
            buckets=_BUCKETS,
            registry=self.registry,
        )

        # Looking these up is dearer than counting. As many as there are series.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request. route: its pattern, never its path."""
        key = (method, route, status)
        found = self._children.get(key)
        if found is None:
            found = (
                self._requests.labels(method, route, str(status)),
                self._seconds.labels(route),
            )
            self._children[key] = found
        found[0].inc()
        found[1].observe(seconds)


class CountRequests:
    """ASGI layer around everything else."""

    def __init__(self, app: ASGIApp, counts: RequestCounts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        begun = loop.time()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", _UNKNOWN)
            method = scope["method"] if route != _UNKNOWN else _UNKNOWN
            self._counts.observe(method, route, status, loop.time() - begun)


def exposition(
    counts: RequestCounts, facts: DeploymentFacts, free_bytes: Mapping[str, int]
) -> bytes:
    """The text that Prometheus reads. free_bytes: room on the disk, by the name of a folder."""
    gauges = CollectorRegistry()
    gauges.register(_Gauges(facts, free_bytes))
    return generate_latest(counts.registry) + generate_latest(gauges)


class _Gauges:
    """The facts of one scrape, as a collector."""

    def __init__(self, facts: DeploymentFacts, free_bytes: Mapping[str, int]) -> None:
        self._facts = facts
        self._free_bytes = free_bytes

    def collect(self) -> Iterator[Metric]:
        """Every gauge, states without a row included as 0."""
        facts = self._facts
        jobs = {state.value: facts.jobs_by_state.get(state.value, 0) for state in LIVE_JOB_STATES}
        yield _by_label("lowtide_jobs", "Jobs that have not ended, by state", "state", jobs)
        yield GaugeMetricFamily(
            "lowtide_queue_depth", "Jobs that wait for machines", value=facts.queue_depth
        )
        yield GaugeMetricFamily(
            "lowtide_queue_oldest_wait_seconds",
            "How long the job that waits longest has had no attempt",
            value=facts.oldest_wait_seconds,
        )
        yield _by_label(
            "lowtide_instances",
            "Machines that are not confirmed gone, by state",
            "state",
            {one.value: facts.instances_by_state.get(one.value, 0) for one in LIVE_INSTANCE_STATES},
        )
        yield GaugeMetricFamily(
            "lowtide_launches_open",
            "Launches whose outcome is still to be asked from the cloud",
            value=facts.open_launches,
        )
        yield GaugeMetricFamily(
            "lowtide_launch_oldest_open_seconds",
            "Since when the oldest launch that is open was begun",
            value=facts.oldest_launch_seconds,
        )
        yield _by_label(
            "lowtide_controller_age_seconds",
            "Since when no worker has looked whether a controller has work",
            "controller",
            facts.controller_age_seconds,
        )
        yield _by_label(
            "lowtide_disk_free_bytes",
            "Room on the disk under a folder of this deployment",
            "folder",
            self._free_bytes,
        )
        yield from self._agents()
        yield from self._money()

    def _agents(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "lowtide_instances_unreachable",
            "Machines whose agent is silent, so that they may be gone",
            value=self._facts.unreachable_instances,
        )
        yield GaugeMetricFamily(
            "lowtide_agent_oldest_report_seconds",
            "Since when the agent heard least recently has not reported",
            value=self._facts.oldest_report_seconds,
        )

    def _money(self) -> Iterator[Metric]:
        """In dollars, as people set alerts on them. The ledger counts micro-dollars."""
        spends = self._facts.spend_by_project
        yield _by_label(
            "lowtide_hourly_cost_usd",
            "What the machines that are billed now cost an hour",
            "project",
            {name: one.microusd_per_hour / MICROUSD_PER_USD for name, one in spends.items()},
        )
        yield _by_label(
            "lowtide_cost_today_usd",
            "Booked for use since 00:00 UTC",
            "project",
            {name: one.today_microusd / MICROUSD_PER_USD for name, one in spends.items()},
        )
        yield GaugeMetricFamily(
            "lowtide_books_differences",
            "Machines and days whose entries in the ledger and sums in reports differ",
            value=self._facts.books_differences,
        )


def _by_label(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """One gauge with a figure for each value of one label."""
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for value in sorted(values):
        family.add_metric([value], values[value])
    return family
