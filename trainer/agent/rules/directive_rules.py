"""What a directive makes of a machine: desired state against the stage it is in.

A directive is repeated with every answer, so obeying it again must change nothing. Not here: how
a drain or an end goes on once begun (`attempt_ending`).
"""

from __future__ import annotations

from dataclasses import replace

from trainer.agent.rules import attempt_ending
from trainer.agent.rules.actions import (
    CancelPreparation,
    StartPreparation,
    StartTrainer,
    TellOutlook,
)
from trainer.agent.rules.agent_state import TRAINER_STAGES, DrainReason, Stage, TrainerEnd, Work
from trainer.agent.rules.step_context import StepContext
from trainer.protocol.agent_report import (
    AGENT_RESTARTED,
    FactKind,
    MachinePhase,
    TrainerError,
    TrainerOutcome,
)
from trainer.protocol.directive import Directive, DirectiveKind

_FENCED_KINDS = frozenset(
    {DirectiveKind.PREPARE, DirectiveKind.TRAIN, DirectiveKind.DRAIN, DirectiveKind.STOP}
)


def receive(context: StepContext, directive: Directive) -> None:
    """Take a directive as the desired state, unless it is older than the one there is.

    Ignored: a lower version, a lower fence than the attempt worked for, and a kind that needs a
    fence without one. The seconds of a drain run from the first receipt and are only shortened.
    """
    known, work = context.state.directive, context.state.work
    if known is not None and directive.version < known.version:
        return
    if directive.fence is None:
        if directive.kind in _FENCED_KINDS:
            return
    elif work is not None and directive.fence < work.fence:
        return
    drain_by = None
    if directive.kind is DirectiveKind.DRAIN and directive.drain_seconds is not None:
        drain_by = context.now + max(0.0, directive.drain_seconds)
        same = known is not None and known.fence == directive.fence
        if same and context.state.drain_by is not None:
            drain_by = min(drain_by, context.state.drain_by)
    context.state = replace(context.state, directive=directive, drain_by=drain_by)


def obey(context: StepContext) -> None:
    """Move one step towards the desired state."""
    directive = context.state.directive
    if context.state.leaving:
        return
    if context.state.shutting_down:
        _shut_down(context)
        return
    if directive is None:
        return
    if directive.kind is DirectiveKind.HOLD:
        _stop_preparing(context)
        until = context.now + context.state.limits.hold_drain
        attempt_ending.begin_drain(context, until, DrainReason.HOLD)
    elif directive.kind is DirectiveKind.LEAVE:
        if _is_free(context, at_once=True):
            context.leave("directive")
    elif directive.fence is not None:
        _obey_fenced(context, directive, directive.fence)


def _obey_fenced(context: StepContext, directive: Directive, fence: int) -> None:
    work = context.state.work
    if work is None or work.fence < fence:
        if _is_free(context):
            _begin(context, directive, fence)
        return
    match directive.kind:
        case DirectiveKind.TRAIN:
            _train(context, directive, work)
        case DirectiveKind.DRAIN:
            _never_started(context, work, TrainerOutcome.DRAINED)
            attempt_ending.begin_drain(context, context.state.drain_by, DrainReason.DIRECTIVE)
        case DirectiveKind.STOP:
            _never_started(context, work, TrainerOutcome.KILLED)
            if directive.stalled:
                attempt_ending.kill_with_stacks(context)
            else:
                # What a lost peer's survivors have saved is worth more than a quick end.
                attempt_ending.kill(context, finish_publishing=True)


def _begin(context: StepContext, directive: Directive, fence: int) -> None:
    """Start on an attempt this agent has not worked for yet."""
    work = Work(
        fence=fence,
        attempt_id=directive.attempt_id or f"attempt-{fence}",
        node_rank=directive.node_rank or 0,
        gang_size=max(1, len(directive.peers)),
        stage=Stage.PREPARING,
    )
    context.set_work(work)
    if directive.kind is DirectiveKind.PREPARE:
        context.do(StartPreparation(directive))
        return
    if directive.kind is DirectiveKind.DRAIN:
        _end(context, TrainerEnd(TrainerOutcome.DRAINED))
        return
    # Whoever is to train has prepared: if this agent has not, an earlier one has. A stop may also
    # meet a machine that was never asked to prepare.
    restarted = directive.kind is DirectiveKind.TRAIN
    error = TrainerError(
        "this agent never prepared the attempt" + (": it has restarted" if restarted else ""),
        type=AGENT_RESTARTED if restarted else None,
    )
    _end(context, TrainerEnd(TrainerOutcome.KILLED, error=error))


def _train(context: StepContext, directive: Directive, work: Work) -> None:
    outlook = (directive.hazard_per_hour, directive.price_per_hour_usd)
    if work.stage is Stage.RUNNING and outlook not in (work.told_outlook, (None, None)):
        context.work(told_outlook=outlook)
        context.do(TellOutlook(directive))
    if work.stage is not Stage.PREPARED:
        return
    holds = work.master_port
    if holds is not None and directive.master_port is not None and directive.master_port != holds:
        return  # an answer computed before our newest `prepared` arrived
    watched = context.state.watches_first_step and work.publishes
    stepped_at = context.now if watched else None
    context.work(stage=Stage.RUNNING, stepped_at=stepped_at, told_outlook=outlook)
    context.enter(
        MachinePhase.SETUP if context.state.watches_first_step else MachinePhase.TRAIN, context.now
    )
    context.do(StartTrainer(directive, work.parent))


def _never_started(context: StepContext, work: Work, outcome: TrainerOutcome) -> None:
    """An attempt that is ended before its trainer started has nothing to save."""
    if work.stage in (Stage.PREPARING, Stage.PREPARED):
        context.do(CancelPreparation(work.fence))
        _end(context, TrainerEnd(outcome))


def _end(context: StepContext, end: TrainerEnd) -> None:
    context.emit(FactKind.TRAINER_ENDED, context.fence, attempt_ending.end_data(end, None))
    context.work(stage=Stage.ENDED, end=end)
    context.enter(MachinePhase.IDLE, context.now)


def _stop_preparing(context: StepContext) -> None:
    work = context.state.work
    if work is not None and work.stage in (Stage.PREPARING, Stage.PREPARED):
        context.do(CancelPreparation(work.fence))
        context.work(stage=Stage.ENDED)
        context.enter(MachinePhase.IDLE, context.now)


def _shut_down(context: StepContext) -> None:
    """No order counts any more: what runs drains, and then the agent ends."""
    _stop_preparing(context)
    if context.state.work is None or context.state.work.stage is Stage.ENDED:
        context.leave("shutdown")


def _is_free(context: StepContext, at_once: bool = False) -> bool:
    """Make room for what is wanted now; true when nothing of the last attempt runs any more.

    A checkpoint that is complete here is committed first, within bounds and unless `at_once`: the
    attempt that is wanted begins with it, for its start is not recorded before.
    """
    _stop_preparing(context)
    work = context.state.work
    if work is None or work.stage is Stage.ENDED:
        return True
    if work.stage in TRAINER_STAGES:
        lost = context.state.lost_fence
        if work.stage is Stage.DRAINING and lost is not None and work.fence <= lost:
            return False  # nobody has ended this attempt: its last steps are worth a save
        attempt_ending.kill(context, finish_publishing=not at_once)
        return False
    return attempt_ending.close(context, at_once)
