"""The api that agents call, served for real, with a gang's rows in a real database.

Here: the rows a launch leaves behind, the served app, and an agent that speaks the protocol. Not
here: clouds, or the agent's own program.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import UUID

import httpx
import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine, insert, text

from app.adapters.object_stores.obstore_store import open_object_store
from app.adapters.system_clock import SystemClock
from app.adapters.system_entropy import SystemEntropy
from app.api.agents.agents import router
from app.api.agents.grant_cache import StorageGrants
from app.api.agents.report_cache_driver import (
    ReportCacheDriver,
    start_report_cache,
    stop_report_cache,
)
from app.api.agents.secret_access import SecretAccess
from app.api.serving.error_responses import install_error_responses
from app.domain.deadline.live_placement import LivePlacement
from app.domain.deployment.credentials import digest
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, AttemptMember, Budget, Instance, Job, Launch
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState, StopCause
from app.domain.lifecycle.launch import LaunchOutcome
from app.domain.market.offer import Market, Pool
from app.domain.spec.spec_document import SpecDocument
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.runtime import Limits, Runtime
from app.orchestration.gang.stop_job import order_stop
from app.ports.storage_grants import StorageGrantIssuer
from app.simulation.engine.serial_effects import SerialEffects
from app.storage.schema import tables
from app.storage.unit_of_work import PostgresUnitOfWorkFactory, UnitOfWork
from tests.support.api.described_answers import client_hooks
from tests.support.servers.table_rows import row_of
from tests.support.stories.money_story import RecordedWakeups
from trainer.protocol.agent_report import PROTOCOL_VERSION, FactKind

POOL = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.SPOT)
LIMITS = Limits(report_interval_seconds=0.5)
BY_PERSON = Actor(ActorKind.PERSON, "test")


def make_runtime(
    engine: Engine,
    folder: Path,
    limits: Limits = LIMITS,
    read_clock: Callable[[], datetime] | None = None,
) -> Runtime:
    """A runtime on real parts; nobody answers its bell, and there is no cloud."""
    wakeups = RecordedWakeups()
    return Runtime(
        begin=PostgresUnitOfWorkFactory(engine, wakeups, read_clock),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        wakeups=wakeups,
        effects=SerialEffects(),
        object_store=open_object_store(folder.as_uri()),
        store_at=open_object_store,
        providers={},
        price_sources={},
        control_url="",
        checkpoint_root_uri="file:///checkpoints",
        make_placement=LivePlacement,
        limits=limits,
    )


@dataclass(frozen=True)
class Gang:
    """What a launch left behind: a job whose attempt waits for its machines to register."""

    job_id: UUID
    attempt_id: UUID
    token: str
    instance_ids: list[UUID]

    @staticmethod
    def machine(instance_id: UUID) -> str:
        """The provider's id of a machine."""
        return f"i-{instance_id}"


def make_gang(
    engine: Engine, runtime: Runtime, nodes: int = 1, *, name: str = "digits", **spec: Any
) -> Gang:
    """Rows of a job of `nodes` machines that its cloud has started."""
    now, entropy = datetime.now(UTC), runtime.entropy
    token = entropy.new_token()
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO deployment (id, deployment_id, secret) VALUES (1, :id, :secret) "
                 "ON CONFLICT DO NOTHING"),
            {"id": entropy.new_id(), "secret": "s" * 32},
        )  # fmt: skip
        project_id, budget_id = entropy.new_id(), entropy.new_id()
        connection.execute(
            insert(tables.projects).values(id=project_id, name=f"p-{project_id}", created_at=now)
        )
    whole = {"run": "python train.py", "resources": {"gpu": "V100:1"}, "nodes": nodes, **spec}
    job = Job(
        id=entropy.new_id(), project_id=project_id, name=name,
        spec=cast(SpecDocument, whole), spec_digest="d",
        state=JobState.STARTING, priority=0, node_count=nodes, submitted_at=now, updated_at=now,
        queue_rank_at=now, capacity_key="k", budget_id=budget_id, next_fence=2,
    )  # fmt: skip
    attempt = Attempt(
        id=entropy.new_id(), job_id=job.id, fence=1, state=AttemptState.PROVISIONING,
        node_count=nodes, created_at=now, updated_at=now, form_until_at=now + timedelta(hours=1),
    )  # fmt: skip
    launch = Launch(
        id=entropy.new_id(), job_id=job.id, provider="local", client_token=token, count=nodes,
        min_count=nodes, market=Market.SPOT, bids=[], params_digest="d", purpose="gang",
        outcome=LaunchOutcome.ACCEPTED, created_at=now, token_hash=digest(token),
        token_expires_at=now + timedelta(minutes=15),
    )  # fmt: skip
    ids = [entropy.new_id() for _ in range(nodes)]
    instances = [
        Instance(
            id=one, job_id=job.id, launch_id=launch.id, provider="local", market=Market.SPOT,
            state=InstanceState.LAUNCHED, origin="launch", requested_at=now, updated_at=now,
            pool=POOL, provider_instance_id=Gang.machine(one), launched_at=now,
            launched_source="provider_record",
        )
        for one in ids
    ]  # fmt: skip
    members = [AttemptMember(attempt.id, one, rank) for rank, one in enumerate(ids)]
    with runtime.begin() as uow:
        assert isinstance(uow, UnitOfWork)
        budget = Budget(budget_id, project_id, job.id, None)
        for record in (budget, job, attempt, launch, *instances, *members):
            uow.session.add(record)
            uow.flush()
    return Gang(job.id, attempt.id, token, ids)


