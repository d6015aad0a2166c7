"""How people write which jobs they mean: states, and since when."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator

from app.domain.lifecycle.job import LIVE_JOB_STATES, TERMINAL_JOB_STATES, JobState
from app.domain.units.errors import InvalidValue

_GROUPS = {"live": LIVE_JOB_STATES, "ended": TERMINAL_JOB_STATES}


def _written_out(value: Any) -> Any:
    """A bare number would be taken for seconds since 1970."""
    if isinstance(value, str) and ("T" in value.upper() or " " in value):
        return value
    raise ValueError("write a time with its zone, as in 2026-01-31T12:00:00Z")


Since = Annotated[AwareDatetime, BeforeValidator(_written_out)]
"""An instant as text, RFC 3339."""


def read_states(written: str | None) -> tuple[str, ...]:
    """States with commas between, or live or ended; none means all. Raises InvalidValue."""
    if not written:
        return ()
    states: set[str] = set()
    for word in (part.strip().lower() for part in written.split(",")):
        if word in _GROUPS:
            states.update(_GROUPS[word])
        elif word in set(JobState):
            states.add(word)
        else:
            known = ", ".join((*JobState, *_GROUPS))
            raise InvalidValue(
                f"state: {word[:40]!r} is not a state of a job; use {known}", "state"
            )
    return tuple(sorted(states))
