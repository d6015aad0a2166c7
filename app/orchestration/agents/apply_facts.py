"""What each fact of an agent does to the rows: one function per kind, one table.

Lives here: the meaning of facts. A fact of an ended attempt is recorded and changes nothing, but
for a completion. Not here: which facts are new (`receive_agent_report`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from app.domain.lifecycle.attempt import AttemptEvent, AttemptState
from app.domain.lifecycle.attempt_verdict import MemberOutcome, Stall
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import AttemptMember, Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.stored_documents import EndDocument, EndErrorDocument
from app.domain.units.durations import format_duration
from app.domain.wording.attempt_words import attempt_words, sentence_about
from app.domain.wording.machine_words import node_words
from app.orchestration.agents.checkpoint_facts import (
    record_checkpoint,
    record_completion,
    record_final_parent,
)
from app.orchestration.estimates.attempt_measures import keep_pace, told_pace
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.fact_context import (
    SMALL_MAX,
    FactContext,
    finite_numbers,
    number,
    record_late_fact,
    whole_number,
)
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import (
    advance_attempt,
    enter_settling,
    record_trainer_started,
)
from app.orchestration.gang.data_facts import record_image, record_outputs
from app.orchestration.placement.price_restores import record_restored
from app.orchestration.placement.refresh_hazards import record_warning
from app.orchestration.transitions.lose_instances import record_interruption, record_stopping
from app.storage.jobs.event_rows import PhaseRecord
from trainer.protocol.agent_report import (
    AGENT_FAILED,
    AGENT_RESTARTED,
    DISK_FULL,
    STORE_UNAVAILABLE,
    Fact,
    FactKind,
    MachinePhase,
    TrainerOutcome,
)

_ANNOUNCED_LONG_BEFORE_SECONDS = 300.0
# Words by which an agent types an end that is not the user's doing.
_TYPED_ENDS = {
    STORE_UNAVAILABLE: EndReason.STORE_UNAVAILABLE,
    DISK_FULL: EndReason.DISK_FULL,
    AGENT_RESTARTED: EndReason.AGENT_FAILED,
    AGENT_FAILED: EndReason.AGENT_FAILED,
}
_FENCES_AHEAD_MAX = 100_000  # what a lost memory may explain; fences are numbers of 32 bits
_EXIT_CONFIGURATION = 2  # the bundled trainer's word for a configuration that cannot work
# Any other word is a failure.
_OUTCOMES: dict[str, MemberOutcome] = {
    TrainerOutcome.FINISHED.value: MemberOutcome.FINISHED,
    TrainerOutcome.DRAINED.value: MemberOutcome.DRAINED,
    TrainerOutcome.FAILED.value: MemberOutcome.FAILED,
    TrainerOutcome.KILLED.value: MemberOutcome.STOPPED,
}


def apply_fact(
    aggregate: JobAggregate,
    instance: Instance,
    fact: Fact,
    session_id: str,
    happened_at: datetime,
    limits: Limits,
) -> None:
    """Apply one fact that was not applied before."""
    context = FactContext(aggregate, instance, fact, session_id, happened_at, limits)
    if context.is_late:
        record_late_fact(context)
    _KINDS[fact.kind](context)


def _phase(context: FactContext) -> None:
    data = context.fact.data
    context.aggregate.uow.jobs.add_phase(
        PhaseRecord(
            instance_id=context.instance.id,
            session_id=context.session_id,
            fact_no=context.fact.fact_no,
            job_id=context.aggregate.job.id,
            phase=_phase_named(data.get("phase")).value,
            from_at=context.at,
            fence=context.fact.fence,
            step=whole_number(data.get("step")),
        )
    )


def _phase_named(word: object) -> MachinePhase:
    """The phase; an unknown word, as of a newer agent, is idle: nobody knows what it bought."""
    return next((phase for phase in MachinePhase if phase.value == word), MachinePhase.IDLE)


def _notice(context: FactContext) -> None:
    seconds = number(context.fact.data.get("seconds_left"))
    deadline = context.at + timedelta(seconds=max(0.0, 0.0 if seconds is None else seconds))
    source = str(context.fact.data.get("source", "agent"))[:50]
    if seconds is not None and seconds > _ANNOUNCED_LONG_BEFORE_SECONDS:
        # Planned maintenance may be days ahead: too early to stop work for it.
        context.aggregate.record(
            JobEventKind.REBALANCE_RECOMMENDED,
            f"The cloud will interrupt this machine in {format_duration(seconds)}.",
            about=context.instance,
            source=source,
        )
        return
    record_interruption(context.aggregate, context.instance, deadline, source, context.limits)


def _prepared(context: FactContext) -> None:
    record_restored(context)
    member, attempt = context.member, context.aggregate.attempt
    if member is None or attempt is None or attempt.state is not AttemptState.PREPARING:
        return
    member.prepared_at = context.aggregate.now
    record_image(context)
    port = whole_number(context.fact.data.get("master_port"), SMALL_MAX)
    if port is not None:
        member.master_port = port
        if attempt.master_port is not None and member.node_rank == 0:
            attempt.master_port = port
    parent = context.fact.data.get("parent")
    if member.node_rank == 0 and isinstance(parent, dict):
        attempt.parent_fence = whole_number(parent.get("fence"), SMALL_MAX)
        attempt.parent_step = whole_number(parent.get("step"))
        attempt.parent_digest = str(parent.get("digest", ""))[:64]
        attempt.best_step = max(attempt.best_step, attempt.parent_step or 0)
        attempt.committed_step = max(attempt.committed_step, attempt.parent_step or 0)
        if bool(context.fact.data.get("final")):
            record_final_parent(context, attempt)
    advance_attempt(context.aggregate, context.limits)


def _preparation_failed(context: FactContext) -> None:
    record_restored(context)
    member = context.member
    if member is None or member.outcome is not None:
        return
    reason = EndReason.PREPARATION_FAILED
    if bool(context.fact.data.get("disk_full")):
        reason = EndReason.DISK_FULL
    elif bool(context.fact.data.get("store_unavailable")):
        reason = EndReason.STORE_UNAVAILABLE
    _end_member(
        context,
        member,
        MemberOutcome.FAILED,
        {
            "reason": reason.value,
            "error": {
                "type": str(context.fact.data.get("stage", ""))[:100],
                "message": str(context.fact.data.get("message", ""))[:2000],
            },
        },
    )


def _trainer_started(context: FactContext) -> None:
    member = context.member
    if member is None:
        return
    member.started_at = member.started_at or context.at
    record_trainer_started(context.aggregate)


def _trainer_ended(context: FactContext) -> None:
    member = context.member
    if member is None or member.outcome is not None:
        return
    data = context.fact.data
    error = data.get("error")
    end: EndDocument = {"step": whole_number(data.get("step"))}
    if isinstance(error, dict):
        error_type = None if error.get("type") is None else str(error["type"])[:200]
        end["error"] = {
            "type": error_type,
            "message": str(error.get("message", ""))[:2000],
            "rank": whole_number(error.get("rank")),
            "out_of_memory": bool(error.get("out_of_memory")),
            "peer_communication": bool(error.get("peer_communication")),
        }
        failed_uptime_ms = whole_number(error.get("failed_uptime_ms"))
        end["failed_at"] = _failed_at(context, failed_uptime_ms).isoformat()
        reason = _reason_of_end(context, whole_number(data.get("exit_code")), error_type)
        if reason is not None:
            end["reason"] = reason.value
    outcome = _OUTCOMES.get(str(data.get("outcome")), MemberOutcome.FAILED)
    _end_member(context, member, outcome, end)


def _failed_at(context: FactContext, uptime_ms: int | None) -> datetime:
    """When the rank failed, by its machine's uptime; else when its trainer ended."""
    if uptime_ms is None or not 0 <= uptime_ms <= context.fact.uptime_ms:
        return context.at
    return context.at - timedelta(milliseconds=context.fact.uptime_ms - uptime_ms)


