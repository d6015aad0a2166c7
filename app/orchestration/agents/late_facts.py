"""Facts that come after their attempt has ended: written down for people, and nothing more.

But for money: what a machine read from a store has its price, whatever became of the attempt. Not
here: what a fact of the live attempt does, or one about a machine or the lineage, which counts
whichever attempt says it (`apply_facts`, `checkpoint_facts`).
"""

from __future__ import annotations

from app.domain.lifecycle.events import JobEventKind
from app.domain.wording.attempt_words import sentence_about
from app.orchestration.frame.fact_context import FactContext
from app.orchestration.placement.price_restores import record_restored
from trainer.protocol.agent_report import FactKind

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
_OF_RESTORE = frozenset({FactKind.PREPARED, FactKind.PREPARATION_FAILED})
_TOLD = ("outcome", "exit_code", "step", "stage", "message", "final")
_TEXT_MAX = 200


def is_late(context: FactContext) -> bool:
    """Whether the fact is about an attempt, and that one is not the live one any more."""
    about_attempt = context.fact.kind in _OF_ATTEMPT and context.fact.fence is not None
    return about_attempt and not context.current


def record_late_fact(context: FactContext) -> None:
    """Add it to the job's history; `said` has the plain values it carries."""
    fact = context.fact
    if fact.kind in _OF_RESTORE:
        record_restored(context)
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
