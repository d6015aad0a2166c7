"""A channel of a story's project that leads to a real server, and what it is told of.

Not here: what happens to be told of (`orchestration_story`, `money_story`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from app.adapters.encryption.envelope_encryption import open_encryption
from app.adapters.outgoing.channel_sender import ChannelSender
from app.adapters.outgoing.pinned_connections import PinnedConnections
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.notifications.channel_targets import ChannelKind, WebTarget
from app.domain.notifications.triggers import Trigger
from app.orchestration.frame.runtime import Runtime
from app.orchestration.notifications.manage_channels import add_rule, set_channel
from app.orchestration.notifications.send_notifications import SendNotifications
from app.storage.schema import tables
from tests.support.servers.table_rows import rows_of
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.notification_story import ChannelServer


class ListeningChannel:
    """The channel `team` of a project, Slack-compatible; an admin makes its rules."""

    def __init__(self, engine: Engine, runtime: Runtime, project_id: UUID, folder: Path) -> None:
        connections = PinnedConnections((ip_network("127.0.0.0/8"),))
        self.runtime = replace(
            runtime,
            encryption=open_encryption(None, folder),
            sender=ChannelSender("https://lowtide.test", connections, runtime.clock),
        )
        self.server = ChannelServer()
        self.admin = Principal(None, "root", project_id, "alpha", Role.ADMIN)
        self._engine = engine
        self.set("team")

    def set(self, name: str) -> None:
        """A channel that leads to the path of its name."""
        target = WebTarget(f"{self.server.url}/{name}")
        with self.runtime.begin() as uow:
            set_channel(uow, self.runtime, self.admin, name, ChannelKind.SLACK, target)

    def rule(self, trigger: Trigger, after_seconds: int | None = None) -> None:
        """Tell it of this from now on."""
        with self.runtime.begin() as uow:
            add_rule(uow, self.runtime, self.admin, "team", trigger, after_seconds)

    def deliveries(self) -> list[Any]:
        """What was written for it, in its order."""
        found = rows_of(self._engine, tables.notification_deliveries)
        return sorted(found, key=lambda row: row.id)

    def told(self) -> list[tuple[str, str]]:
        """(kind, title) of the same."""
        return [(row.kind, row.message["title"]) for row in self.deliveries()]

    def sent(self) -> list[str]:
        """What its server took of all that was written, as text; forgotten then."""
        run_until_idle(self.runtime, [SendNotifications(self.runtime)])
        found = [one.document["text"] for one in self.server.taken]
        self.server.taken.clear()
        return found


@contextmanager
def listening(
    engine: Engine, runtime: Runtime, project_id: UUID, folder: Path
) -> Iterator[ListeningChannel]:
    """A channel without rules, until the end of the block."""
    made = ListeningChannel(engine, runtime, project_id, folder)
    try:
        yield made
    finally:
        made.server.close()