def cancel(runtime: Runtime, job_id: UUID) -> None:
    """What another process does when a person cancels."""
    with runtime.begin() as uow, open_job(uow, runtime.entropy, job_id, BY_PERSON) as aggregate:
        assert aggregate is not None
        order_stop(aggregate, StopCause.USER, "Cancelled by test.", runtime.limits)


class AgentsApi(Protocol):
    """What an agent, and a test of one, uses of a served api."""

    url: str
    client: httpx.Client
    engine: Engine


@dataclass
class ServedApi:
    """A served api process, as far as agents go. `client` holds answers against /openapi.json."""

    url: str
    app: FastAPI
    client: httpx.Client
    engine: Engine
    runtime: Runtime

    def gang(self, nodes: int = 1, **spec: Any) -> Gang:
        """Machines that wait for their agents to register here."""
        return make_gang(self.engine, self.runtime, nodes, **spec)

    def agents(self, nodes: int = 1, **spec: Any) -> list[SpeakingAgent]:
        """The agents of a gang, which have registered."""
        gang = self.gang(nodes, **spec)
        made = [SpeakingAgent(self, gang, rank) for rank in range(nodes)]
        for agent in made:
            assert agent.register().status_code == 200
        return made

    @property
    def board(self) -> ReportCacheDriver:
        board: ReportCacheDriver = self.app.state.report_cache
        return board


@contextlib.contextmanager
def served(
    engine: Engine, runtime: Runtime, issuers: Mapping[str, StorageGrantIssuer] | None = None
) -> Iterator[ServedApi]:
    """Serve the agents' routes on a free port of this machine, by uvicorn in a thread."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await start_report_cache(app, runtime)
        app.state.storage_grants = StorageGrants(runtime, issuers or {})
        app.state.secret_access = SecretAccess({})
        yield
        app.state.secret_access.close()
        app.state.storage_grants.close()
        await stop_report_cache(app)

    app = FastAPI(lifespan=lifespan)
    install_error_responses(app)
    app.include_router(router)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(timeout=60, event_hooks=client_hooks()) as client:
            yield ServedApi(f"http://127.0.0.1:{port}", app, client, engine, runtime)
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive()


@dataclass
class SpeakingAgent:
    """An agent that says what a test tells it to. `credential` is there after `register`."""

    api: AgentsApi
    gang: Gang
    rank: int = 0
    nonce: str = "nonce"
    session_id: str = "session-1"
    credential: str = ""
    seq: int = 0
    facts_told: int = 0
    _uptime: Iterator[int] = field(default_factory=lambda: itertools.count(1_000, 10))

    @property
    def instance_id(self) -> UUID:
        return self.gang.instance_ids[self.rank]

    @property
    def contact(self) -> Any:
        """The row of what was last heard of its machine."""
        return row_of(self.api.engine, tables.contacts, instance_id=self.instance_id)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.credential}"}

    def register(self, **other: Any) -> httpx.Response:
        document = {
            "protocol": PROTOCOL_VERSION,
            "launch_token": self.gang.token,
            "nonce": self.nonce,
            "provider_instance_id": Gang.machine(self.instance_id),
            "boot_id": "boot",
            "session_id": self.session_id,
            "uptime_ms": next(self._uptime),
            "private_address": f"10.0.0.{self.rank + 1}",
            "port_from": 20_000,
            "port_to": 20_100,
            **other,
        }
        response = self.api.client.post(f"{self.api.url}/agent/v1/register", json=document)
        if response.status_code == 200:
            self.credential = response.json()["credential"]
        return response

    def document(self, **other: Any) -> dict[str, Any]:
        self.seq += 1
        return {
            "protocol": PROTOCOL_VERSION,
            "instance_id": str(self.instance_id),
            "boot_id": "boot",
            "session_id": self.session_id,
            "seq": self.seq,
            "uptime_ms": next(self._uptime),
            "phase": "idle",
            **other,
        }

    def send(self, document: dict[str, Any]) -> httpx.Response:
        return self.api.client.post(
            f"{self.api.url}/agent/v1/reports", json=document, headers=self.headers
        )

    def report(self, **other: Any) -> httpx.Response:
        return self.send(self.document(**other))

    def fact(self, kind: FactKind, fence: int | None = 1, **data: Any) -> dict[str, Any]:
        self.facts_told += 1
        return {
            "fact_no": self.facts_told,
            "kind": kind.value,
            "uptime_ms": next(self._uptime),
            "fence": fence,
            "data": data,
        }

    def begin_training(self) -> None:
        """Tell that the attempt is prepared and that its trainer has started."""
        self.prepare()
        self.start_trainer()

    def prepare(self) -> None:
        """Tell that the attempt is prepared here."""
        prepared = self.fact(FactKind.PREPARED, master_port=20_000 if self.rank == 0 else None)
        assert self.report(fence=1, facts=[prepared]).status_code == 200

    def start_trainer(self) -> None:
        """Tell that the trainer has started, after all ranks are prepared."""
        started = [self.fact(FactKind.TRAINER_STARTED)]
        assert self.report(fence=1, phase="train", facts=started).status_code == 200

    def directive(self, **other: Any) -> dict[str, Any]:
        response = self.report(**other)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()["directive"]
        return found

    def append(self, stream: str, byte_offset: int, content: bytes, **more: int) -> httpx.Response:
        return self.api.client.post(
            f"{self.api.url}/agent/v1/logs",
            params={"stream": stream, "byte_offset": byte_offset, **more},
            content=content,
            headers=self.headers,
        )


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> float:
    """Seconds until the condition held; fails the test when it does not in time."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - began
