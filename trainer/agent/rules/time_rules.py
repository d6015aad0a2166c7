"""What time alone decides on a machine: the end of the lease, of a drain, of patience.

The lease is counted from the sending of the last answered report. Before it ends the trainer
drains and commits; at its end the trainer is killed; some minutes later the machine powers off.
Not here: how a drain or an end goes on (`attempt_ending`).
"""

from __future__ import annotations

from dataclasses import replace

from trainer.agent.rules import attempt_ending
from trainer.agent.rules.actions import PowerOff
from trainer.agent.rules.agent_state import AgentState, DrainReason, Stage
from trainer.agent.rules.step_context import StepContext
from trainer.protocol.agent_report import FactKind


def next_due(state: AgentState, now_seconds: float) -> float | None:
    """The next instant after now at which time alone may change something, or None."""
    work = state.work
    due: list[float] = []
    if state.lease_until is not None:
        due += [state.lease_until - _reserve(state), state.lease_until]
    if not state.powered_off:
        due.append(power_off_at(state))
    if work is not None:
        due += [at for at in (work.end_by, work.kill_at, work.retry_at) if at is not None]
        if work.stage is Stage.RUNNING and work.stepped_at is not None:
            due.append(work.stepped_at + state.stall_timeout_seconds)
    if state.points:
        due.append(state.points_sent_at + 1.0)
    return min((at for at in due if at > now_seconds), default=None)


def _reserve(state: AgentState) -> float:
    return min(state.limits.lease_reserve, state.lease_seconds / 3)


def power_off_at(state: AgentState) -> float:
    """When the machine powers off by itself unless the control plane answers again."""
    until = state.lease_until
    if until is None:
        until = state.started_at + state.limits.unanswered
    return until + state.limits.power_off_grace


def may_commit(state: AgentState, fence: int, now_seconds: float) -> bool:
    """Right before a manifest: the lease holds and the attempt is still this machine's."""
    work, until = state.work, state.lease_until
    mine = work is not None and work.fence == fence and work.stage is not Stage.ENDED
    return mine and until is not None and now_seconds < until


def apply(context: StepContext) -> None:
    """Everything that the time alone decides."""
    state = context.state
    if context.now >= power_off_at(state) and not state.powered_off:
        context.state = replace(state, powered_off=True)
        context.do(PowerOff())
    until = state.lease_until
    if until is not None and context.now >= until:
        attempt_ending.kill(context)
    elif until is not None and context.now >= until - _reserve(state):
        attempt_ending.begin_drain(context, until, DrainReason.LEASE)
    work = context.state.work
    if work is None:
        return
    if work.stage is Stage.DRAINING and work.end_by is not None and context.now >= work.end_by:
        attempt_ending.kill(context, finish_publishing=attempt_ending.outlasts_drain(context, work))
    if work.kill_at is not None and context.now >= work.kill_at:
        attempt_ending.kill(context, finish_publishing=True)
    if work.stage is Stage.RUNNING and work.kill_at is None and work.stepped_at is not None:
        silent = context.now - work.stepped_at
        if silent >= state.stall_timeout_seconds:
            _stalled(context, work.fence, work.step, silent)


def _stalled(context: StepContext, fence: int, at_step: int | None, silent: float) -> None:
    """No newer step for too long: every rank's stacks into the logs, then the end."""
    context.emit(FactKind.STALLED, fence, {"step": at_step, "seconds": round(silent, 3)})
    attempt_ending.kill_with_stacks(context)
