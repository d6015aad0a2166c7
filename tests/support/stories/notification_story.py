"""A project with channels that lead to a real server on loopback, in time that a test moves.

Here: jobs that something happens to, the sender, and what the server took. Not here: the outgoing
calls themselves (tests/integration/notifications).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Engine

from app.adapters.encryption.envelope_encryption import open_encryption
from app.adapters.outgoing.channel_sender import ChannelSender
from app.adapters.outgoing.pinned_connections import PinnedConnections
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.job import JobEvent
from app.domain.notifications.channel_targets import ChannelKind, WebTarget
from app.domain.notifications.triggers import Trigger
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.notifications.manage_channels import add_rule, set_channel
from app.orchestration.notifications.send_notifications import SendNotifications
from app.storage.schema import tables
from app.storage.unit_of_work import UnitOfWork
from tests.support.api.agent_api import make_gang, make_runtime
from tests.support.servers.http_server import HttpServer, QuietHandler
from tests.support.servers.table_rows import change_row, rows_of
from tests.support.stories.idle_controllers import run_until_idle

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRAINER = Actor(ActorKind.AGENT, "trainer")


@dataclass
class Taken:
    """A request that the server took. path: of the channel."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class ChannelServer:
    """Answers each path with its status, 200 where none is set."""

    taken: list[Taken] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        owner = self

        class Handler(QuietHandler):
            def serve(self) -> None:
                owner.taken.append(Taken(self.path, dict(self.headers.items()), self.body()))
                self.answer(owner.statuses.get(self.path, 200), b"")

        self._server = HttpServer(Handler)
        self.url = self._server.url

    def paths(self) -> list[str]:
        """Of what was taken, in its order; forgotten then."""
        found = [one.path for one in self.taken]
        self.taken.clear()
        return found

    def close(self) -> None:
        self._server.close()


class StoryClock:
    """Implements `app.ports.clock.Clock` for a story."""

    def __init__(self, story: NotificationStory) -> None:
        self._story = story

    def now(self) -> datetime:
        return self._story.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


class NotificationStory:
    """One project with a job, an admin, and a sender."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.now = engine, START
        self.key_file = folder / "secrets.key"
        self.server = ChannelServer()
        clock = StoryClock(self)
        connections = PinnedConnections((ip_network("127.0.0.0/8"),))
        self.runtime = replace(
            make_runtime(engine, folder / "store", read_clock=clock.now),
            clock=clock,
            encryption=open_encryption(self.key_file, folder),
            sender=ChannelSender("https://lowtide.test", connections, clock),
        )
        self.job_id = make_gang(engine, self.runtime, notify=["own"]).job_id
        # No line of its history is older than its last change.
        change_row(engine, tables.jobs, self.job_id, submitted_at=START, updated_at=START)
        [job] = rows_of(engine, tables.jobs, id=self.job_id)
        self.project_id: UUID = job.project_id
        [project] = rows_of(engine, tables.projects, id=self.project_id)
        self.admin = Principal(None, "root", self.project_id, project.name, Role.ADMIN)

    def channel(self, name: str, kind: ChannelKind = ChannelKind.SLACK) -> str | None:
        """A channel that leads to the path of its name; the key of a signed one."""
        target = WebTarget(f"{self.server.url}/{name}")
        with self.runtime.begin() as uow:
            return set_channel(uow, self.runtime, self.admin, name, kind, target).signing_key

    def rule(self, channel: str, trigger: Trigger, after_seconds: int | None = None) -> UUID:
        with self.runtime.begin() as uow:
            rule = add_rule(uow, self.runtime, self.admin, channel, trigger, after_seconds)
        return rule.id

    def happen(self, event: JobEvent, message: str, **data: Any) -> None:
        """Something happens to the job, in a transaction of its own."""
        with self.runtime.begin() as uow:
            self.within(uow, event, message, **data)

    def within(self, uow: UnitOfWork, event: JobEvent, message: str, **data: Any) -> None:
        """The same in an open one."""
        with open_job(uow, self.runtime.entropy, self.job_id, TRAINER) as aggregate:
            assert isinstance(aggregate, JobAggregate)
            aggregate.attempt, aggregate.members = None, []
            aggregate.record(event, message, to_state=_STATES.get(event), **data)

    def send(self, seconds: float = 0) -> int:
        """All that is due after so many seconds; how many pieces of work that was."""
        self.now += timedelta(seconds=seconds)
        return run_until_idle(self.runtime, [SendNotifications(self.runtime)])

    def deliveries(self) -> list[Any]:
        """Their rows, the oldest first."""
        found = rows_of(self.engine, tables.notification_deliveries)
        return sorted(found, key=lambda row: (row.created_at, row.id))

    def states(self) -> list[str]:
        return [str(row.state) for row in self.deliveries()]


_STATES = {
    JobEvent.ATTEMPT_STARTED: "running",
    JobEvent.GIVEN_UP: "failed",
    JobEvent.ATTEMPT_SUCCEEDED: "succeeded",
    JobEvent.STOPPED_FOR_BUDGET: "paused",
}
