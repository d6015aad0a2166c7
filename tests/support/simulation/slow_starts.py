"""Simulated jobs whose trainers take long to start, and what became of their deadlines.

Here: drawing such jobs from a seed, and letting several of them live in one simulated world under
the production controllers. Not here: what must hold of them (tests/simulation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sqlalchemy import text

from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import SpecError
from app.orchestration.estimates.evaluate_promise import evaluate_promise
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.runs.run_world import WorldRun, run_world
from app.simulation.scenarios.scenario import CALM
from app.simulation.simulated.simulated_cloud import spot_machines
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.world import SIMULATED_LIMITS, JobPlan, WorldSettings

START_UP_SECONDS: Final = (10.0, 1_200.0)
WORK_SECONDS: Final = (300.0, 7_200.0)
LOST_PER_HOUR: Final = 0.9
"""How often each spot machine of a rough world is taken; one time in three without a notice."""

_NOTICE_SECONDS: Final = 120.0
_MARKET_HOURS: Final = 12.0
_VARIES: Final = 0.1  # of a start-up, from one attempt to the next
_SUBMITTED_EVERY_SECONDS: Final = 20.0
_FIRST_AT_SECONDS: Final = 180.0  # prices are known by then


@dataclass(frozen=True)
class SlowStart:
    """One job. slack_seconds: between its deadline and its work, with nothing else in between."""

    name: str
    start_up_seconds: float
    work_seconds: float
    steps: int
    estimate_seconds: float
    slack_seconds: float

    @property
    def deadline_seconds(self) -> int:
        """From its submission."""
        return round(self.work_seconds + self.slack_seconds)

    @property
    def plan(self) -> JobPlan:
        """As somebody submits it: nothing that it shares tells of another's work."""
        least = self.start_up_seconds * (1 - _VARIES)
        return JobPlan(
            {
                "name": self.name,
                "run": f"train {self.name}",
                "resources": {"gpu": "V100"},
                "estimate": {"hours": round(self.estimate_seconds / 3600, 4), "gpu": "V100"},
                "deadline": f"{self.deadline_seconds}s",
            },
            Workload(
                total_steps=self.steps,
                steps_per_second=self.steps / self.work_seconds,
                progress_seconds=120.0,
                start_up_seconds=(least, self.start_up_seconds * (1 + _VARIES)),
            ),
        )


@dataclass(frozen=True)
class Lived:
    """What became of it. moves: changes of its market, by name and instant.

    refused: it would not have been accepted without accept_risk. unsafe_at: when its page said
    first that the deadline is not safe.
    """

    job: SlowStart
    state: str
    deadline_at: datetime
    ended_at: datetime | None
    attempts: int
    interruptions: int
    moves: tuple[tuple[str, datetime], ...]
    refused: bool
    unsafe_at: datetime | None

    def __str__(self) -> str:
        start, at = self.job.start_up_seconds, self.deadline_at
        late = (
            "" if self.ended_at is None else f", {(self.ended_at - at).total_seconds():.0f} s late"
        )
        moves = " ".join(kind for kind, _ in self.moves)
        return (
            f"{self.job.name}: start {start:.0f} s, work {self.job.work_seconds:.0f} s, "
            f"slack {self.job.slack_seconds:.0f} s: {self.state}{late}, {self.attempts} attempts, "
            f"{self.interruptions} interruptions; moves: {moves or None}"
        )

    @property
    def missed(self) -> bool:
        """It did not succeed by its deadline."""
        in_time = self.ended_at is not None and self.ended_at <= self.deadline_at
        return self.state != "succeeded" or not in_time

    @property
    def foretold(self) -> bool:
        """Whoever looked knew of the miss before it came."""
        return self.refused or (self.unsafe_at is not None and self.unsafe_at < self.deadline_at)


def roomy(seed: int, count: int, work: tuple[float, float] = WORK_SECONDS) -> Iterator[SlowStart]:
    """Jobs with a slack of the reserve for on-demand machines and three start-ups, or more."""
    dice = Dice(seed, "slow starts")
    for number in range(count):
        start_up = _between(dice, *START_UP_SECONDS)
        work_seconds = _between(dice, *work)
        slack = SIMULATED_LIMITS.on_demand_acquire_seconds + 3 * start_up * (1 + _VARIES)
        more = dice.uniform(0.0, 1.5) * slack if dice.chance(0.7) else 0.0
        yield _job(dice, f"roomy-{seed}-{number}", start_up, work_seconds, slack + more)


