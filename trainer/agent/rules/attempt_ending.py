"""How an attempt ends on one machine, and how its checkpoints get committed on the way.

Lives here: drain, kill, which checkpoint is published next, and the facts of the end in their
order: checkpoint, completion, trainer_ended. Not here: directives and leases (`supervisor`), and
the writing itself (`checkpoint_sync`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainer.agent.rules import disk_rules, upload_budget
from trainer.agent.rules import saving_outputs as outputs
from trainer.agent.rules.actions import (
    CancelPreparation,
    DumpStacks,
    KillTrainer,
    PublishCheckpoint,
    ReportNow,
    SignalDrain,
    TellDeadline,
)
from trainer.agent.rules.agent_state import (
    TRAINER_STAGES,
    DrainReason,
    LocalCheckpoint,
    Stage,
    TrainerEnd,
    Work,
)
from trainer.agent.rules.observations import CheckpointPublished, PublicationFailed
from trainer.agent.rules.step_context import StepContext
from trainer.protocol.agent_report import (
    STORE_UNAVAILABLE,
    FactKind,
    MachinePhase,
    Pace,
    TrainerError,
    TrainerOutcome,
)
from trainer.protocol.directive import DrainCause
from trainer.protocol.wire import encode

SIGTERM = 15
RETRY_FIRST_SECONDS = 2.0
RETRY_MOST_SECONDS = 60.0


def begin_drain(context: StepContext, until: float | None, reason: DrainReason) -> None:
    """Ask the trainer to save and end before `until`; an earlier deadline replaces a later one."""
    work = context.state.work
    if work is None:
        return
    if work.stage in (Stage.DRAINING, Stage.CLOSING):
        goes_on = reason is DrainReason.DIRECTIVE and outlasts_drain(context, work)
        goes_on = goes_on and work.stage is Stage.CLOSING
        if reason is not DrainReason.HOLD and until is not None and not goes_on:
            earlier = until if work.end_by is None else min(until, work.end_by)
            if work.stage is Stage.DRAINING and earlier != work.end_by:
                context.do(TellDeadline(work.fence, earlier))
            context.work(end_by=earlier)
        return
    if work.stage is not Stage.RUNNING or work.kill_at is not None:
        return
    context.work(stage=Stage.DRAINING, end_by=until, drain_reason=reason)
    context.enter(MachinePhase.DRAIN, context.now, work.step)
    context.do(SignalDrain(work.fence, until))
    context.do(ReportNow())


def kill(context: StepContext, finish_publishing: bool = False) -> None:
    """End the trainer at once; its end is told when it is seen to be gone.

    finish_publishing: a checkpoint that is complete here may still be committed, as far as the
    lease and later fences allow.
    """
    work = context.state.work
    if work is not None and work.stage in (Stage.RUNNING, Stage.DRAINING):
        end_by = context.now + context.state.limits.closing if finish_publishing else None
        context.work(stage=Stage.KILLING, end_by=end_by, kill_at=None)
        context.do(KillTrainer(work.fence))


def kill_with_stacks(context: StepContext) -> None:
    """Have every rank write its stacks into the logs; end the trainer when that had its time."""
    work = context.state.work
    if work is not None and work.stage is Stage.RUNNING and work.kill_at is None:
        context.do(DumpStacks(work.fence))
        context.work(kill_at=context.now + context.state.limits.stack_dump)


def fenced_off(context: StepContext, by_fence: int) -> None:
    """This machine was cut off and another attempt has begun: nothing here counts any more."""
    work = context.state.work
    if work is None:
        return
    context.emit(FactKind.FENCED_OFF, work.fence, {"by_fence": by_fence})
    context.work(waiting=None, publishing=None)
    kill(context)
    if work.stage in (Stage.PREPARING, Stage.PREPARED):
        context.do(CancelPreparation(work.fence))
        context.work(stage=Stage.ENDED)
        context.enter(MachinePhase.IDLE, context.now)
    if work.stage is Stage.CLOSING and work.end is not None:
        context.work(end=replace(work.end, outcome=TrainerOutcome.KILLED))
        _finish(context)


def abandon(context: StepContext) -> None:
    """The control plane says that this fence is none of ours: stop, and say nothing more of it."""
    work = context.state.work
    if work is None:
        return
    if work.stage in TRAINER_STAGES:
        context.do(KillTrainer(work.fence))
    context.work(stage=Stage.ENDED)
    context.enter(MachinePhase.IDLE, context.now)


# --- checkpoints --------------------------------------------------------------------------------


def checkpoint_ready(context: StepContext, checkpoint: LocalCheckpoint) -> None:
    """A complete folder: the newest one waits for its turn, older ones give way to it."""
    work = context.state.work
    if work is None or not (work.publishes or checkpoint.save):
        return
    known = work.publishing.step if work.publishing else None
    if checkpoint.step == known and not checkpoint.final and not checkpoint.save:
        return  # a drain right after a save: the same step is on its way already
    if work.stage in (Stage.DRAINING, Stage.CLOSING):
        publish_by = _publish_by(context, work, checkpoint)
        upload_budget.say_what_to_expect(context, work, checkpoint, publish_by)
    context.work(waiting=checkpoint, publish_failures=0, retry_at=None)


def checkpoint_published(context: StepContext, seen: CheckpointPublished) -> None:
    """Committed. Told even when a newer one is under way: it is in the store."""
    work = context.state.work
    if work is None:
        return
    context.emit(
        FactKind.CHECKPOINT,
        work.fence,
        {
            "step": seen.ref.step,
            "digest": seen.ref.digest,
            "size_bytes": seen.size_bytes,
            "parent": encode(work.parent) if work.parent else None,
            "final": seen.final,
            "metrics": dict(seen.metrics),
        },
    )
    if seen.final and not work.final_committed:
        done = {"step": seen.ref.step, "digest": seen.ref.digest}
        context.emit(FactKind.COMPLETION, work.fence, done)
        context.work(final_committed=True)
    upload_budget.record_speed(context, work, seen)
    context.work(committed=seen.ref)
    if work.given_up is not None and work.given_up.step <= seen.ref.step:
        context.work(given_up=None)
    if work.publishing == seen.checkpoint:
        context.work(publishing=None, publish_failures=0, retry_at=None)


def share_sent(context: StepContext, checkpoint: LocalCheckpoint) -> None:
    """What this machine has of it is in the store, whether it was asked for or not."""
    work = context.state.work
    if work is not None and work.waiting == checkpoint:
        context.work(waiting=None)
    if work is not None and work.publishing == checkpoint:
        context.work(publishing=None, publish_failures=0, retry_at=None, given_up=None)


def publication_failed(context: StepContext, seen: PublicationFailed) -> None:
    """Try again later, longer each time; a newer checkpoint is tried instead if there is one.

    Not what nobody can repair, and not for a machine that is silent when the trainer has not even
    finished: the machines that are left are wanted for the next attempt.
    """
    work, checkpoint = context.state.work, seen.checkpoint
    if work is None or work.publishing != checkpoint:
        return
    finished = work.end is not None and work.end.outcome is TrainerOutcome.FINISHED
    closing = work.stage is Stage.CLOSING
    if seen.hopeless or (seen.unheard and closing and not finished):
        context.work(publishing=None, given_up=checkpoint)
        return
    wait = min(RETRY_FIRST_SECONDS * 2.0**work.publish_failures, RETRY_MOST_SECONDS)
    context.work(
        publishing=None,
        waiting=work.waiting or checkpoint,
        publish_failures=min(work.publish_failures + 1, 10),
        retry_at=context.now + wait,
    )


def _publish_next(context: StepContext, work: Work) -> None:
    """While training one at a time; in a drain the newest at once, the older one is abandoned.

    Unless only the older one will be in time: then it is finished first.
    """
    if work.waiting is None or work.stage in (Stage.KILLING, Stage.ENDED):
        return
    if not work.publishes and work.stage is Stage.RUNNING:
        return  # while training shares go when rank 0's machine asks for them
    hurried = work.stage in (Stage.DRAINING, Stage.CLOSING) and work.waiting.key != ""
    if work.publishing is not None and (not hurried or _may_lack_shares(work)):
        return
    publish_by = _publish_by(context, work, work.waiting)
    if hurried and upload_budget.is_better_finished(context, work, publish_by):
        return
    if work.retry_at is not None and context.now < work.retry_at:
        return
    leave_out = hurried and upload_budget.fits_only_in_part(context, work.waiting, publish_by)
    context.do(PublishCheckpoint(work.fence, work.parent, work.waiting, leave_out))
    context.work(publishing=work.waiting, publishing_since=context.now, waiting=None, retry_at=None)


def _may_lack_shares(work: Work) -> bool:
    """Whether the newest one may never become whole: a gang's, whose trainer did not end well.

    The older one, which is on its way, was whole before the newer one was begun.
    """
    ended_well = (TrainerOutcome.FINISHED, TrainerOutcome.DRAINED)
    shared = work.waiting is not None and work.waiting.save > 0
    return shared and work.end is not None and work.end.outcome not in ended_well


def _publish_by(context: StepContext, work: Work, checkpoint: LocalCheckpoint) -> float | None:
    """When the last publication must be in the store, as far as that is known.

    Of a gang's together: when the share of the machine that is being taken must be there.
    """
    if not outlasts_drain(context, work):
        return work.end_by
    directive = context.state.directive
    is_taken = directive is not None and directive.drain_cause is DrainCause.INTERRUPTION
    return context.state.drain_by if is_taken and checkpoint.save else None


# --- the end ------------------------------------------------------------------------------------


def trainer_exited(context: StepContext, end: TrainerEnd) -> None:
    """The trainer is gone. What is not committed yet still may be, within its time."""
    work = context.state.work
    if work is None or work.stage not in TRAINER_STAGES:
        return
    end = disk_rules.blame_disk(context, end)
    if end.step is None:
        end = replace(end, step=work.step)
    if work.stage is Stage.KILLING:
        by_our_signal = work.drain_reason is not None and _ended_by_our_signal(end)
        of_itself = end.before_kill and not by_our_signal
        outcome = end.outcome if of_itself else TrainerOutcome.KILLED
        context.work(end=replace(end, outcome=outcome), stage=Stage.CLOSING)
        if work.end_by is None:
            _finish(context)
        return
    if work.stage is Stage.DRAINING and _ended_by_our_signal(end):
        end = replace(end, outcome=TrainerOutcome.DRAINED, error=None)
    bounded = work.stage is Stage.DRAINING and not outlasts_drain(context, work)
    end_by = work.end_by if bounded else None
    latest = context.now + context.state.limits.closing
    context.work(
        stage=Stage.CLOSING,
        end=end,
        kill_at=None,
        end_by=latest if end_by is None else min(end_by, latest),
    )
    if end.outcome is TrainerOutcome.FINISHED and work.publishes:
        _want_final(context, end)


def advance(context: StepContext) -> None:
    """Publish what waits; close the attempt when nothing does, or when its time is over."""
    work = context.state.work
    if work is None:
        return
    _publish_next(context, work)
    work = context.state.work
    if work is None or work.stage is not Stage.CLOSING:
        return
    idle = work.publishing is None and work.waiting is None
    lease_over = context.state.lease_until is not None and context.now >= context.state.lease_until
    over = lease_over or (work.end_by is not None and context.now >= work.end_by)
    if idle and not over and outputs.wanted(context, work):
        outputs.begin(context, work)
    elif over or (idle and not work.saving_outputs):
        _finish(context)


def close(context: StepContext, at_once: bool) -> bool:
    """The machine is wanted for something else: give the publication little time, or none.

    True when nothing is left to wait for. A store that has failed already is not waited for.
    """
    work = context.state.work
    if work is None or work.stage is not Stage.CLOSING:
        return True
    trying = work.publishing is not None or work.saving_outputs
    waits = trying or (work.waiting is not None and work.publish_failures == 0)
    soon = context.now + context.state.limits.handover
    end_by = soon if work.end_by is None else min(work.end_by, soon)
    if at_once or not waits or context.now >= end_by:
        _finish(context)
        return True
    context.work(end_by=end_by)
    return False


def outlasts_drain(context: StepContext, work: Work) -> bool:
    """Whether a publication may go on when the drain's time is over: it is another machine's.

    A gang drains because the cloud takes one of its machines, or because it moves; the others stay
    as they are, and what they have saved can still be committed until they are told to stop.
    """
    directive = context.state.directive
    asked = directive is not None and directive.fence == work.fence
    cause = directive.drain_cause if directive is not None and asked else None
    ours = work.drain_reason in (None, DrainReason.DIRECTIVE)
    return ours and cause in (DrainCause.INTERRUPTION, DrainCause.YIELD)


def end_data(
    end: TrainerEnd,
    reason: DrainReason | None,
    unsent: LocalCheckpoint | None = None,
    pace: Pace | None = None,
) -> dict[str, Any]:
    """The data of a `trainer_ended` fact. unsent: what was saved here and did not get away. pace:
    what was measured of the trainer's steps.
    """
    return {
        **({"unsent_step": unsent.step} if unsent is not None else {}),
        **({"pace": encode(pace)} if pace is not None else {}),
        "outcome": end.outcome.value,
        "exit_code": end.exit_code,
        "step": end.step,
        "error": encode(end.error) if end.error else None,
        "drain_cause": reason.value if reason else None,
    }


def _ended_by_our_signal(end: TrainerEnd) -> bool:
    """A command that does not handle SIGTERM simply ends: drained, with nothing new to save."""
    if end.outcome is not TrainerOutcome.FAILED:
        return False
    return (end.error is not None and end.error.signal == SIGTERM) or end.exit_code in (
        -SIGTERM,
        128 + SIGTERM,
    )


def _want_final(context: StepContext, end: TrainerEnd) -> None:
    """A finished trainer without a final checkpoint gets a final manifest without files."""
    work = context.state.work
    if work is None or work.final_committed:
        return
    under_way = (work.waiting, work.publishing)
    if any(checkpoint is not None and checkpoint.final for checkpoint in under_way):
        return
    if work.waiting is not None:
        context.work(waiting=replace(work.waiting, final=True))
    else:
        context.work(waiting=LocalCheckpoint(step=end.step or 0, final=True))


def _finish(context: StepContext) -> None:
    """Write the end into the facts, after everything else this attempt has to say."""
    work = context.state.work
    if work is None or work.end is None:
        return
    end = work.end
    if work.final_committed:
        end = replace(end, outcome=TrainerOutcome.FINISHED, error=None)
    elif end.outcome is TrainerOutcome.FINISHED and work.publishes:
        message = "the trainer finished, but its final manifest could not be committed in time"
        error = TrainerError(message=message, type=STORE_UNAVAILABLE)
        end = replace(end, outcome=TrainerOutcome.FAILED, error=error)
    outputs.cut(context, work)
    context.flush_points(at_once=True)
    unsent = work.waiting or work.publishing or work.given_up
    pace = None if work.pace is None else work.pace.told
    context.emit(FactKind.TRAINER_ENDED, work.fence, end_data(end, work.drain_reason, unsent, pace))
    context.work(stage=Stage.ENDED, end=end, waiting=None, publishing=None)
    context.enter(MachinePhase.IDLE, context.now)
