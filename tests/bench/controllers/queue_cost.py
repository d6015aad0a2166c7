"""What it costs to claim and complete a job: the queue's own part, and the whole claim.

Claiming here is far more than taking from a queue: the gang is placed among the offers, money is
reserved, and attempt, launch, instances and history are written. So two things are measured. The
queue's own part is what every queue must do: find the first ready job, lock it past other workers,
change its state, commit, and once more to complete it. That is compared with plain SKIP LOCKED.
The whole claim is compared with itself on a table with a long past.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from uuid import UUID

from sqlalchemy import Engine, event

from app.domain.launch_limits.launch_limits import COUNT_MAX, parse_limits
from app.domain.lifecycle.job import JobState
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.frame.runtime import Runtime
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.storage.instances.launch_gate import DeploymentLimits
from app.storage.session.engine import make_engine
from tests.bench import job_rows
from tests.bench.bench_environment import BenchEnvironment, driver_url
from tests.bench.controllers.reference_queue import ReferenceQueue
from tests.bench.process_cost import Meter
from tests.bench.results import Figure
from tests.support.api.agent_api import make_runtime

CLAIMS_PER_LEASE = ClaimJobs.limit


@dataclass(frozen=True)
class Side:
    """One database with our tables."""

    url: str
    engine: Engine
    runtime: Runtime
    project_id: UUID


def measure(around: BenchEnvironment) -> list[Figure]:
    """The queue's own part beside the reference, then whole claims with and without a past."""
    with ExitStack() as stack:
        empty = _side(around, stack)
        reference = ReferenceQueue(driver_url(around.postgres.clone()))
        stack.callback(reference.close)
        figures = _own_part(around, empty, reference)
        full, limited = _side(around, stack), _side(around, stack)
        return figures + _whole_claims(around, empty, full, limited)


def _side(around: BenchEnvironment, stack: ExitStack) -> Side:
    url = around.postgres.clone()
    engine = make_engine(url)
    stack.callback(engine.dispose)
    runtime = make_runtime(engine, around.new_folder("store"))
    project_id = job_rows.make_deployment(engine)
    job_rows.store_offers(runtime)
    return Side(url, engine, runtime, project_id)


# --- the queue's own part -------------------------------------------------------------------------


def _own_part(around: BenchEnvironment, side: Side, reference: ReferenceQueue) -> list[Figure]:
    rounds, count = (2, 200) if around.quick else (5, 400)
    around.say(f"queueing {(rounds + 1) * count} jobs on both sides")
    job_rows.queue_jobs(side.runtime, side.project_id, (rounds + 1) * count)
    reference.fill((rounds + 1) * count, job_rows.SPEC)
    job_rows.analyze(side.engine)
    sides: dict[str, Callable[[], None]] = {
        "lowtide": lambda: _claim_and_complete(side.runtime, count),
        "reference": lambda: reference.work(count),
    }
    costs = _interleaved(around, sides, rounds, count)
    ratio = _median_ratio(costs, "lowtide", "reference")
    detail = {name: _middle(rounds_of) for name, rounds_of in costs.items()}
    ours, theirs = detail["lowtide"], detail["reference"]
    return [
        Figure("queue", "claim + complete CPU, of SKIP LOCKED's", ratio, "x", 1.25, True, detail),
        Figure(
            "queue",
            "its PostgreSQL CPU alone, of SKIP LOCKED's",
            ours["postgres_us"] / theirs["postgres_us"],
            "x",
        ),
        Figure("queue", "claim + complete CPU", ours["worker_us"] + ours["postgres_us"], "us/job"),
        Figure(
            "queue",
            "plain SKIP LOCKED CPU",
            theirs["worker_us"] + theirs["postgres_us"],
            "us/job",
        ),
    ]


def _claim_and_complete(runtime: Runtime, count: int) -> None:
    """The queue's statements as the claim uses them, leased as the claim leases them."""
    done = 0
    while done < count:
        with runtime.begin() as uow:
            ready = uow.jobs.ready(uow.now, min(CLAIMS_PER_LEASE, count - done))
        if not ready:
            raise RuntimeError("our queue is empty")
        for job_id in (payer.job_id for payer in ready):
            _move(runtime, job_id, JobState.STARTING)
            _move(runtime, job_id, JobState.SUCCEEDED)
        done += len(ready)


def _move(runtime: Runtime, job_id: UUID, state: JobState) -> None:
    with runtime.begin() as uow:
        job = uow.jobs.lock(job_id, skip_locked=state is JobState.STARTING)
        if job is None:
            raise RuntimeError("somebody else has the job")
        job.state = state
        job.version += 1
        job.updated_at = datetime.now(UTC)
        if state is JobState.SUCCEEDED:
            job.ended_at = job.updated_at


# --- whole claims ---------------------------------------------------------------------------------