def tight(seed: int, count: int, work: tuple[float, float] = WORK_SECONDS) -> Iterator[SlowStart]:
    """Jobs with less slack than that, down to almost none."""
    dice = Dice(seed, "slow starts")
    for number in range(count):
        start_up = _between(dice, *START_UP_SECONDS)
        work_seconds = _between(dice, *work)
        slack = SIMULATED_LIMITS.on_demand_acquire_seconds + 3 * start_up
        yield _job(
            dice, f"tight-{seed}-{number}", start_up, work_seconds, slack * dice.uniform() ** 2
        )


def live(
    url: str, seed: int, jobs: Iterable[SlowStart], *, rough: bool, weighed: bool = False
) -> list[Lived]:
    """Let the jobs live in one world on an empty, migrated database, and see what became of them.

    rough: spot machines are taken, with and without a notice, and spot pools run dry. weighed: ask
    at each submission whether its promise would have been accepted. Raises SimulationFailed.
    """
    planned = list(jobs)
    refused: set[str] = set()
    found: list[Lived] = []

    def begin(run: WorldRun) -> None:
        for number, job in enumerate(planned):
            at = _FIRST_AT_SECONDS + number * _SUBMITTED_EVERY_SECONDS
            if weighed:
                _evaluate(run, job, at, refused)
            plan = job.plan
            run.world.plan(JobPlan(plan.spec, plan.workload, at))
        if rough:
            _lose_spot(run, len(planned), hours)

    def finish(run: WorldRun) -> None:
        found.extend(_lived(run, job, job.name in refused) for job in planned)

    hours = max(job.deadline_seconds for job in planned) / 3600 + 0.5
    market = replace(CALM, drought_every_hours=1.5, drought_lasts_hours=0.4) if rough else CALM
    settings = WorldSettings(seed, _MARKET_HOURS, market)
    run_world(url, settings, begin, hours, f"slow starts, seed {seed}", finish=finish)
    return found


def _lose_spot(run: WorldRun, most: int, hours: float) -> None:
    """Take spot machines until then. most: that there are at once."""
    world, dice = run.world, run.world.entropy.stream("slow starts/losses")

    def lose() -> None:
        # Where fewer than the most are there, so many of the instants fall on none of them.
        living, at = spot_machines(list(world.clouds.values())), dice.between(0, most - 1)
        if at < len(living):
            notice = None if dice.chance(1 / 3) else _NOTICE_SECONDS
            world.clouds[living[at].pool.provider].give_notice(living[at], notice)
        plan()

    def plan() -> None:
        if world.clock.elapsed_seconds < 3600 * hours:
            world.loop.after(dice.waiting_seconds(3600 / (LOST_PER_HOUR * most)), lose)

    plan()


def _evaluate(run: WorldRun, job: SlowStart, at: float, refused: set[str]) -> None:
    def ask() -> None:
        try:
            evaluate_promise(run.world.runtime, run.world.project_id, parse_spec(job.plan.spec))
        except SpecError:
            refused.add(job.name)

    run.world.loop.after(at - 1.0, ask)


def _lived(run: WorldRun, job: SlowStart, refused: bool) -> Lived:
    with run.world.engine.connect() as connection:
        row = connection.execute(
            text(
                "SELECT id, state, deadline_at, ended_at, (SELECT count(*) FROM attempts "
                " WHERE job_id = jobs.id) AS attempts, (SELECT count(*) FROM attempts "
                " WHERE job_id = jobs.id AND end_reason = 'spot_interrupted') AS interruptions "
                "FROM jobs WHERE name = :name"
            ),
            {"name": job.name},
        ).one()
        events = connection.execute(
            text(
                "SELECT kind, at FROM events WHERE job_id = :job AND kind IN "
                "('moved_to_on_demand', 'moved_to_spot', 'deadline_unsafe') ORDER BY seq"
            ),
            {"job": row.id},
        ).all()
    return Lived(
        job,
        row.state,
        row.deadline_at,
        row.ended_at,
        row.attempts,
        row.interruptions,
        tuple((one.kind, one.at) for one in events if one.kind != "deadline_unsafe"),
        refused,
        next((one.at for one in events if one.kind == "deadline_unsafe"), None),
    )


def _job(dice: Dice, name: str, start_up: float, work: float, slack: float) -> SlowStart:
    """Half of the estimates are right; the others are off by up to a quarter."""
    off = 1.0 if dice.chance(0.5) else dice.uniform(0.8, 1.25)
    steps = max(20, round(work * dice.choice((0.05, 0.3, 1.0))))
    return SlowStart(name, start_up, work, steps, work * off, slack)


def _between(dice: Dice, least: float, most: float) -> float:
    """As likely to double as to halve."""
    return float(least * (most / least) ** dice.uniform())
