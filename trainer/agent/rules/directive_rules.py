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
from trainer.agent.rules.turn import StepContext
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


def receive(turn: StepContext, directive: Directive) -> None:
    """Take a directive as the desired state, unless it is older than the one there is.

    Ignored: a lower version, a lower fence than the attempt worked for, and a kind that needs a
    fence without one. The seconds of a drain run from the first receipt and are only shortened.
    """
    known, work = turn.state.directive, turn.state.work
    if known is not None and directive.version < known.version:
        return
    if directive.fence is None:
        if directive.kind in _FENCED_KINDS:
            return
    elif work is not None and directive.fence < work.fence:
        return
    drain_by = None
    if directive.kind is DirectiveKind.DRAIN and directive.drain_seconds is not None:
        drain_by = turn.now + max(0.0, directive.drain_seconds)
        same = known is not None and known.fence == directive.fence
        if same and turn.state.drain_by is not None:
            drain_by = min(drain_by, turn.state.drain_by)
    turn.state = replace(turn.state, directive=directive, drain_by=drain_by)


def obey(turn: StepContext) -> None:
    """Move one step towards the desired state."""
    directive = turn.state.directive
    if turn.state.leaving:
        return
    if turn.state.shutting_down:
        _shut_down(turn)
        return
    if directive is None:
        return
    if directive.kind is DirectiveKind.HOLD:
        _stop_preparing(turn)
        until = turn.now + turn.state.limits.hold_drain
        attempt_ending.begin_drain(turn, until, DrainReason.HOLD)
    elif directive.kind is DirectiveKind.LEAVE:
        if _is_free(turn, at_once=True):
            turn.leave("directive")
    elif directive.fence is not None:
        _obey_fenced(turn, directive, directive.fence)


def _obey_fenced(turn: StepContext, directive: Directive, fence: int) -> None:
    work = turn.state.work
    if work is None or work.fence < fence:
        if _is_free(turn):
            _begin(turn, directive, fence)
        return
    match directive.kind:
        case DirectiveKind.TRAIN:
            _train(turn, directive, work)
        case DirectiveKind.DRAIN:
            _never_started(turn, work, TrainerOutcome.DRAINED)
            attempt_ending.begin_drain(turn, turn.state.drain_by, DrainReason.DIRECTIVE)
        case DirectiveKind.STOP:
            _never_started(turn, work, TrainerOutcome.KILLED)
            if directive.stalled:
                attempt_ending.kill_with_stacks(turn)
            else:
                # What a lost peer's survivors have saved is worth more than a quick end.
                attempt_ending.kill(turn, finish_publishing=True)


def _begin(turn: StepContext, directive: Directive, fence: int) -> None:
    """Start on an attempt this agent has not worked for yet."""
    work = Work(
        fence=fence,
        attempt_id=directive.attempt_id or f"attempt-{fence}",
        node_rank=directive.node_rank or 0,
        gang_size=max(1, len(directive.peers)),
        stage=Stage.PREPARING,
    )
    turn.set_work(work)
    if directive.kind is DirectiveKind.PREPARE:
        turn.do(StartPreparation(directive))
        return
    if directive.kind is DirectiveKind.DRAIN:
        _end(turn, TrainerEnd(TrainerOutcome.DRAINED))
        return
    # Whoever is to train has prepared: if this agent has not, an earlier one has. A stop may also
    # meet a machine that was never asked to prepare.
    restarted = directive.kind is DirectiveKind.TRAIN
    error = TrainerError(
        "this agent never prepared the attempt" + (": it has restarted" if restarted else ""),
        type=AGENT_RESTARTED if restarted else None,
    )
    _end(turn, TrainerEnd(TrainerOutcome.KILLED, error=error))


def _train(turn: StepContext, directive: Directive, work: Work) -> None:
    outlook = (directive.hazard_per_hour, directive.price_per_hour_usd)
    if work.stage is Stage.RUNNING and outlook not in (work.told_outlook, (None, None)):
        turn.work(told_outlook=outlook)
        turn.do(TellOutlook(directive))
    if work.stage is not Stage.PREPARED:
        return
    holds = work.master_port
    if holds is not None and directive.master_port is not None and directive.master_port != holds:
        return  # an answer computed before our newest `prepared` arrived
    watched = turn.state.watches_first_step and work.publishes
    stepped_at = turn.now if watched else None
    turn.work(stage=Stage.RUNNING, stepped_at=stepped_at, told_outlook=outlook)
    turn.enter(
        MachinePhase.SETUP if turn.state.watches_first_step else MachinePhase.TRAIN, turn.now
    )
    turn.do(StartTrainer(directive, work.parent))


def _never_started(turn: StepContext, work: Work, outcome: TrainerOutcome) -> None:
    """An attempt that is ended before its trainer started has nothing to save."""
    if work.stage in (Stage.PREPARING, Stage.PREPARED):
        turn.do(CancelPreparation(work.fence))
        _end(turn, TrainerEnd(outcome))


def _end(turn: StepContext, end: TrainerEnd) -> None:
    turn.emit(FactKind.TRAINER_ENDED, turn.fence, attempt_ending.end_data(end, None))
    turn.work(stage=Stage.ENDED, end=end)
    turn.enter(MachinePhase.IDLE, turn.now)


def _stop_preparing(turn: StepContext) -> None:
    work = turn.state.work
    if work is not None and work.stage in (Stage.PREPARING, Stage.PREPARED):
        turn.do(CancelPreparation(work.fence))
        turn.work(stage=Stage.ENDED)
        turn.enter(MachinePhase.IDLE, turn.now)


def _shut_down(turn: StepContext) -> None:
    """No order counts any more: what runs drains, and then the agent ends."""
    _stop_preparing(turn)
    if turn.state.work is None or turn.state.work.stage is Stage.ENDED:
        turn.leave("shutdown")


def _is_free(turn: StepContext, at_once: bool = False) -> bool:
    """Make room for what is wanted now; true when nothing of the last attempt runs any more.

    A checkpoint that is complete here is committed first, within bounds and unless `at_once`: the
    attempt that is wanted begins with it, for its start is not recorded before.
    """
    _stop_preparing(turn)
    work = turn.state.work
    if work is None or work.stage is Stage.ENDED:
        return True
    if work.stage in TRAINER_STAGES:
        lost = turn.state.lost_fence
        if work.stage is Stage.DRAINING and lost is not None and work.fence <= lost:
            return False  # nobody has ended this attempt: its last steps are worth a save
        attempt_ending.kill(turn, finish_publishing=not at_once)
        return False
    return attempt_ending.close(turn, at_once)
