"""Watches a simulated world for moments at which its control plane decides about machines.

A moment is the instant, what made it come (`trigger`: the turn of a controller, an agent's report,
a cloud's answer to a launch) and how far the journal was: so the rows that it began with. Lives
here: the watchers around the production controllers and the agents' network. Not here: which
worlds there are (`worlds`), or which moments are kept (`recording`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from app.domain.deployment.credentials import digest
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.controller_frame import AnyController
from app.orchestration.frame.runtime import Runtime
from app.simulation.runs.run_world import WorldRun
from app.simulation.simulated.world import World
from tests.decisions.row_journal import Change, changes_since
from trainer.protocol.agent_report import AgentReport, FactKind, Registration
from trainer.protocol.wire import encode

TURNS = (
    "claim_jobs",
    "watch_deadlines",
    "weigh_moves",
    "resize_gangs",
    "expire_deadlines",
    "enforce_budgets",
)
"""Controllers that decide by rows alone; a turn is watched for each job."""
LAUNCHES = "launch_instances"
CLOUDS_WORD = "reconcile_instances"
_LAUNCH_OF_TOKEN = text("SELECT id FROM launches WHERE token_hash = :hash")
_NO_DECISION = frozenset({FactKind.PHASE, FactKind.METRICS})


@dataclass
class Moment:
    """One decision as the world came to it. seq: the last change before it; did: its own ones.

    did is empty where the world was not seen to do it in one transaction.
    """

    at: datetime
    trigger: dict[str, Any]
    seq: int
    did: list[Change] = field(default_factory=list)


class Watch:
    """One world's journal and moments."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.moments: list[Moment] = []
        self._launches: dict[str, Moment] = {}
        self._run: WorldRun | None = None

    # --- what a world is made with ---

    def controllers(self, runtime: Runtime) -> tuple[AnyController, ...]:
        """The production controllers, those that decide with a watcher around them."""
        made: list[AnyController] = []
        for one in all_controllers(runtime):
            if one.name in TURNS:
                made.append(_WatchedTurns(one, self))
            elif one.name == LAUNCHES:
                made.append(_WatchedLaunches(one, self))
            elif one.name == CLOUDS_WORD:
                made.append(_WatchedLooks(one, self))
            else:
                made.append(one)
        return tuple(made)

    def begin(self, run: WorldRun) -> None:
        """The world is made and nothing has happened yet."""
        self._run = run
        network = run.world.network
        answer = network.report

        def watched(credential: str, report: AgentReport, *, is_copy: bool = False) -> Any:
            if network.away or _NO_DECISION.issuperset(fact.kind for fact in report.facts):
                return answer(credential, report, is_copy=is_copy)
            moment = self._before_report(report)
            try:
                return answer(credential, report, is_copy=is_copy)
            finally:
                with self._world.engine.connect() as connection:
                    moment.did = self._read(connection)

        network.report = watched  # type: ignore[method-assign]
        register = network.register

        def watched_registration(registration: Registration) -> Any:
            moment = None if network.away else self._before_registration(registration)
            reply = register(registration)
            if moment is not None:
                with self._world.engine.connect() as connection:
                    moment.did = self._read(connection)
                self.moments.append(moment)
            return reply

        network.register = watched_registration  # type: ignore[method-assign]

    def end(self) -> None:
        """Read what came after the last moment."""
        with self._world.engine.connect() as connection:
            self._keep(connection)

    # --- what the watchers call ---

    @property
    def _world(self) -> World:
        assert self._run is not None, "the world has not begun"
        return self._run.world

    def moment(self, uow: Any, trigger: dict[str, Any]) -> Moment:
        """A moment in an open transaction that has written nothing yet."""
        seq = self._keep(uow.session.connection())
        moment = Moment(uow.now, trigger, seq)
        self.moments.append(moment)
        return moment

    def did(self, uow: Any, moment: Moment) -> None:
        """The transaction has done what it does at the moment, and is not committed yet."""
        moment.did = self._read(uow.session.connection())

    def leased(self, launch_id: str, moment: Moment) -> None:
        """The moment is known once the cloud has answered."""
        self._launches[launch_id] = moment

    def answered(self, launch_id: str, answer: dict[str, Any]) -> None:
        """The cloud's answer, of a launch that was leased alone."""
        moment = self._launches.pop(launch_id, None)
        if moment is not None:
            moment.trigger["answer"] = answer
            self.moments.append(moment)

    def before_answer(self, uow: Any) -> Moment:
        """A moment that is kept only if an answer comes."""
        return Moment(uow.now, {}, self._keep(uow.session.connection()))

    def _before_report(self, told: AgentReport) -> Moment:
        with self._world.engine.connect() as connection:
            seq = self._keep(connection)
        trigger = {"kind": "report", "report": encode(told)}
        moment = Moment(self._world.clock.now(), trigger, seq)
        self.moments.append(moment)
        return moment

    def _before_registration(self, registration: Registration) -> Moment | None:
        """By the launch, as its token is a secret; None where no launch has it."""
        token_hash = digest(registration.launch_token)
        with self._world.engine.connect() as connection:
            seq = self._keep(connection)
            launch_id = connection.execute(_LAUNCH_OF_TOKEN, {"hash": token_hash}).scalar()
        told = {**encode(registration), "launch_token": ""}
        trigger = {"kind": "registration", "launch": str(launch_id), "registration": told}
        return launch_id and Moment(self._world.clock.now(), trigger, seq)

    def _keep(self, connection: Connection) -> int:
        """Take over what has been committed; the number of the last change."""
        self.changes += self._read(connection)
        return self._last

    def _read(self, connection: Connection) -> list[Change]:
        return changes_since(connection, self._last)

    @property
    def _last(self) -> int:
        return self.changes[-1].seq if self.changes else 0


