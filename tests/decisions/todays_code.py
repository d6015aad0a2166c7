"""The code that decides today, asked to decide on rows: the only module a redesign has to change.

Five things make a decision: the turn of a controller for one job, an agent's report or its first
word, a cloud's answer to a launch, and what it shows of machines. Each is done here from a
standing start, with nothing remembered from before, at an instant that stands still. The
back-test's policy is made here, too. Not here: rows, files, or what is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from sqlalchemy import Engine

from app.adapters.seeded_draws import seeded_draws
from app.backtest.lowtide import Lowtide
from app.backtest.policy_view import Briefing, Policy
from app.domain.deadline import live_placement
from app.domain.deadline.cost_to_go import prepare
from app.domain.deployment.credentials import digest
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Pool
from app.orchestration.agents.receive_agent_report import receive_agent_report
from app.orchestration.agents.register_agent import register_agent
from app.orchestration.controllers import controllers_by_name
from app.orchestration.frame.controller_frame import apply_phase, effect_phase
from app.orchestration.frame.runtime import Limits, Runtime
from app.ports.cloud_provider import (
    AcceptedMachine,
    CloudMachine,
    CloudProvider,
    LaunchOutcomeUnknown,
    LaunchResult,
    MachineState,
    PoolRefusal,
    ProviderError,
    RefusalKind,
    RefusalScope,
)
from app.simulation.engine.memory_store import MemoryStore
from app.simulation.engine.serial_effects import SerialEffects
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from trainer.protocol.agent_report import AgentReport, Registration
from trainer.protocol.wire import decode

NEW_IDS = "f0000000-"
"""How every id begins that a decision makes: none of a state does, and all sort after those."""

_PIECES_MAX = 10_000
_TOKEN = "a launch's token"

# Production keeps the tables of two jobs; replays go through those of many, again and again.
live_placement.tables = lru_cache(maxsize=12)(prepare.__wrapped__)


class ControlPlane:
    """A control plane on a database, at one instant."""

    def __init__(self, engine: Engine, at: datetime, limits: Mapping[str, Any]) -> None:
        """limits: those that are not as usual, by name."""
        clock = _StandingClock(at)
        self._cloud = _AnsweringCloud()
        self._runtime = Runtime(
            begin=PostgresUnitOfWorkFactory(engine, _NoWakeups(), clock.now),
            clock=clock,
            entropy=_CountedEntropy(),
            wakeups=_NoWakeups(),
            effects=SerialEffects(),
            object_store=MemoryStore(),
            store_at=lambda _uri: MemoryStore(),
            # No decision asks it for more than it has.
            providers=dict.fromkeys(("aws", "gcp"), cast(CloudProvider, self._cloud)),
            price_sources={},
            control_url="https://control.recorded",
            checkpoint_root_uri="simulated://",
            make_placement=live_placement.LivePlacement,
            limits=Limits(**limits),
        )

    def decide(self, trigger: Mapping[str, Any]) -> None:
        """Let one trigger come; what follows is in the database."""
        if trigger["kind"] == "turn":
            self._turn(trigger["controller"], UUID(trigger["job"]))
        elif trigger["kind"] == "report":
            self._report(trigger["report"])
        elif trigger["kind"] == "registration":
            self._register(UUID(trigger["launch"]), trigger["registration"])
        elif trigger["kind"] == "seen":
            self._cloud.machines = trigger["machines"]
            self._look(trigger["provider"], trigger["region"], UUID(trigger["job"]))
        else:
            self._cloud.answer = trigger["answer"]
            self._launch(UUID(trigger["launch"]))

    def _turn(self, name: str, job_id: UUID) -> None:
        """Every piece of work that the controller finds for the job."""
        controller = controllers_by_name(self._runtime)[name]
        with self._runtime.begin() as uow:
            work = controller.select(uow, _PIECES_MAX)
        for piece in work:
            if piece.job_id == job_id:
                result = effect_phase(controller, piece)
                apply_phase(self._runtime, controller, piece, result)

    def _report(self, document: Mapping[str, Any]) -> None:
        """An agent's report, with the credential that its machine has."""
        report = decode(AgentReport, dict(document))
        with self._runtime.begin() as uow:
            instance = uow.instances.get(UUID(report.instance_id))
            if instance is not None and instance.credential_hash is not None:
                receive_agent_report(uow, self._runtime, instance.credential_hash, report)

    def _register(self, launch_id: UUID, document: Mapping[str, Any]) -> None:
        """The first word of a machine's agent, with the token that its launch has."""
        with self._runtime.begin() as uow:
            launch = uow.launches.get(launch_id)
            if launch is not None:
                launch.token_hash = digest(_TOKEN)
        with self._runtime.begin() as uow:
            own = {**document, "launch_token": _TOKEN}
            register_agent(uow, self._runtime, decode(Registration, own))

    def _launch(self, launch_id: UUID) -> None:
        """Lease, call and answer of one launch."""
        controller = controllers_by_name(self._runtime)["launch_instances"]
        with self._runtime.begin() as uow:
            work = controller.select(uow, _PIECES_MAX)
        for piece in work:
            if piece.launch_id == launch_id:
                result = effect_phase(controller, piece)
                apply_phase(self._runtime, controller, piece, result)

    def _look(self, provider: str, region: str, job_id: UUID) -> None:
        """The cloud is asked what became of a job's machines in a region."""
        controller = controllers_by_name(self._runtime)["reconcile_instances"]
        with self._runtime.begin() as uow:
            work = controller.select(uow, _PIECES_MAX)
        for piece in work:
            looks = tuple(one for one in piece.looks if one.job_id == job_id)
            if looks and (piece.provider, piece.region) == (provider, region):
                own = replace(piece, looks=looks)
                apply_phase(self._runtime, controller, own, effect_phase(controller, own))


