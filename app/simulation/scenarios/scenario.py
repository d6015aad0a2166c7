"""What a named scenario is made of, and what its script and its check may use.

Not here: the scenarios themselves (`cloud_scenarios`, `control_plane_scenarios`,
`agent_scenarios`, `api_scenarios`, `elastic_scenarios`, `byzantine_scenarios`, `hour_scenarios`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import text

from app.orchestration.frame.runtime import Limits
from app.simulation.engine.invariant_error import InvariantError
from app.simulation.faults.fault_kinds import Fault
from app.simulation.runs.run_world import WorldRun
from app.simulation.simulated.simulated_agent import SimulatedAgent
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.simulated_machine import SimulatedMachine
from app.simulation.simulated.simulated_market import MarketSettings
from app.simulation.simulated.world import SIMULATED_LIMITS, JobPlan

CALM = MarketSettings(drought_every_hours=0.0)
"""A market that never runs dry by itself."""


def one_job(nodes: int | str = 2, workload: Workload | None = None, **spec: object) -> JobPlan:
    """A job of an hour and twenty minutes, submitted at the start."""
    work = workload or Workload(total_steps=2_400, checkpoint_seconds=900.0)
    named = {"name": "job", "run": "train", "nodes": nodes, "resources": {"gpu": "V100"}}
    return JobPlan({**named, **spec}, work, 1.0)


def short_job(nodes: int | str = 2, workload: Workload | None = None, **spec: object) -> JobPlan:
    """A job of half an hour that saves every five minutes."""
    work = workload or Workload(total_steps=900, checkpoint_seconds=300.0)
    return one_job(nodes, work, **spec)


@dataclass(frozen=True)
class Scenario:
    """One world about one thing. script: what goes wrong; check: what must have come of it.

    project_cap_microusd: what all of its jobs may cost together.
    """

    script: Callable[[WorldRun], None]
    check: Callable[[WorldRun], None]
    jobs: tuple[JobPlan, ...] = field(default_factory=lambda: (one_job(),))
    hours: float = 3.0
    market: MarketSettings = CALM
    limits: Limits = SIMULATED_LIMITS
    project_cap_microusd: int | None = None
    api_processes: int = 1


class EndState:
    """What became of a scenario's world, by name."""

    def __init__(self, run: WorldRun) -> None:
        self._run = run

    def job(self, name: str = "job") -> Any:
        """The job's row."""
        return self._one("SELECT * FROM jobs WHERE name = :name", name=name)

    def states(self) -> dict[str, str]:
        """Every job's state, by name."""
        rows = self._all("SELECT name, state FROM jobs ORDER BY name")
        return {row.name: row.state for row in rows}

    def attempts(self, name: str = "job") -> list[Any]:
        """The job's attempts, by fence."""
        return self._all(
            "SELECT attempts.* FROM attempts JOIN jobs ON jobs.id = attempts.job_id "
            "WHERE jobs.name = :name ORDER BY fence",
            name=name,
        )

    def instances(self) -> list[Any]:
        """All instances, by request."""
        return self._all("SELECT * FROM instances ORDER BY requested_at, id")

    def decisions(self, name: str = "job") -> list[Any]:
        """What was decided about the job's machines, in order."""
        return self._all(
            "SELECT placement_decisions.* FROM placement_decisions "
            "JOIN jobs ON jobs.id = job_id WHERE jobs.name = :name ORDER BY decision_no",
            name=name,
        )

    def kinds(self, name: str = "job") -> list[str]:
        """Kinds of the job's history, in order."""
        rows = self._all(
            "SELECT kind FROM events JOIN jobs ON jobs.id = events.job_id "
            "WHERE jobs.name = :name ORDER BY seq",
            name=name,
        )
        return [row.kind for row in rows]

    def machines(self) -> list[SimulatedMachine]:
        """Every machine that clouds ever started."""
        clouds = self._run.world.clouds
        return [one for name in sorted(clouds) for one in clouds[name].machines.values()]

    def expect(self, holds: bool, what: str) -> None:
        """Raises InvariantError when it does not hold."""
        if not holds:
            raise InvariantError("the scenario ends as it must", what)

    def succeeded(self, attempts: int | None = None) -> None:
        """The job has succeeded, after so many attempts."""
        job = self.job()
        self.expect(job.state == "succeeded", f"the job is {job.state}: {job.end_message}")
        if attempts is not None:
            found = [f"{one.fence} {one.state} {one.end_reason}" for one in self.attempts()]
            self.expect(len(found) == attempts, f"{attempts} attempts wanted, not {found}")

    def _one(self, statement: str, **given: object) -> Any:
        return self._all(statement, **given)[0]

    def _all(self, statement: str, **given: object) -> list[Any]:
        with self._run.world.engine.connect() as connection:
            return list(connection.execute(text(statement), given))