class _Watched:
    """A controller, as it is."""

    def __init__(self, controller: AnyController, watch: Watch) -> None:
        self._controller = controller
        self._watch = watch
        self.name = controller.name
        self.queue = controller.queue
        self.period_seconds = controller.period_seconds
        self.limit = controller.limit
        self.effect: Callable[[Any], Any] = controller.effect
        self.next_due: Callable[[Any], datetime | None] = controller.next_due

    def select(self, uow: Any, limit: int) -> list[Any]:
        """As the controller does."""
        return self._controller.select(uow, limit)

    def apply(self, uow: Any, work: Any, result: Any) -> None:
        """As the controller does."""
        self._controller.apply(uow, work, result)


class _WatchedTurns(_Watched):
    """A controller of which every piece is a turn for one job."""

    def apply(self, uow: Any, work: Any, result: Any) -> None:
        """As the controller does, with a moment around it."""
        trigger = {"kind": "turn", "controller": self.name, "job": str(work.job_id)}
        moment = self._watch.moment(uow, trigger)
        super().apply(uow, work, result)
        uow.flush()
        self._watch.did(uow, moment)


class _WatchedLaunches(_Watched):
    """The controller of launches: a moment begins with a lease and ends with the answer."""

    def select(self, uow: Any, limit: int) -> list[Any]:
        """As the controller does; a launch that is leased alone makes a moment."""
        moment = self._watch.before_answer(uow)
        work = super().select(uow, limit)
        if len(work) == 1:
            moment.trigger = {"kind": "launch", "launch": str(work[0].launch_id)}
            self._watch.leased(str(work[0].launch_id), moment)
        return work

    def apply(self, uow: Any, work: Any, result: Any) -> None:
        """As the controller does."""
        self._watch.answered(str(work.launch_id), launch_answer(work.step.value, result))
        super().apply(uow, work, result)


class _WatchedLooks(_Watched):
    """The controller that asks clouds what became of machines: a moment where one has news."""

    def __init__(self, controller: AnyController, watch: Watch) -> None:
        super().__init__(controller, watch)
        self.parts = controller.parts  # type: ignore[attr-defined]
        self.joined = controller.joined  # type: ignore[attr-defined]

    def apply(self, uow: Any, work: Any, result: Any) -> None:
        """As the controller does, with a moment around it where all machines are of one job."""
        looks = [one for one in work.looks if one.job_id is not None]
        if result.machines is None or len({one.job_id for one in looks}) != 1:
            super().apply(uow, work, result)
            return
        asked = [one.provider_instance_id for one in work.looks]
        trigger = {
            "kind": "seen",
            "provider": work.provider,
            "region": work.region,
            "job": str(looks[0].job_id),
            "machines": [_seen(result.machines[one]) for one in asked if one in result.machines],
        }
        states = {one["state"] for one in trigger["machines"]}
        if len(trigger["machines"]) == len(asked) and states <= {"pending", "running"}:
            super().apply(uow, work, result)
            return
        moment = self._watch.moment(uow, trigger)
        super().apply(uow, work, result)
        uow.flush()
        self._watch.did(uow, moment)


def _seen(machine: Any) -> dict[str, Any]:
    """A machine as its cloud shows it, in plain values."""
    return {
        "id": machine.provider_instance_id,
        "pool": machine.pool.key,
        "state": machine.state.value,
        "launched_at": None if machine.launched_at is None else machine.launched_at.isoformat(),
        "launched_source": machine.launched_source,
        "ended_by": None if machine.ended_by is None else machine.ended_by.value,
        "ended_at": None if machine.ended_at is None else machine.ended_at.isoformat(),
        "ended_source": machine.ended_source,
    }


def launch_answer(step: str, answer: Any) -> dict[str, Any]:
    """A cloud's answer to a launch in plain values."""
    if answer.error is not None:
        scope = answer.error.scope
        return {
            "step": step,
            "error": answer.error.kind.value,
            "scope": None if scope is None else scope.value,
            "unknown": answer.unknown,
        }
    result = answer.result
    return {
        "step": step,
        "accepted": [
            [
                one.provider_instance_id,
                one.pool.key,
                None if one.launched_at is None else one.launched_at.isoformat(),
                one.launched_source,
            ]
            for one in result.accepted
        ],
        "refused": [
            [
                None if one.pool is None else one.pool.key,
                one.kind.value,
                None if one.scope is None else one.scope.value,
            ]
            for one in result.refused
        ],
        "pending": result.pending_operation,
    }
