"""Channels and rules in PostgreSQL. What a channel leads to is stored encrypted.

Not here: who may change them (`app.orchestration.notifications`), or deliveries
(`delivery_repository`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Select, delete, exists, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as insert_new

from app.domain.notifications.channel_targets import ChannelKind
from app.domain.notifications.triggers import Trigger
from app.ports.value_encryption import SealedValue
from app.storage.schema.notification_tables import notification_channels, notification_rules
from app.storage.session.record_session import Repository

_CHANNELS: Final = notification_channels
_RULES: Final = notification_rules


@dataclass(frozen=True)
class ChannelRow:
    """A channel without what is secret of it. version: grows with each target. destination: where
    it leads, as people may see it.
    """

    id: UUID
    project_id: UUID
    name: str
    kind: ChannelKind
    version: int
    destination: str
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True)
class StoredChannel:
    """A channel with what is stored of where it leads."""

    row: ChannelRow
    sealed: SealedValue


@dataclass(frozen=True)
class RuleRow:
    """A rule. after_seconds: of a wait, how long it may be; 0 for other triggers."""

    id: UUID
    project_id: UUID
    channel_id: UUID
    trigger: Trigger
    after_seconds: int
    created_at: datetime
    created_by: str


class ChannelRepository(Repository):
    """Channels that were not removed, and their rules."""

    def channels(self, project_id: UUID, limit: int) -> list[ChannelRow]:
        """A project's channels by name."""
        found = self._session.execute(_listed(project_id).order_by(_CHANNELS.c.name).limit(limit))
        return [ChannelRow(**row) for row in found.mappings()]

    def of_name(self, project_id: UUID, name: str) -> ChannelRow | None:
        """The project's channel of that name, locked against other changes."""
        found = self._session.execute(
            _listed(project_id).where(_CHANNELS.c.name == name).with_for_update(key_share=True)
        )
        return next((ChannelRow(**row) for row in found.mappings()), None)

    def known_names(self, project_id: UUID, names: Sequence[str]) -> set[str]:
        """Which of these names are those of channels."""
        statement = select(_CHANNELS.c.name).where(
            _CHANNELS.c.project_id == project_id,
            _CHANNELS.c.removed_at.is_(None),
            _CHANNELS.c.name.in_(names),
        )
        return {row[0] for row in self._session.execute(statement)}

    def count(self, project_id: UUID) -> int:
        """How many channels a project has."""
        statement = select(func.count()).where(
            _CHANNELS.c.project_id == project_id, _CHANNELS.c.removed_at.is_(None)
        )
        count: int = self._session.execute(statement).scalar_one()
        return count

    def add(self, row: ChannelRow, sealed: SealedValue) -> None:
        """Store a new channel. Raises the database's error for a name that is taken."""
        self._session.execute(insert(_CHANNELS).values(**vars(row), **_sealed(sealed)))

    def replace(self, row: ChannelRow, sealed: SealedValue) -> None:
        """Let a channel lead elsewhere; a rest that it had is over."""
        self._session.execute(
            update(_CHANNELS)
            .where(_CHANNELS.c.id == row.id)
            .values(**vars(row), **_sealed(sealed), rests_until_at=None)
        )

    def remove(self, channel_id: UUID, at: datetime) -> None:
        """Remove a channel, what is secret of it, and its rules."""
        self._session.execute(delete(_RULES).where(_RULES.c.channel_id == channel_id))
        self._session.execute(
            update(_CHANNELS)
            .where(_CHANNELS.c.id == channel_id)
            .values(removed_at=at, key_id=None, wrapped_key=None, content=None)
        )

    def stored(self, channel_id: UUID) -> StoredChannel | None:
        """A channel with where it leads; None for one that was removed."""
        return next(iter(self._read(_stored().where(_CHANNELS.c.id == channel_id))), None)

    def all_stored(
        self, limit: int, after: UUID | None = None, *, locked: bool = False
    ) -> list[StoredChannel]:
        """Channels of all projects, by id. after: the id of the one before."""
        statement = _stored().order_by(_CHANNELS.c.id).limit(limit)
        if after is not None:
            statement = statement.where(_CHANNELS.c.id > after)
        return self._read(statement.with_for_update(key_share=True) if locked else statement)

    def has_values(self) -> bool:
        """Whether there is any channel."""
        stored = select(exists().where(_CHANNELS.c.key_id.is_not(None)))
        return bool(self._session.execute(stored).scalar_one())

    def rewrap(self, channel_id: UUID, sealed: SealedValue) -> None:
        """Store a data key under another key-encrypting key; what it encrypts stays."""
        values = {"key_id": sealed.key_id, "wrapped_key": sealed.wrapped_key}
        self._session.execute(update(_CHANNELS).where(_CHANNELS.c.id == channel_id).values(values))

    def key_ids(self) -> list[str]:
        """The key-encrypting keys that channels are under."""
        statement = select(_CHANNELS.c.key_id).where(_CHANNELS.c.key_id.is_not(None)).distinct()
        return [row[0] for row in self._session.execute(statement)]

    def _read(self, statement: Select[Any]) -> list[StoredChannel]:
        size = len(fields(ChannelRow))
        return [
            StoredChannel(ChannelRow(*row[:size]), SealedValue(*row[size:]))
            for row in self._session.execute(statement)
        ]

    def rest(self, channel_id: UUID, until: datetime | None) -> None:
        """Leave a channel alone until then; None: no longer."""
        self._session.execute(
            update(_CHANNELS).where(_CHANNELS.c.id == channel_id).values(rests_until_at=until)
        )

    def rules(self, project_id: UUID, limit: int) -> list[tuple[RuleRow, str]]:
        """A project's rules, each with the name of its channel, the oldest first."""
        columns = [_RULES.c[one.name] for one in fields(RuleRow)]
        statement = (
            select(*columns, _CHANNELS.c.name)
            .join(_CHANNELS, _CHANNELS.c.id == _RULES.c.channel_id)
            .where(_RULES.c.project_id == project_id)
            .order_by(_RULES.c.id)
            .limit(limit)
        )
        return [(RuleRow(*row[:-1]), row[-1]) for row in self._session.execute(statement)]

    def rule(self, project_id: UUID, rule_id: UUID) -> RuleRow | None:
        """The project's rule of that id, locked."""
        statement = (
            select(*(_RULES.c[one.name] for one in fields(RuleRow)))
            .where(_RULES.c.project_id == project_id, _RULES.c.id == rule_id)
            .with_for_update()
        )
        row = self._session.execute(statement).first()
        return None if row is None else RuleRow(*row)

    def count_rules(self, project_id: UUID) -> int:
        """How many rules a project has."""
        statement = select(func.count()).where(_RULES.c.project_id == project_id)
        count: int = self._session.execute(statement).scalar_one()
        return count

    def add_rule(self, row: RuleRow) -> bool:
        """Store a new rule; False where its channel has one like it."""
        made = self._session.execute(
            insert_new(_RULES)
            .values(**vars(row))
            .on_conflict_do_nothing(index_elements=["channel_id", "trigger", "after_seconds"])
            .returning(_RULES.c.id)
        )
        return made.one_or_none() is not None

    def remove_rule(self, rule_id: UUID) -> None:
        """Remove a rule; what it has told stays."""
        self._session.execute(delete(_RULES).where(_RULES.c.id == rule_id))


def _listed(project_id: UUID) -> Select[Any]:
    return select(*(_CHANNELS.c[one.name] for one in fields(ChannelRow))).where(
        _CHANNELS.c.project_id == project_id, _CHANNELS.c.removed_at.is_(None)
    )


def _stored() -> Select[Any]:
    return select(
        *(_CHANNELS.c[one.name] for one in fields(ChannelRow)),
        _CHANNELS.c.key_id,
        _CHANNELS.c.wrapped_key,
        _CHANNELS.c.content,
    ).where(_CHANNELS.c.removed_at.is_(None))


def _sealed(sealed: SealedValue) -> dict[str, object]:
    return {
        "key_id": sealed.key_id,
        "wrapped_key": sealed.wrapped_key,
        "content": sealed.content,
    }
