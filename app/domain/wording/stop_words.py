"""How the machines of a job left that was told to stop, in words; why it stops: `why_words`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.domain.lifecycle.attempt_verdict import MemberOutcome
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Attempt

STOP_NOW_SECONDS: Final = 1.0
"""How long a job may still run that is cancelled at once."""

_REASON_WORDS: Final = {
    EndReason.USER_CANCELLED: "a person cancelled the job",
    EndReason.USER_PAUSED: "a person paused the job",
}


def drained_words(
    outcomes: Sequence[str | None], reason: EndReason, attempt: Attempt, committed_step: int
) -> str:
    """How a gang left that was told to: "saved" only where the attempt has committed a checkpoint.

    A machine whose trainer was killed has saved nothing. committed_step: the job's newest.
    """
    saved = attempt.committed_at is not None and MemberOutcome.STOPPED not in outcomes
    did = "saved and stopped" if saved else "stopped"
    why = _REASON_WORDS.get(reason) or reason.value.replace("_", " ")
    newest = ""
    if committed_step:
        newest = f" The newest checkpoint is of step {committed_step:,}."
    elif attempt.committed_at is None and attempt.parent_fence is None:
        newest = " No checkpoint has been saved."
    return f"Every machine {did}: {why}.{newest}"