def _whole_claims(around: BenchEnvironment, empty: Side, full: Side, limited: Side) -> list[Figure]:
    """limited: its machines are under limits of the deployment, which every claim counts."""
    rounds, count = (2, 40) if around.quick else (5, 80)
    past = 50_000 if around.quick else 1_000_000
    _limit(limited)
    for side in (empty, full, limited):
        # One more lease's worth, for counting statements.
        total = (rounds + 1) * count + CLAIMS_PER_LEASE
        job_rows.queue_jobs(side.runtime, side.project_id, total)
    began = time.perf_counter()
    around.say(f"writing {past:,} finished jobs")
    job_rows.add_finished_jobs(full.url, full.project_id, past)
    around.say(f"written in {time.perf_counter() - began:.0f} s")
    for side in (empty, full, limited):
        job_rows.analyze(side.engine)
    looks = {name: _looks(around, side) for name, side in (("empty", empty), ("full", full))}
    statements = _statements_of(empty)
    sides: dict[str, Callable[[], None]] = {
        "empty": lambda: _claim(empty, count),
        "full": lambda: _claim(full, count),
        "limited": lambda: _claim(limited, count),
    }
    costs = _interleaved(around, sides, rounds, count)
    detail: dict[str, object] = {name: _middle(found) for name, found in costs.items()}
    detail |= {"finished_rows": past, "statements_per_claim": statements}
    ours, under_limits = _middle(costs["empty"]), _middle(costs["limited"])
    what = f"claim CPU with {past:,} finished jobs, of empty"
    return [
        Figure("queue", what, _median_ratio(costs, "full", "empty"), "x", 1.3, True, detail),
        Figure(
            "queue",
            f"one look of every controller with {past:,} finished jobs, CPU",
            sum(looks["full"].values()),
            "ms",
            detail={"ms_with": looks["full"], "ms_without": looks["empty"]},
        ),
        Figure("queue", "the same without", sum(looks["empty"].values()), "ms"),
        Figure("queue", "whole claim CPU", ours["worker_us"] + ours["postgres_us"], "us/job"),
        Figure("queue", "whole claim, PostgreSQL's part", ours["postgres_us"], "us/job"),
        Figure("queue", "whole claim, statements", statements, ""),
        Figure("queue", "whole claims by one worker", ours["per_second"], "/s"),
        Figure(
            "queue",
            "the same under limits of the deployment",
            under_limits["per_second"],
            "/s",
            100,
            at_most=False,
            detail=under_limits,
        ),
    ]


def _limit(side: Side) -> None:
    """As many limits as there can be, with room for every machine."""
    limits = parse_limits(
        {
            "machines": COUNT_MAX,
            "gpus": {"all": COUNT_MAX, "V100": COUNT_MAX},
            "max_hourly_spend_usd": COUNT_MAX,
        }
    )
    with side.runtime.begin() as uow:
        document = limits.to_json()
        uow.launch_gate.limit_deployment(DeploymentLimits(document, uow.now, "person:bench"))


def _claim(side: Side, count: int) -> None:
    """Claim so many by the production controller, in whole runs."""
    done = 0
    while done < count:
        controller = ClaimJobs(side.runtime)
        controller.limit = min(CLAIMS_PER_LEASE, count - done)
        worked = run_controller(side.runtime, controller)
        if worked == 0:
            raise RuntimeError("our queue is empty")
        done += worked


def _looks(around: BenchEnvironment, side: Side) -> dict[str, float]:
    """CPU milliseconds, PostgreSQL's included, of a controller's asking whether there is work."""
    found = {}
    clocks = {"postgres": around.postgres.cpu_seconds, "worker": time.process_time}
    for controller in all_controllers(side.runtime):
        for _ in range(2):  # the second is kept: the first also plans and loads
            with Meter(clocks) as meter, side.runtime.begin() as uow:
                controller.next_due(uow)
                controller.select(uow, controller.limit)
        found[controller.name] = round(meter.cost.per(1) / 1000, 2)
    return found


def _statements_of(side: Side) -> float:
    """Statements in one claim, begin and commit left out."""
    seen: list[str] = []

    def note(*arguments: object) -> None:
        seen.append(str(arguments[2]))

    event.listen(side.engine, "before_cursor_execute", note)
    try:
        _claim(side, CLAIMS_PER_LEASE)
    finally:
        event.remove(side.engine, "before_cursor_execute", note)
    return len(seen) / CLAIMS_PER_LEASE


# --- rounds ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundCost:
    """CPU microseconds per job, and jobs per second."""

    worker_us: float
    postgres_us: float
    per_second: float

    @property
    def total_us(self) -> float:
        """Of both."""
        return self.worker_us + self.postgres_us


def _interleaved(
    around: BenchEnvironment, sides: dict[str, Callable[[], None]], rounds: int, count: int
) -> dict[str, list[RoundCost]]:
    """Rounds of each side in turn, after one that does not count."""
    found: dict[str, list[RoundCost]] = {name: [] for name in sides}
    clocks = {"postgres": around.postgres.cpu_seconds, "worker": time.process_time}
    for number in range(rounds + 1):
        for name, work in sides.items():
            with Meter(clocks) as meter:
                work()
            cost = RoundCost(
                meter.cost.per(count, "worker"),
                meter.cost.per(count, "postgres"),
                count / meter.cost.wall_seconds,
            )
            if number:
                found[name].append(cost)
                around.say(
                    f"round {number}/{rounds} {name}: {cost.worker_us:.0f} us + PostgreSQL "
                    f"{cost.postgres_us:.0f} us per job, {cost.per_second:,.0f}/s"
                )
    return found


def _median_ratio(costs: dict[str, list[RoundCost]], one: str, other: str) -> float:
    pairs = zip(costs[one], costs[other], strict=True)
    return median(mine.total_us / theirs.total_us for mine, theirs in pairs)


def _middle(rounds: list[RoundCost]) -> dict[str, float]:
    return {
        name: round(median(getattr(one, name) for one in rounds), 1)
        for name in ("worker_us", "postgres_us", "per_second")
    }
