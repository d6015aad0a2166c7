"""When the outputs of an attempt are saved: after its work is safe, before its end is told.

The end waits for them because the machine is given back at the end. Whatever becomes of them, the
checkpoint is committed and the job has succeeded. Not here: the saving (`output_folders`).
"""

from __future__ import annotations

from trainer.agent.rules.actions import SaveOutputs
from trainer.agent.rules.agent_state import Stage, Work
from trainer.agent.rules.observations import OutputsFailed, OutputsSaved
from trainer.agent.rules.step_context import StepContext
from trainer.protocol.agent_report import FactKind, MachinePhase, TrainerOutcome

_CUT = (
    "the outputs could not be saved in time: the machine is being given back; the final "
    "checkpoint is safe"
)


def wanted(context: StepContext, work: Work) -> bool:
    """Whether they are to be saved now: the trainer finished, and rank 0's final checkpoint is in
    the store.
    """
    finished = work.end is not None and work.end.outcome is TrainerOutcome.FINISHED
    safe = work.final_committed or not work.publishes
    untold = not (work.saving_outputs or work.outputs_told)
    return context.state.has_outputs and finished and safe and untold


def begin(context: StepContext, work: Work) -> None:
    """Start saving. A drain's own time stays what it is; nothing else hurries."""
    latest = context.now + context.state.limits.outputs
    context.work(saving_outputs=True, end_by=work.end_by if work.drain_reason else latest)
    context.enter(MachinePhase.CHECKPOINT, context.now, work.step)
    context.do(SaveOutputs(work.fence))


def ended(context: StepContext, seen: OutputsSaved | OutputsFailed) -> None:
    """Tell how it went."""
    work = context.state.work
    if work is None or work.stage is not Stage.CLOSING or not work.saving_outputs:
        return
    if isinstance(seen, OutputsSaved):
        told = {
            "files": seen.files,
            "size_bytes": seen.size_bytes,
            "addresses": list(seen.addresses),
        }
    else:
        told = {"error": seen.message[:2_000]}
    context.emit(FactKind.OUTPUTS, work.fence, told)
    context.work(saving_outputs=False, outputs_told=True)


def cut(context: StepContext, work: Work) -> None:
    """The attempt ends here and now."""
    if work.saving_outputs:
        context.emit(FactKind.OUTPUTS, work.fence, {"error": _CUT})
        context.work(saving_outputs=False, outputs_told=True)
