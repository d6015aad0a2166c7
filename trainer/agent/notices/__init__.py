"""The cloud's warnings as values. One module per cloud, each a class with `poll`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum


class NoticeKind(StrEnum):
    """What kind of warning it is."""

    INTERRUPTION = "interruption"  # the provider takes the machine
    MAINTENANCE = "maintenance"  # a scheduled event, often days ahead
    REBALANCE = "rebalance"  # a hint of elevated risk, nothing is decided


@dataclass(frozen=True)
class Notice:
    """One warning. `seconds_left` is counted from when it was read, by the machine's own clock."""

    kind: NoticeKind
    action: str
    seconds_left: float | None
    source: str
    notice_id: str


def notice_id_of(*content: str) -> str:
    """The same content is the same notice, however often it is read."""
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:32]
