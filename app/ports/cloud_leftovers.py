"""What a provider leaves in its cloud besides machines: disks, templates, groups, policies.

An optional part of a provider; one without it leaves nothing. Not here: when any of it is removed
(`app.orchestration.deployment.clear_leftovers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing of this deployment that is no machine.

    kind: as people call it (`volume`, `launch template`). id: as the cloud names it. idle: nothing
    uses it as far as the cloud shows. microusd_per_day: about what it costs, None for nothing.
    """

    kind: str
    id: str
    region: str
    note: str
    idle: bool
    microusd_per_day: int | None = None


@runtime_checkable
class CloudLeftovers(Protocol):
    """A provider that leaves such things. Calls are bounded and raise ProviderError."""

    def list_leftovers(self, region: str) -> tuple[Leftover, ...]:
        """All of this deployment in the region but machines and what goes with them."""
        ...

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> tuple[Leftover, ...]:
        """Remove them; returns those that are left, each with the reason in its note.

        One that is gone already is no error.
        """
        ...
