"""The part of the unit of work that holds what was heard of agents: when, how far, and silence.

Lives here: statements over many contacts at once, and whether agents could have been heard. Not
here: one contact under its job's lock (`instance_repositories`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from trainer.protocol.agent_report import Pace


@dataclass(frozen=True)
class AnsweredReport:
    """The newest report of a machine that was answered without a transaction of its own.

    answered_seconds_ago: age of the answer when it is stored, >= 0; instants are the store's.
    step, total_steps: None when the report carried no progress; what is stored then stays. pace:
    what the agent measured of the attempt's steps.
    """

    instance_id: UUID
    session_id: str
    seq: int
    answered_seconds_ago: float
    phase: str
    step: int | None = None
    total_steps: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    pace: Pace | None = None


@dataclass(frozen=True)
class UnheardInstance:
    """A registered instance that is marked unreachable, and when it was last answered."""

    instance_id: UUID
    job_id: UUID
    answered_at: datetime


@dataclass(frozen=True)
class Neighbours:
    """How many other registered instances there are, and how many of them were heard lately."""

    others: int
    heard: int


class Contacts(Protocol):
    """Contacts of many agents at once."""

    def store(self, reports: Sequence[AnsweredReport], now: datetime) -> int:
        """Move contacts on, in one statement; never back, and never another session's.

        Returns how many rows were moved.
        """
        ...

    def changed_jobs(self, versions: Mapping[UUID, int]) -> list[UUID]:
        """Those jobs whose version is not the given one, or which are gone; by id."""
        ...

    def read_one_instant(self) -> None:
        """Make this transaction read one instant and write nothing; call it before anything."""
        ...

    def note_listening(self, now: datetime, gap_seconds: float) -> bool:
        """An api process hears agents now. True: after a longer gap, so hearing starts anew."""
        ...

    def still_listening(
        self, versions: Mapping[UUID, int], gap_seconds: float | None
    ) -> list[UUID] | None:
        """`note_listening` and `changed_jobs` at once, while agents are heard without a gap.

        It is a transaction of its own, before anything else in this one. None: after a gap, of
        which nothing is noted yet. gap_seconds: None where nobody listens.
        """
        ...

    def hear_anew(self, now: datetime) -> None:
        """Hearing starts anew now, as after a gap: what is older may not be all there was."""
        ...

    def first_silent_at(self) -> datetime | None:
        """The oldest answer among registered instances that are not marked unreachable."""
        ...

    def unreachable(self, limit: int) -> list[UnheardInstance]:
        """Registered instances marked unreachable, longest unheard first."""
        ...

    def last_sign_of_life(self, instance_id: UUID, after: datetime) -> datetime | None:
        """The newest proof later than `after` that the instance's newest attempt went on.

        That is another member's newer step, its end as it should be (finished, or saved on
        request), or a checkpoint of the attempt's fence. The attempt may have ended since.
        """
        ...

    def neighbours(self, instance_id: UUID, answered_after: datetime) -> Neighbours:
        """What is heard of all other registered instances of the deployment."""
        ...