def _reason_of_end(
    context: FactContext, exit_code: int | None, error_type: str | None
) -> EndReason | None:
    """A more telling reason than the user's error, where the end says one."""
    if error_type in _TYPED_ENDS:
        return _TYPED_ENDS[error_type]
    bundled = context.aggregate.spec.command_kind == "trainer"
    if bundled and exit_code == _EXIT_CONFIGURATION:
        return EndReason.CONFIGURATION_REJECTED
    return None


def _end_member(
    context: FactContext, member: AttemptMember, outcome: MemberOutcome, end: EndDocument
) -> None:
    aggregate = context.aggregate
    if aggregate.attempt is not None:
        trained = end.get("step") or 0
        aggregate.attempt.best_step = max(aggregate.attempt.best_step, trained)
        keep_pace(aggregate.attempt, [told_pace(context.fact.data.get("pace"))])
    member.outcome, member.end, member.ended_at = outcome.value, end, context.at
    member.exit_code = whole_number(context.fact.data.get("exit_code"), SMALL_MAX)
    kinds = {
        MemberOutcome.DRAINED: JobEventKind.MEMBER_DRAINED,
        MemberOutcome.FINISHED: JobEventKind.MEMBER_FINISHED,
    }
    if outcome in kinds:
        name = node_words(member.node_rank, len(aggregate.members))
        aggregate.record(
            kinds[outcome],
            f"{name[:1].upper()}{name[1:]} has {outcome.value}.{_unsent(context)}",
            about=context.instance,
            node_rank=member.node_rank,
            step=end.get("step"),
        )
    advance_attempt(aggregate, context.limits)


def end_forgotten_member(aggregate: JobAggregate, member: AttemptMember, limits: Limits) -> None:
    """Its machine has left the attempt, and told it to rows that are lost: nobody tells it again.

    How it ended is not known, so it counts as superseded, which uses up no retry.
    """
    message = "its machine had left the attempt when the control plane came back"
    member.outcome, member.ended_at = MemberOutcome.FAILED.value, aggregate.now
    error: EndErrorDocument = {"type": None, "message": message}
    member.end = {"reason": EndReason.FENCED_OFF.value, "error": error}
    advance_attempt(aggregate, limits)


