"""What a provider leaves in its cloud besides machines: disks, templates, groups, policies.

An optional part of a provider; one without it leaves nothing. Not here: when any of it is removed
(`app.orchestration.deployment.clear_remains`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Remain:
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
class CloudRemains(Protocol):
    """A provider that leaves such things. Calls are bounded and raise ProviderError."""

    def list_remains(self, region: str) -> tuple[Remain, ...]:
        """All of this deployment in the region but machines and what goes with them."""
        ...

    def remove_remains(self, remains: Sequence[Remain]) -> tuple[Remain, ...]:
        """Remove them; returns those that are left, each with the reason in its note.

        One that is gone already is no error.
        """
        ...
