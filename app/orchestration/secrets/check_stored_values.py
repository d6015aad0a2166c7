"""On the host: whether every value that is stored encrypted can be read, and another key for all.

That is secrets, and where channels of notifications lead. Not here: single secrets
(`manage_secrets`), or the keys' file (`app.adapters.encryption`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from app.domain.notifications.channel_targets import channel_context
from app.orchestration.secrets.manage_secrets import secret_context
from app.ports.value_encryption import (
    KeyUnavailable,
    SealedValue,
    SealedValueChanged,
    ValueEncryption,
)
from app.storage.unit_of_work import UnitOfWork, UnitOfWorkFactory

_AT_ONCE: Final = 100
_ROUNDS_MAX: Final = 1_000_000


@dataclass(frozen=True)
class UnreadableSecret:
    """A secret whose value cannot be read, or a channel. key_id: of the key that is missing; None
    where the row was changed.
    """

    project: str
    name: str
    key_id: str | None


@dataclass
class StoredValues:
    """What was found. readable: how many can be read; rewrapped: how many are under another key."""

    readable: int = 0
    rewrapped: int = 0
    unreadable: list[UnreadableSecret] = field(default_factory=list)


@dataclass(frozen=True)
class _StoredValue:
    """A value as it is stored. name: for people."""

    id: UUID
    project_id: UUID
    name: str
    context: Sequence[str]
    sealed: SealedValue


@dataclass(frozen=True)
class _Kind:
    """One kind of value. read: the next ones after an id, locked or not; rewrap: store another
    data key.
    """

    read: Callable[[UnitOfWork, UUID | None, bool], list[_StoredValue]]
    rewrap: Callable[[UnitOfWork, UUID, SealedValue], None]


def _secrets(uow: UnitOfWork, after: UUID | None, locked: bool) -> list[_StoredValue]:
    return [
        _StoredValue(
            one.row.id,
            one.row.project_id,
            one.row.name,
            secret_context(one.row.project_id, one.row.name, one.row.version),
            one.sealed,
        )
        for one in uow.secrets.stored(_AT_ONCE, after, locked=locked)
    ]


def _channels(uow: UnitOfWork, after: UUID | None, locked: bool) -> list[_StoredValue]:
    return [
        _StoredValue(
            one.row.id,
            one.row.project_id,
            f"channel {one.row.name}",
            channel_context(one.row.project_id, one.row.id, one.row.version),
            one.sealed,
        )
        for one in uow.channels.all_stored(_AT_ONCE, after, locked=locked)
    ]


_KINDS: Final = (
    _Kind(_secrets, lambda uow, value_id, sealed: uow.secrets.rewrap(value_id, sealed)),
    _Kind(_channels, lambda uow, value_id, sealed: uow.channels.rewrap(value_id, sealed)),
)


def verify_secrets(begin: UnitOfWorkFactory, encryption: ValueEncryption) -> StoredValues:
    """Read every value, and change nothing. Raises KeyUnavailable for a file of no use."""
    encryption.key_ids()
    return read_stored_values(begin, encryption)


def read_stored_values(begin: UnitOfWorkFactory, encryption: ValueEncryption) -> StoredValues:
    """Read every value, and change nothing; with a file of no use, none can be read."""
    found = StoredValues()
    for kind in _KINDS:
        for uow, values in _parts(begin, kind, locked=False):
            for value in values:
                _open(uow, encryption, value, found)
    return found


def rewrap_secrets(begin: UnitOfWorkFactory, encryption: ValueEncryption) -> StoredValues:
    """Put every value that can be read under the current key, then drop keys that nothing needs.

    It may be ended and repeated at any time: each part is whole, and a key stays in its file while
    a value is under it. Raises KeyUnavailable for a file of no use.
    """
    found = StoredValues()
    current = encryption.key_ids()[:1]
    for kind in _KINDS:
        for uow, values in _parts(begin, kind, locked=True):
            for value in values:
                if _open(uow, encryption, value, found) and value.sealed.key_id not in current:
                    kind.rewrap(uow, value.id, encryption.rewrap(value.sealed))
                    found.rewrapped += 1
    with begin() as uow:
        uow.secrets.lock_keys()
        encryption.drop_keys([*uow.secrets.key_ids(), *uow.channels.key_ids()])
    return found


def _parts(
    begin: UnitOfWorkFactory, kind: _Kind, *, locked: bool
) -> Iterator[tuple[UnitOfWork, list[_StoredValue]]]:
    """All values, some in each transaction."""
    after: UUID | None = None
    for _ in range(_ROUNDS_MAX):
        with begin() as uow:
            values = kind.read(uow, after, locked)
            yield uow, values
        if len(values) < _AT_ONCE:
            break
        after = values[-1].id


def _open(
    uow: UnitOfWork, encryption: ValueEncryption, value: _StoredValue, found: StoredValues
) -> bool:
    try:
        encryption.open(value.sealed, value.context)
    except (KeyUnavailable, SealedValueChanged) as error:
        missing = value.sealed.key_id if isinstance(error, KeyUnavailable) else None
        project = uow.rules.of(value.project_id).project
        found.unreadable.append(UnreadableSecret(project, value.name, missing))
        return False
    found.readable += 1
    return True
