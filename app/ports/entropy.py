"""The entropy port: ids, tokens and jitter, so that a seed can replay a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID


class Entropy(Protocol):
    """Source of everything that is not decided."""

    def new_id(self) -> UUID:
        """A UUIDv7: sorts by creation time."""
        ...

    def new_token(self) -> str:
        """At least 256 bits, URL-safe: lease tokens, client tokens, credentials."""
        ...

    def uniform(self) -> float:
        """A float in [0, 1): jitter."""
        ...

    def replayable(self, seed: int) -> Callable[[], float]:
        """Floats in [0, 1) for simulated runs: the same ones for the same seed."""
        ...
