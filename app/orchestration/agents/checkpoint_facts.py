"""Facts of the lineage: a checkpoint was committed, the work is done, the store knew it all along.

The end of the work is a manifest, too. A command that saved nothing leaves one without files: it
ends the lineage, and people are never told that it is a checkpoint.

Not here: what counts as the lineage (`known_lineage`), or any other fact (`apply_facts`).
"""

from __future__ import annotations

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Attempt, CheckpointRecord
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobEvent, JobState
from app.domain.wording.attempt_words import sentence_about
from app.orchestration.estimates.attempt_measures import record_second_save
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.fact_context import (
    SMALL_MAX,
    FactContext,
    finite_numbers,
    whole_number,
)
from app.orchestration.gang.advance_attempt import advance_attempt
from app.orchestration.gang.end_attempt import drop_forming, wind_down
from app.orchestration.gang.known_lineage import has_final_checkpoint, is_in_lineage
from app.orchestration.placement.price_restores import want_bucket_place


def record_checkpoint(context: FactContext) -> None:
    """A manifest was committed; what is known already changes nothing."""
    data, aggregate = context.fact.data, context.aggregate
    step, fence = whole_number(data.get("step")), context.fact.fence
    if step is None or fence is None:
        return
    parent = data.get("parent")
    parent = parent if isinstance(parent, dict) else {}
    final = bool(data.get("final"))
    metrics, size_bytes = data.get("metrics"), whole_number(data.get("size_bytes"))
    new = aggregate.uow.jobs.add_checkpoint(
        CheckpointRecord(
            job_id=aggregate.job.id,
            fence=fence,
            step=step,
            digest=str(data.get("digest", ""))[:64],
            size_bytes=size_bytes or 0,
            final=final,
            committed_at=context.at,
            instance_id=context.instance.id,
            parent_fence=whole_number(parent.get("fence"), SMALL_MAX),
            parent_step=whole_number(parent.get("step")),
            parent_digest=str(parent["digest"])[:64] if "digest" in parent else None,
            metrics=finite_numbers(metrics),
        )
    )
    if not new:
        return
    aggregate.uow.flush()
    if aggregate.job.prune_at is None and aggregate.job.committed_step == 0:
        want_bucket_place(aggregate)
    aggregate.job.prune_at = aggregate.now
    if is_in_lineage(aggregate, fence, step):
        if step > aggregate.job.committed_step and not context.current:
            # Its attempt has ended, and was counted, before this was told.
            aggregate.job.attempts_without_progress = 0
        aggregate.job.committed_step = max(aggregate.job.committed_step, step)
    if context.current and aggregate.attempt is not None:
        aggregate.attempt.best_step = max(aggregate.attempt.best_step, step)
        if step > aggregate.attempt.committed_step:
            record_second_save(aggregate, aggregate.attempt, context.at)
            aggregate.attempt.committed_step, aggregate.attempt.committed_at = step, context.at
    kind, message = checkpoint_sentence(step, final, size_bytes)
    aggregate.record(
        kind,
        message,
        about=context.instance,
        step=step,
        fence=fence,
        final=final,
    )
    advance_attempt(aggregate, context.limits)


def checkpoint_sentence(step: int, final: bool, size_bytes: int | None) -> tuple[JobEventKind, str]:
    """The kind of the entry and what it says; step: 0 of a command that counts none."""
    if final and size_bytes == 0:
        text = "The command has finished and saved no final checkpoint."
        return JobEventKind.FINISHED_WITHOUT_CHECKPOINT, text
    name = _named(step, final=final)
    return JobEventKind.CHECKPOINT_COMMITTED, f"{name} is saved and verified."


def _named(step: int, *, final: bool) -> str:
    """ "Checkpoint 1,412"; without a number that of a command that counts no steps."""
    if step:
        return f"{'Final checkpoint' if final else 'Checkpoint'} {step:,}"
    return "The final checkpoint" if final else "A checkpoint"


def record_completion(context: FactContext) -> None:
    """The final manifest is in the lineage, whichever attempt wrote it: the work is done."""
    aggregate = context.aggregate
    if context.current:
        advance_attempt(aggregate, context.limits)
        return
    waits = aggregate.job.state in CLAIMABLE_JOB_STATES or aggregate.job.state is JobState.PAUSED
    if not (waits or _is_forming(aggregate)) or not has_final_checkpoint(aggregate):
        return
    message = "An earlier attempt finished the work."
    if not waits:
        drop_forming(aggregate, EndReason.FINISHED, message)
    aggregate.move_job(JobEvent.COMPLETION_FOUND, message)
    wind_down(aggregate, EndReason.FINISHED, message)


def _is_forming(aggregate: JobAggregate) -> bool:
    """Whether the live attempt has no gang as yet, so that nothing of it is worth keeping."""
    attempt = aggregate.attempt
    return attempt is not None and attempt.state is AttemptState.PROVISIONING


def record_final_parent(context: FactContext, attempt: Attempt) -> None:
    """Record a final checkpoint that is in the store although no agent has reported it.

    Its step is the job's last one: the agent that restored it has chosen it as the lineage's end.
    """
    step, fence, aggregate = attempt.parent_step, attempt.parent_fence, context.aggregate
    told_size = whole_number(context.fact.data.get("parent_size_bytes"))
    if fence is None or step is None:
        return
    new = aggregate.uow.jobs.add_checkpoint(
        CheckpointRecord(
            job_id=aggregate.job.id,
            fence=fence,
            step=step,
            digest=attempt.parent_digest or "",
            # An agent of the release before does not name the size.
            size_bytes=told_size or 0,
            final=True,
            committed_at=context.at,
            instance_id=context.instance.id,
        )
    )
    aggregate.job.committed_step = max(aggregate.job.committed_step, step)
    aggregate.uow.flush()
    if new:
        kind = JobEventKind.CHECKPOINT_COMMITTED
        message = (
            f"{_named(step, final=True)} was found in the store; its attempt ended before "
            "reporting it."
        )
        if told_size == 0:
            kind = JobEventKind.FINISHED_WITHOUT_CHECKPOINT
            text = "finished the work but could not report it."
            message = sentence_about(aggregate.ordinals(), fence, text)
        aggregate.record(
            kind,
            message,
            about=context.instance,
            step=step,
            fence=fence,
            final=True,
        )
