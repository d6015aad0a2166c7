"""Broken controllers are caught, each by the rule it breaks: the rules are no decoration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from app.domain.billing.ledger import Entry
from app.domain.lifecycle.entities import Assignment
from app.domain.lifecycle.instance import EndedBy
from app.orchestration.agents.watch_contacts import WatchContacts
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.controller_frame import AnyController
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.silence import GivenUpBy
from app.orchestration.gang.release_order import order_release
from app.orchestration.instances.launch_instances import LaunchAnswer, LaunchInstances, LaunchWork
from app.orchestration.instances.reconcile_instances import (
    Listing,
    MachineCheckBatch,
    ReconcileInstances,
)
from app.orchestration.instances.release_instances import ReleaseInstances
from app.orchestration.money.accrue_costs import AccrueCosts
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.transitions.expire_deadlines import ExpireDeadlines
from app.orchestration.transitions.lose_instances import record_lease_over
from app.ports.cloud_provider import MachineState
from app.simulation.runs.failure_report import SimulationFailed
from app.simulation.runs.run_world import WorldRun, run_world
from app.simulation.scenarios.scenario import agent, one_job, when
from app.simulation.scenarios.scenarios import SCENARIOS
from app.simulation.simulated.world import WorldSettings
from app.storage.money.money_repository import LedgerRow

Script = Callable[[WorldRun], None]


class GivesNothingBack(ReleaseInstances):
    """Says that it gave machines back."""

    def effect(self, work: Any) -> None:
        return None


class ForgetsItsToken(LaunchInstances):
    """Asks again under a new token when an answer was lost."""

    def effect(self, work: LaunchWork) -> LaunchAnswer:
        token = self._runtime.entropy.new_token()
        return super().effect(replace(work, order=replace(work.order, client_token=token)))


class ReleasesOnSilence(WatchContacts):
    """Two missed reports are enough for it."""

    def _judge(self, aggregate: JobAggregate, instance: Any, answered_at: Any) -> None:
        reason = "no report for a while"
        order_release(aggregate, [instance], reason, given_up_by=GivenUpBy.SILENCE)


class EndsLeasesEarly(WatchContacts):
    """Two missed reports are the end of a lease for it."""

    def _judge(self, aggregate: JobAggregate, instance: Any, answered_at: Any) -> None:
        record_lease_over(aggregate, instance, self._runtime.limits)


class TakesEveryMachineForGone(ReconcileInstances):
    """Reads `running` as `terminated`."""

    def effect(self, work: MachineCheckBatch) -> Listing:
        seen = super().effect(work)
        gone = {
            name: replace(machine, state=MachineState.TERMINATED, ended_by=EndedBy.US)
            for name, machine in (seen.machines or {}).items()
        }
        return replace(seen, machines=gone)


class RoundsUp(AccrueCosts):
    """Books a micro-dollar too many with each entry."""

    def _row(
        self,
        entry: Entry,
        spans: Sequence[Assignment],
        projects: dict[UUID, UUID],
        booked_at: datetime,
    ) -> LedgerRow:
        more = replace(entry, amount_microusd=entry.amount_microusd + 1)
        return super()._row(more, spans, projects, booked_at)


class CallsInsideItsTransaction(ClaimJobs):
    """Looks at the cloud while it holds the job's lock."""

    def _claim(self, aggregate: JobAggregate, *rest: Any) -> None:
        self._runtime.providers["aws"].describe(())
        super()._claim(aggregate, *rest)


class NeverExpires(ExpireDeadlines):
    """Says when it is due, and finds nothing then."""

    def select(self, uow: Any, limit: int) -> list[Any]:
        return []


class SkipsTheTable(ClaimJobs):
    """Writes a state without its event."""

    def _claim(self, aggregate: JobAggregate, *rest: Any) -> None:
        super()._claim(aggregate, *rest)
        aggregate.job.state = type(aggregate.job.state).RUNNING


def nothing(run: WorldRun) -> None:
    """A calm world is enough."""


def the_second_machine_hangs(run: WorldRun) -> None:
    when(run, "attempt_started", lambda: agent(run, 1).die(), after=100.0)


def a_launch_is_not_answered(run: WorldRun) -> None:
    for cloud in run.world.clouds.values():
        cloud.faults.lose_reply = 1


BROKEN: dict[str, tuple[type[Any], Script, str]] = {
    "gives nothing back": (GivesNothingBack, nothing, "gone soon"),
    "forgets its token": (
        ForgetsItsToken,
        a_launch_is_not_answered,
        "more machines than its count",
    ),
    "releases on silence": (ReleasesOnSilence, the_second_machine_hangs, "second witness"),
    "ends leases early": (EndsLeasesEarly, the_second_machine_hangs, "second witness"),
    "takes every machine for gone": (TakesEveryMachineForGone, nothing, "only a machine that is"),
    "rounds up": (RoundsUp, nothing, r"entries = bill\(\)"),
    "calls inside its transaction": (CallsInsideItsTransaction, nothing, "inside a transaction"),
    "never expires": (
        NeverExpires,
        the_second_machine_hangs,
        "a timer that has come|found nothing",
    ),
    "skips the table": (SkipsTheTable, nothing, "only through its table"),
}


def with_one_broken(broken: type[Any]) -> Callable[[Runtime], tuple[AnyController, ...]]:
    def controllers(runtime: Runtime) -> tuple[AnyController, ...]:
        return tuple(
            broken(runtime) if found.name == broken.name else found
            for found in all_controllers(runtime)
        )

    return controllers


# Those that are caught late, after a whole calm world.
LONG = {"rounds up", "gives nothing back"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name in LONG else name for name in BROKEN],
)
def test_a_broken_controller_is_caught(name: str, database_url: str) -> None:
    broken, script, rule = BROKEN[name]
    settings = WorldSettings(
        1, 2.0, market=SCENARIOS["calm"].market, controllers=with_one_broken(broken)
    )

    def begin(run: WorldRun) -> None:
        run.world.plan(one_job())
        script(run)

    with pytest.raises(SimulationFailed, match=rule):
        run_world(database_url, settings, begin, 2.0, name)


def test_a_cut_off_machine_that_writes_on_is_caught(database_url: str) -> None:
    """The store's own watch: a manifest of an older attempt breaks the lineage."""

    def write_behind_the_back(run: WorldRun) -> None:
        store = run.world.store
        key = next(key for key in store.list_keys("") if "/manifests/0000000001/" in key)
        job_id = UUID(key.partition("/")[0])
        later = key.replace("000000000450.json", "000000000451.json")
        assert later != key
        store.put_new(f"{job_id}/fences/0000000009.json", FENCE_9)
        store.put_new(later, store.get(key))

    settings = WorldSettings(1, 2.0, market=SCENARIOS["calm"].market)

    def begin(run: WorldRun) -> None:
        run.world.plan(one_job())
        when(run, "checkpoint_committed", lambda: write_behind_the_back(run), after=5.0)

    with pytest.raises(SimulationFailed, match="lineage"):
        run_world(database_url, settings, begin, 2.0, "writes behind our back")


FENCE_9 = b'{"fence": 9, "parent": null, "instance_id": "someone"}'
