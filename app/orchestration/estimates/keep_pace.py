"""Keep what agents measured of an attempt: the pace of its steps, and how long it took to start.

Lives here: the way from a report into the machine's contact, and from there or from the fact of
its end onto the attempt. Not here: the measuring (`rules.step_pace`), or what follows from
it (`estimate_remaining`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from app.domain.lifecycle.entities import Attempt, Contact
from app.orchestration.frame.fact_context import number, whole_number
from trainer.protocol.agent_report import Pace


def hear_pace(contact: Contact, pace: Pace | None) -> None:
    """Take over what a report says; one that says nothing changes nothing."""
    if pace is not None:
        contact.first_step, contact.last_step = pace.first_step, pace.last_step
        contact.stepping_seconds = pace.stepping_seconds
        contact.start_up_seconds = pace.start_up_seconds


def forget_pace(contact: Contact) -> None:
    """The machine works for another attempt: nothing was seen of it yet."""
    contact.step = contact.step_at = None
    contact.first_step = contact.last_step = None
    contact.stepping_seconds = contact.start_up_seconds = None


def pace_of(measured: Contact | Attempt | None) -> Pace | None:
    """What was measured; None where nothing was."""
    if measured is None or measured.first_step is None or measured.last_step is None:
        return None
    if measured.stepping_seconds is None or measured.start_up_seconds is None:
        return None
    return Pace(
        measured.first_step,
        measured.last_step,
        measured.stepping_seconds,
        measured.start_up_seconds,
    )


def told_pace(value: object) -> Pace | None:
    """A pace in the data of a fact; None for anything that is none."""
    if not isinstance(value, dict):
        return None
    first, last = whole_number(value.get("first_step")), whole_number(value.get("last_step"))
    stepping, start_up = (
        number(value.get("stepping_seconds")),
        number(value.get("start_up_seconds")),
    )
    if first is None or last is None or stepping is None or start_up is None:
        return None
    if not 0 <= first <= last or stepping < 0 or start_up < 0:
        return None
    return Pace(first, last, stepping, start_up)


def keep_pace(attempt: Attempt, found: Iterable[Pace | None]) -> None:
    """Keep on an attempt what its machines measured: of the one that came furthest."""
    paces = [pace for pace in (pace_of(attempt), *found) if pace is not None]
    if not paces:
        return
    best = max(paces, key=lambda pace: (pace.last_step, pace.stepping_seconds))
    attempt.first_step, attempt.last_step = best.first_step, best.last_step
    attempt.stepping_seconds = best.stepping_seconds
    attempt.start_up_seconds = best.start_up_seconds
    if attempt.trained_at is not None:
        attempt.first_step_at = attempt.trained_at + timedelta(seconds=best.start_up_seconds)