def when(
    run: WorldRun, kind: str, deed: Callable[[], object], after: float = 0.0, nth: int = 1
) -> None:
    """Once the history shows the nth event of this kind, do the deed so many seconds later."""
    seen = 0

    def listen(found: str) -> None:
        nonlocal seen
        seen += found == kind
        if seen == nth and found == kind:
            run.world.loop.after(after, _silent(deed))

    run.invariants.history.listeners.append(listen)


def _silent(deed: Callable[[], object]) -> Callable[[], None]:
    """The deed, its answer left aside."""

    def do() -> None:
        deed()

    return do


def at(run: WorldRun, seconds: float, deed: Callable[[], object]) -> None:
    """Do the deed at so many virtual seconds from the start."""
    run.world.loop.after(seconds, _silent(deed))


def often(
    run: WorldRun, faults: Sequence[Fault], every: float, until: float = 3_600.0, since: float = 0.0
) -> None:
    """Inject each of the faults every so many seconds, one after the other."""
    seconds = since
    while seconds < until:
        for place, fault in enumerate(faults):
            at(run, seconds + place, partial(run.faults.inject, fault))
        seconds += every


def machine(run: WorldRun, place: int = 0) -> SimulatedMachine:
    """The living machine at this place in the order of launching."""
    clouds = run.world.clouds
    living = [one for name in sorted(clouds) for one in clouds[name].alive()]
    return sorted(living, key=lambda one: (one.launched_us, one.machine_id))[place]


def agent(run: WorldRun, place: int = 0) -> SimulatedAgent:
    """The agent of such a machine."""
    return run.world.agents[machine(run, place).machine_id]


def take(run: WorldRun, notice_seconds: float | None, place: int = 0, kill: bool = True) -> None:
    """The cloud takes such a machine. notice_seconds: its warning, None for none."""
    taken = machine(run, place)
    run.world.clouds[taken.pool.provider].give_notice(taken, notice_seconds, kill=kill)


def nothing(_run: WorldRun) -> None:
    """The script of a world whose jobs bring their own trouble."""


def given_back_when_overdue(run: WorldRun) -> None:
    """The machine that a notice named, and that lived on, was released by us."""
    seen = EndState(run)
    seen.succeeded()
    noticed = [one.ended_by for one in seen.instances() if one.noticed_at is not None]
    seen.expect(noticed == ["us"], f"{noticed}")


def recovered_with_a_witness(run: WorldRun) -> None:
    """The job went on without a machine whose silence the history shows."""
    seen = EndState(run)
    seen.succeeded(attempts=2)
    seen.expect("instance_unreachable" in seen.kinds(), "its silence was never shown")


def known_again(run: WorldRun) -> None:
    """The job succeeded, and a machine that no row knew was adopted."""
    seen = EndState(run)
    seen.succeeded()
    adopted = [one for one in seen.instances() if one.origin == "adopted"]
    seen.expect(bool(adopted), "no machine was adopted")


def in_an_hour(
    script: Callable[[WorldRun], None],
    check: Callable[[WorldRun], None],
    *jobs: JobPlan,
    **settings: Any,
) -> Scenario:
    """A scenario of one hour, with one short job unless others are named."""
    return Scenario(script, check, jobs=jobs or (short_job(),), hours=1.0, **settings)


def check_succeeded(attempts: int | None = None) -> Callable[[WorldRun], None]:
    """The check that the one job has succeeded."""
    return lambda run: EndState(run).succeeded(attempts)
