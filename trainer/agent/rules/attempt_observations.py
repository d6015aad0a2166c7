"""What an observation about the attempt changes: prepared, started, progressed, saved, ended.

Lives here: one case for each. Not here: observations about the machine (`supervisor`), or how an
attempt ends (`attempt_ending`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainer.agent.machine.progress_file import METRICS_MAX
from trainer.agent.rules import attempt_ending, disk_rules, saving_outputs
from trainer.agent.rules.actions import CancelPreparation, ReportNow
from trainer.agent.rules.agent_state import TRAINER_STAGES, Stage
from trainer.agent.rules.observations import (
    CheckpointPublished,
    CheckpointReady,
    FencedOff,
    Observation,
    OutputsFailed,
    OutputsSaved,
    PhaseEntered,
    PreparationFailed,
    Prepared,
    ProgressSeen,
    PublicationFailed,
    SaveLackedRoom,
    ShareSent,
    TrainerExited,
    TrainerStarted,
)
from trainer.agent.rules.step_context import StepContext
from trainer.agent.rules.step_pace import StepPace
from trainer.protocol.agent_report import FactKind, MachinePhase, Progress
from trainer.protocol.wire import encode

_TRAINER_PHASES = frozenset(
    {
        MachinePhase.RESTORE,
        MachinePhase.COMPILE,
        MachinePhase.TRAIN,
        MachinePhase.CHECKPOINT,
        MachinePhase.EVAL,
    }
)
"""What a trainer can say of itself; the rest of the timeline is the agent's to tell."""

_BEFORE_FIRST_STEP = frozenset({MachinePhase.SETUP, MachinePhase.RESTORE, MachinePhase.COMPILE})
"""A trainer that starts up, loads a checkpoint or compiles; its first step says that it trains."""


# One case an observation, each a call.
def observe_attempt(context: StepContext, seen: Observation) -> None:  # noqa: C901
    """Observations that belong to an attempt; those of any other fence are void."""
    work = context.state.work
    if work is None or getattr(seen, "fence", None) != work.fence:
        return
    if work.stage is Stage.ENDED and not isinstance(seen, CheckpointPublished):
        return
    match seen:
        case PhaseEntered(_, phase, at, at_step):
            trains = work.stage is Stage.RUNNING and phase in _TRAINER_PHASES
            if trains or work.stage is Stage.PREPARING:
                _lives_on(context, phase)
                context.enter(phase, at, at_step)
        case Prepared():
            _prepared(context, seen)
        case PreparationFailed():
            _preparation_failed(context, seen)
        case TrainerStarted():
            context.work(pace=StepPace(context.now))
            context.emit(FactKind.TRAINER_STARTED, work.fence, {})
            context.do(ReportNow())
        case ProgressSeen():
            _progressed(context, seen)
        case SaveLackedRoom(_, _, left):
            disk_rules.save_lacked_room(context, left)
        case CheckpointReady(_, checkpoint):
            disk_rules.save_found_room(context)
            attempt_ending.checkpoint_ready(context, checkpoint)
        case CheckpointPublished():
            attempt_ending.checkpoint_published(context, seen)
        case ShareSent(_, checkpoint):
            attempt_ending.share_sent(context, checkpoint)
        case PublicationFailed():
            attempt_ending.publication_failed(context, seen)
        case OutputsSaved() | OutputsFailed():
            saving_outputs.ended(context, seen)
        case FencedOff(_, by_fence):
            attempt_ending.fenced_off(context, by_fence)
        case TrainerExited(_, end):
            attempt_ending.trainer_exited(context, end)


def _lives_on(context: StepContext, phase: MachinePhase) -> None:
    """Before the first step each new phase has the whole time in which a step is expected."""
    work = context.state.work
    if work is None or work.step is not None or work.stepped_at is None:
        return
    if phase in _BEFORE_FIRST_STEP and phase is not context.state.phase:
        context.work(stepped_at=context.now)


def _prepared(context: StepContext, seen: Prepared) -> None:
    work = context.state.work
    if work is None or work.stage is not Stage.PREPARING:
        return
    context.work(stage=Stage.PREPARED, parent=seen.parent, master_port=seen.master_port)
    data = {
        "parent": encode(seen.parent) if seen.parent else None,
        "master_port": seen.master_port,
        "final": seen.parent_final,
        "restored_bytes": seen.restored_bytes,
        "image": seen.image,
        "parent_size_bytes": seen.parent_size_bytes,
    }
    context.emit(FactKind.PREPARED, work.fence, data)
    if seen.parent_final and seen.parent is not None:
        done = {"step": seen.parent.step, "digest": seen.parent.digest}
        context.emit(FactKind.COMPLETION, work.fence, done)
    context.enter(MachinePhase.GANG_WAIT if work.gang_size > 1 else MachinePhase.IDLE, context.now)


def _preparation_failed(context: StepContext, seen: PreparationFailed) -> None:
    work = context.state.work
    if work is None or work.stage is not Stage.PREPARING:
        return
    data = {
        "stage": seen.stage,
        "message": seen.message,
        "store_unavailable": seen.store_unavailable,
        "disk_full": seen.disk_full
        or disk_rules.full_lately(context.state, context.now) is not None,
        "restored_bytes": seen.restored_bytes,
    }
    context.emit(FactKind.PREPARATION_FAILED, work.fence, data)
    context.do(CancelPreparation(work.fence))
    context.work(stage=Stage.ENDED)
    context.enter(MachinePhase.IDLE, context.now)


def _progressed(context: StepContext, seen: ProgressSeen) -> None:
    work = context.state.work
    if work is None or work.stage not in TRAINER_STAGES:
        return
    pace = work.pace
    if pace is not None:
        parent_step = None if work.parent is None else work.parent.step
        pace = pace.seen(seen.step, parent_step, context.now)
        context.work(pace=pace)
    before = context.state.progress or Progress(seen.step)
    progress = Progress(
        max(seen.step, before.step),
        seen.total_steps if seen.total_steps is not None else before.total_steps,
        _newest_metrics(before.metrics, seen.metrics),
        None if pace is None else pace.told,
    )
    context.state = replace(context.state, progress=progress)
    context.add_point({"step": float(seen.step), **seen.metrics})
    if work.step is None or seen.step > work.step:
        context.work(step=seen.step, stepped_at=context.now)
        if work.stage is Stage.RUNNING and context.state.phase in _BEFORE_FIRST_STEP:
            context.enter(MachinePhase.TRAIN, context.now, seen.step)


def _newest_metrics(before: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """As many as a report may carry, the newest ones: one with more would be refused for ever."""
    older = [(name, value) for name, value in before.items() if name not in seen]
    return dict([*older, *seen.items()][-METRICS_MAX:])
