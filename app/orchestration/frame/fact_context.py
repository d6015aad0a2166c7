"""One fact with what it is about, and numbers from the wire as the columns can hold them.

Lives here, too: the line of history of a fact that comes after its attempt has ended. Not here:
what facts mean (`apply_facts`, `checkpoint_facts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import isfinite

from app.domain.lifecycle.entities import AttemptMember, Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.wording.attempt_words import sentence_about
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from trainer.protocol.agent_report import Fact, FactKind

_OF_ATTEMPT = frozenset(
    {
        FactKind.PREPARED,
        FactKind.PREPARATION_FAILED,
        FactKind.TRAINER_STARTED,
        FactKind.TRAINER_ENDED,
        FactKind.STALLED,
        FactKind.GPU_FAULT,
    }
)
_TOLD = ("outcome", "exit_code", "step", "stage", "message", "final")
_TEXT_MAX = 200


@dataclass(frozen=True)
class FactContext:
    """One fact, whose machine, and when it happened by our clock."""

    aggregate: JobAggregate
    instance: Instance
    fact: Fact
    session_id: str
    at: datetime
    limits: Limits

    @property
    def current(self) -> bool:
        """Whether the fact belongs to the live attempt."""
        attempt = self.aggregate.attempt
        return attempt is not None and attempt.fence == self.fact.fence

    @property
    def is_late(self) -> bool:
        """Whether the fact is about an attempt, and that one is not the live one any more.

        Others are about a machine or the lineage, and count whichever attempt says them.
        """
        about_attempt = self.fact.kind in _OF_ATTEMPT and self.fact.fence is not None
        return about_attempt and not self.current

    @property
    def member(self) -> AttemptMember | None:
        """The machine's part in the live attempt, when the fact is about that one."""
        return self.aggregate.member_of(self.instance.id) if self.current else None


def record_late_fact(context: FactContext) -> None:
    """Add a late fact to the job's history, for people; `said` has the plain values it carries."""
    fact = context.fact
    told: dict[str, str | int | float] = {
        name: value[:_TEXT_MAX] if isinstance(value, str) else value
        for name in _TOLD
        if isinstance(value := fact.data.get(name), str | int | float)
    }
    what = fact.kind.value.replace("_", " ")
    text = f"had ended before this report arrived: {what}. Nothing changes."
    context.aggregate.record(
        JobEventKind.LATE_FACT,
        sentence_about(context.aggregate.ordinals(), fact.fence or 0, text),
        about=context.instance,
        fence=fact.fence,
        fact=fact.kind.value,
        said=told,
    )


SMALL_MAX = 2**31 - 1
"""What the columns of fences, ports and exit codes hold."""


def whole_number(value: object, most: int = 2**62) -> int | None:
    """A whole number from the wire, bounded to what the columns hold; else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # metrics are decimals, and so is the step of a point: 40.0
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -most <= value <= most else None


def number(value: object) -> float | None:
    """A number from the wire, of a size that seconds may have; else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e9 else None


def finite_numbers(value: object) -> dict[str, float]:
    """Finite numbers of a dictionary from the wire, at most fifty."""
    if not isinstance(value, dict):
        return {}
    return {
        str(key)[:60]: float(entry)
        for key, entry in sorted(value.items())[:50]
        if isinstance(entry, int | float) and not isinstance(entry, bool) and isfinite(entry)
    }
