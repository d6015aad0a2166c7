"""What a cloud announces about its machines without being asked.

Optional: a provider that has these methods has the ability. A machine's own agent hears the same
sooner; the feed also tells of machines whose agent does not run yet, or no more. Not here: what an
announcement does (`read_interruptions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

from app.domain.billing.machine_facts import TimeSource
from app.ports.cloud_provider import MachineState


class AnnouncementKind(StrEnum):
    """What is announced."""

    INTERRUPTION = "interruption"  # the machine is taken at `deadline`
    REBALANCE = "rebalance"  # it may be taken soon
    STATE_CHANGE = "state_change"  # it is in `state` since `at`


@dataclass(frozen=True, slots=True)
class Announcement:
    """One message about one machine.

    at: when the cloud wrote it; of a state change, since when it holds, as `time_source` has it.
    receipt: what `forget` takes; a message that is not forgotten comes again, and may come again
    anyway. region: where the machine is, "" where the message does not say.
    """

    provider_instance_id: str
    kind: AnnouncementKind
    at: datetime
    receipt: str
    deadline: datetime | None = None
    state: MachineState | None = None
    time_source: TimeSource = TimeSource.STATE_CHANGE_EVENT
    region: str = ""


@runtime_checkable
class InterruptionFeed(Protocol):
    """A provider with such messages. Calls are bounded and raise ProviderError."""

    @property
    def announces(self) -> bool:
        """Whether the feed is set up."""
        ...

    def receive_announcements(self) -> tuple[Announcement, ...]:
        """New messages, at most some dozens; waits a second or so for the first."""
        ...

    def forget_announcements(self, receipts: Iterable[str]) -> None:
        """Their messages have been applied."""
        ...
