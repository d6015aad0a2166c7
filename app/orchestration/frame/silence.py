"""What the silence of an agent is, and what proves that its machine is at work all the same.

Not here: what follows from silence (`watch_contacts`, `end_attempt`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from app.domain.lifecycle.entities import Instance
from app.orchestration.frame.runtime import Limits
from app.storage.unit_of_work import UnitOfWork

# Beyond two missed reports: one flush of contacts, a busy scheduler, a slow network.
SILENCE_MARGIN_SECONDS = 2.0


class GivenUpBy(StrEnum):
    """Which rule released a silent machine; the history of its job has it."""

    LEASE = "lease"  # its lease is over, so its trainer has stopped itself
    SILENCE = "silence"  # it has not reported for too long, and may still train


def silence_seconds(limits: Limits) -> float:
    """How long an agent is unheard before that is called silence: two missed reports."""
    return 2 * limits.report_interval_seconds + SILENCE_MARGIN_SECONDS


def proven_alive_at(
    uow: UnitOfWork, instance_id: UUID, answered_at: datetime, limits: Limits
) -> datetime | None:
    """The newest proof that a machine unheard since `answered_at` is at work; None without one.

    What others report shortly after the last answer may still rest on this machine's work before
    it died, so only later proofs count.
    """
    silence = timedelta(seconds=silence_seconds(limits))
    return uow.contacts.last_sign_of_life(instance_id, answered_at + silence)


def left_to_its_lease(instance: Instance) -> bool:
    """Whether its attempt ended without it while it was at work out of sight.

    It drains before its lease ends, so no attempt counts on it and no claim gives it back.
    """
    return instance.suspect and instance.unreachable_at is not None
