"""Encryption of values that are stored in the database, under a key that is not in it.

Not here: the key's file and the cipher (`app.adapters.encryption`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.domain.units.errors import CommandRefused


class KeyUnavailable(CommandRefused):
    """The key-encrypting key that is needed is not there, or its file cannot be used."""


class SealedValueChanged(CommandRefused):
    """What is stored is not what was encrypted for this place: the row was changed or swapped."""


@dataclass(frozen=True, slots=True)
class SealedValue:
    """A value under a data key of its own, and that key under a key-encrypting key.

    key_id: which key-encrypting key, told by a digest of it.
    """

    key_id: str
    wrapped_key: bytes = field(repr=False)
    content: bytes = field(repr=False)


class ValueEncryption(Protocol):
    """Authenticated encryption. context: what the value is stored for, as a list of words; the
    value opens with the same ones alone.

    Every method raises KeyUnavailable.
    """

    def seal(self, value: bytes, context: Sequence[str]) -> SealedValue:
        """Encrypt under the current key."""
        ...

    def open(self, sealed: SealedValue, context: Sequence[str]) -> bytes:
        """The value. Raises SealedValueChanged where it is not the one of this context."""
        ...

    def rewrap(self, sealed: SealedValue) -> SealedValue:
        """The same content, its data key under the current key. Raises SealedValueChanged."""
        ...

    def key_ids(self) -> tuple[str, ...]:
        """The keys that are there, the current one first; empty where there is no file yet."""
        ...

    def make_key(self) -> str:
        """Make another key and let it be the current one; the id. The former ones stay."""
        ...

    def make_first_key(self) -> None:
        """Make a key where there is none yet; once, however many ask for it at the same time."""
        ...

    def drop_keys(self, kept: Sequence[str]) -> None:
        """Remove every key but these and the current one."""
        ...