def _unsent(context: FactContext) -> str:
    """What was saved on the machine and did not get away, and what counts in its place."""
    unsent, attempt = whole_number(context.fact.data.get("unsent_step")), context.aggregate.attempt
    if unsent is None or attempt is None:
        return ""
    counts = f"step {attempt.committed_step:,}" if attempt.committed_step else "the start"
    return f" Its checkpoint of step {unsent:,} was not uploaded in time: {counts} is used instead."


def _stalled(context: FactContext) -> None:
    attempt = context.aggregate.attempt
    if context.member is None or attempt is None or attempt.stalled_at is not None:
        return
    attempt.stalled_at = context.at
    step = whole_number(context.fact.data.get("step"))
    stall = Stall(context.aggregate.spec.stall_timeout_seconds, step)
    enter_settling(context.aggregate, AttemptEvent.STALL_DETECTED, stall.sentence, context.limits)


def _fenced_off(context: FactContext) -> None:
    by_fence = whole_number(context.fact.data.get("by_fence"))
    fence, ordinals = context.fact.fence or 0, context.aggregate.ordinals()
    by = "a later attempt" if by_fence is None else attempt_words(ordinals, by_fence)
    text = f"found {by} in the checkpoint store and stopped."
    context.aggregate.record(
        JobEventKind.ATTEMPT_FENCED,
        sentence_about(ordinals, fence, text),
        about=context.instance,
        fence=context.fact.fence,
        by_fence=by_fence,
    )
    member = context.member
    if member is None or member.outcome is not None:
        return
    # The live attempt has the highest fence we know of, so our memory is older than the store: the
    # next one begins beyond what was met, or it would be cut off as well.
    job = context.aggregate.job
    if by_fence is not None and job.next_fence <= by_fence <= job.next_fence + _FENCES_AHEAD_MAX:
        job.next_fence = by_fence + 1
    message = f"{by} is already in the checkpoint store"
    error: EndErrorDocument = {"type": None, "message": message}
    end: EndDocument = {"reason": EndReason.FENCED_OFF.value, "error": error}
    _end_member(context, member, MemberOutcome.FAILED, end)


def _gpu_fault(context: FactContext) -> None:
    context.instance.suspect = True
    member = context.member
    if member is None or member.outcome is not None:
        return
    message = str(context.fact.data.get("message", ""))[:2000]
    error: EndErrorDocument = {"type": None, "message": message}
    end: EndDocument = {"reason": EndReason.GPU_FAULT.value, "error": error}
    _end_member(context, member, MemberOutcome.FAILED, end)


def _metrics(context: FactContext) -> None:
    points = context.fact.data.get("points")
    fence = context.fact.fence
    if not isinstance(points, list) or fence is None:
        return
    # A step may have several lines: one of training, one of the evaluation after it.
    of_step: dict[int, dict[str, float]] = {}
    for point in points[:200]:
        step = whole_number(point.get("step")) if isinstance(point, dict) else None
        if step is not None:
            numbers = {k: v for k, v in finite_numbers(point).items() if k not in ("step", "at")}
            of_step.setdefault(step, {}).update(numbers)
    context.aggregate.uow.jobs.add_metric_points(
        context.aggregate.job.id,
        fence,
        [(step, context.at, numbers) for step, numbers in sorted(of_step.items())],
    )


def _rebalance(context: FactContext) -> None:
    record_warning(context.aggregate, context.instance)


def _leaving(context: FactContext) -> None:
    """The agent powers the machine off: look at once, the cloud will say when it is gone."""
    context.instance.describe_at = context.aggregate.now
    if context.instance.state is InstanceState.REGISTERED:
        context.instance.suspect = True
        record_stopping(context.aggregate, context.instance, context.limits)


def _unknown(_: FactContext) -> None:
    """It is acknowledged, so that its agent does not send it again."""


_KINDS: dict[FactKind, Callable[[FactContext], None]] = {
    FactKind.PHASE: _phase,
    FactKind.NOTICE: _notice,
    FactKind.REBALANCE: _rebalance,
    FactKind.PREPARED: _prepared,
    FactKind.PREPARATION_FAILED: _preparation_failed,
    FactKind.TRAINER_STARTED: _trainer_started,
    FactKind.CHECKPOINT: record_checkpoint,
    FactKind.COMPLETION: record_completion,
    FactKind.TRAINER_ENDED: _trainer_ended,
    FactKind.OUTPUTS: record_outputs,
    FactKind.STALLED: _stalled,
    FactKind.FENCED_OFF: _fenced_off,
    FactKind.GPU_FAULT: _gpu_fault,
    FactKind.METRICS: _metrics,
    FactKind.LEAVING: _leaving,
    FactKind.UNKNOWN: _unknown,
}