class _StandingClock:
    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a decision slept for {seconds} s")


class _NoWakeups:
    def notify(self, controllers: object) -> None:
        """Rings carry no truth."""


class _CountedEntropy:
    """Ids in the order in which they are asked for, and always the same dice."""

    def __init__(self) -> None:
        self._ids = 0

    def new_id(self) -> UUID:
        self._ids += 1
        return UUID(f"{NEW_IDS}0000-7000-8000-{self._ids:012x}")

    def new_token(self) -> str:
        self._ids += 1
        return f"{self._ids:064x}"

    def uniform(self) -> float:
        return 0.5

    def replayable(self, seed: int) -> Any:
        return seeded_draws(seed)


class _AnsweringCloud:
    """Gives one answer, whatever it is asked about a launch, or about machines."""

    call_timeout_seconds = 30.0

    def __init__(self) -> None:
        self.answer: Mapping[str, Any] = {}
        self.machines: Sequence[Mapping[str, Any]] = ()

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        return tuple(
            CloudMachine(
                provider_instance_id=one["id"],
                client_token="",
                pool=Pool.parse(one["pool"]),
                state=MachineState(one["state"]),
                launched_at=_instant(one["launched_at"]),
                launched_source=one["launched_source"],
                ended_by=None if one["ended_by"] is None else EndedBy(one["ended_by"]),
                ended_at=_instant(one["ended_at"]),
                ended_source=one["ended_source"],
            )
            for one in self.machines
            if one["id"] in provider_instance_ids
        )

    def launch(self, order: object) -> LaunchResult:
        return self._answer()

    def poll_launch(self, operation: str) -> LaunchResult:
        return self._answer()

    def _answer(self) -> LaunchResult:
        given = self.answer
        if given.get("unknown"):
            raise LaunchOutcomeUnknown("the connection broke")
        if "error" in given:
            raise ProviderError(RefusalKind(given["error"]), "refused", _scope(given["scope"]))
        accepted = [
            AcceptedMachine(name, Pool.parse(pool), _instant(launched_at), source)
            for name, pool, launched_at, source in given["accepted"]
        ]
        refused = [
            PoolRefusal(
                None if pool is None else Pool.parse(pool), RefusalKind(kind), "no", _scope(scope)
            )
            for pool, kind, scope in given["refused"]
        ]
        return LaunchResult(tuple(accepted), tuple(refused), given["pending"])


def _scope(name: str | None) -> RefusalScope | None:
    return None if name is None else RefusalScope(name)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def backtest_policy(briefing: Briefing) -> Policy:
    """Who decides for one job of the back-test."""
    return Lowtide(briefing)
