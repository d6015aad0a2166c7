"""The rules of one rented machine, as a pure function.

    step(state, observations, now_seconds) -> (state, actions)

No I/O, no clock, no threads: the agent (`machine_runtime`) and the simulator drive this same
function. `now_seconds` is the machine's CLOCK_BOOTTIME. A driver

1. begins with `initial_state`,
2. sends what `next_report` builds and feeds back ReportAnswered(sent_at=when it was *sent*),
3. carries out the actions and feeds back what each of them says it answers,
4. calls `step` at the latest at `time_rules.next_due(state, now_seconds)`.

Lives here: the turn of events, and what happens to the machine. Not here: what happens to its
attempt (`attempt_observations`), what a directive means (`directive_rules`), leases and stalls
(`time_rules`), checkpoints and the end of an attempt (`attempt_ending`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainer.agent.notices import Notice, NoticeKind, notice_id_of
from trainer.agent.rules import attempt_ending, disk_rules, time_rules
from trainer.agent.rules.actions import Action, ArmPowerOff, ReportNow
from trainer.agent.rules.agent_state import AgentState, DrainReason, Stage, Timings, TrainerEnd
from trainer.agent.rules.attempt_observations import observe_attempt
from trainer.agent.rules.directive_rules import obey, receive
from trainer.agent.rules.fact_backlog import FactBacklog
from trainer.agent.rules.observations import (
    DiskSeen,
    GpuFaulted,
    NoticeSeen,
    Observation,
    Refusal,
    Registered,
    ReportAnswered,
    ReportRefused,
    ShutdownAsked,
)
from trainer.agent.rules.step_context import NOTICE_IDS_KEPT_MAX, StepContext
from trainer.protocol.agent_report import (
    AGENT_RESTARTED,
    PROTOCOL_VERSION,
    AgentReport,
    FactKind,
    MachinePhase,
    TrainerError,
    TrainerOutcome,
)


def initial_state(
    boot_id: str,
    session_id: str,
    now_seconds: float,
    limits: Timings | None = None,
    killed_fence: int | None = None,
    killed_step: int | None = None,
    last_words: str = "",
) -> AgentState:
    """The state of an agent that has just started and was not answered yet.

    killed_fence: the attempt whose trainer an earlier agent of this machine had left running and
    which was killed before this call; its end is then the first fact. last_words: what that agent
    ended with, where it could say.
    """
    state = AgentState(
        boot_id=boot_id,
        session_id=session_id,
        limits=limits or Timings(),
        started_at=now_seconds,
        facts=FactBacklog(),
        phase_at=now_seconds,
        points_sent_at=now_seconds,
    )
    context = StepContext(state, now_seconds)
    context.emit(FactKind.PHASE, None, {"phase": MachinePhase.BOOT.value, "step": None})
    if killed_fence is not None:
        message = "the agent restarted and ended the trainer it found"
        message += f": it had failed with {last_words}" if last_words else ""
        error = TrainerError(message, type=AGENT_RESTARTED)
        end = TrainerEnd(TrainerOutcome.KILLED, step=killed_step, error=error)
        context.emit(FactKind.TRAINER_ENDED, killed_fence, attempt_ending.end_data(end, None))
    return context.state


def step(
    state: AgentState, observations: Iterable[Observation], now_seconds: float
) -> tuple[AgentState, tuple[Action, ...]]:
    """Take in what happened, apply the rules of time, and say what to do. Never raises."""
    context = StepContext(state, now_seconds)
    for observation in observations:
        _observe(context, observation)
    time_rules.apply(context)
    obey(context)
    attempt_ending.advance(context)
    obey(context)  # the machine may have become free for what is wanted of it
    context.flush_points(at_once=False)
    _keep_quiet(context)
    return context.state, context.finished_actions()


def next_report(state: AgentState, now_seconds: float) -> tuple[AgentState, AgentReport]:
    """Build the report to send now; only after Registered. Raises ValueError before that."""
    if state.instance_id is None:
        raise ValueError("an agent reports only once it is registered")
    state = replace(state, seq=state.seq + 1)
    report = AgentReport(
        protocol=PROTOCOL_VERSION,
        instance_id=state.instance_id or "",
        boot_id=state.boot_id,
        session_id=state.session_id,
        seq=state.seq,
        uptime_ms=round(now_seconds * 1000),
        phase=state.phase,
        fence=_told_fence(state),
        progress=state.progress,
        facts=state.facts.next_batch(),
        disk_full=disk_rules.told_full(state, now_seconds),
    )
    return state, report


# --- observations -------------------------------------------------------------------------------


def _observe(context: StepContext, seen: Observation) -> None:
    match seen:
        case Registered(sent_at, reply):
            if context.state.instance_id not in (None, reply.instance_id):
                _became_another(context)
            config = reply.run_config
            context.state = replace(
                context.state,
                instance_id=reply.instance_id,
                stall_timeout_seconds=config.stall_timeout_seconds,
                watches_first_step=config.trainer is not None,
                has_outputs=bool(config.outputs),
            )
            _renew_lease(context, sent_at, reply.lease_seconds)
            receive(context, reply.directive)
        case ReportAnswered(sent_at, answer):
            context.state = replace(
                context.state, facts=context.state.facts.acknowledge(answer.ack_fact_no)
            )
            _renew_lease(context, sent_at, answer.lease_seconds)
            receive(context, answer.directive)
            if len(context.state.facts.pending) > len(context.state.facts.next_batch()):
                context.do(ReportNow())
        case ReportRefused(refusal):
            _refused(context, refusal)
        case NoticeSeen(notice):
            _noticed(context, notice)
        case ShutdownAsked(seconds_left):
            context.state = replace(context.state, shutting_down=True)
            identity = notice_id_of("shutdown")
            kind = NoticeKind.INTERRUPTION
            _noticed(context, Notice(kind, "shutdown", seconds_left, "os", identity))
        case DiskSeen():
            disk_rules.disk_seen(context, seen)
        case GpuFaulted(message):
            context.emit(FactKind.GPU_FAULT, context.fence, {"message": message})
            context.do(ReportNow())
        case _:
            observe_attempt(context, seen)


def _became_another(context: StepContext) -> None:
    """The control plane lost this machine's row and has made another one for it.

    What runs here belongs to an attempt that nobody knows: it saves and ends, and nothing more is
    told of it, for a report that named it would be refused as a whole.
    """
    work = context.state.work
    if work is not None:
        context.state = replace(context.state, lost_fence=work.fence)
        until = context.now + context.state.limits.hold_drain
        attempt_ending.begin_drain(context, until, DrainReason.HOLD)
    # Orders to the lost row are numbered by it.
    context.state = replace(context.state, directive=None, drain_by=None, seq=0)


def _keep_quiet(context: StepContext) -> None:
    lost = context.state.lost_fence
    if lost is not None:
        context.state = replace(context.state, facts=context.state.facts.forget_fences(lost))


def _told_fence(state: AgentState) -> int | None:
    work, lost = state.work, state.lost_fence
    if work is None or work.stage is Stage.ENDED or (lost is not None and work.fence <= lost):
        return None
    return work.fence


def _renew_lease(context: StepContext, sent_at: float, lease_seconds: float) -> None:
    """An answer to a report that was sent earlier than the newest answered one adds nothing."""
    if context.state.lease_from is not None and sent_at < context.state.lease_from:
        return
    context.state = replace(context.state, lease_from=sent_at, lease_seconds=lease_seconds)
    context.do(ArmPowerOff(time_rules.power_off_at(context.state)))


def _refused(context: StepContext, refusal: Refusal) -> None:
    if refusal is Refusal.REVOKED:
        attempt_ending.kill(context)
        context.leave("credential revoked")
    elif refusal is Refusal.PROTOCOL:
        attempt_ending.begin_drain(context, context.state.lease_until, DrainReason.PROTOCOL)
    else:
        attempt_ending.abandon(context)


def _noticed(context: StepContext, notice: Notice) -> None:
    """Report a notice once, and drain for it without waiting to be told."""
    if notice.notice_id in context.state.notice_ids:
        return
    ids = (*context.state.notice_ids, notice.notice_id)[-NOTICE_IDS_KEPT_MAX:]
    context.state = replace(context.state, notice_ids=ids)
    if notice.kind is NoticeKind.REBALANCE:
        context.emit(FactKind.REBALANCE, context.fence, {"source": notice.source})
        context.do(ReportNow())
        return
    context.emit(
        FactKind.NOTICE,
        context.fence,
        {
            "action": notice.action,
            "seconds_left": notice.seconds_left,
            "source": notice.source,
            "notice_id": notice.notice_id,
        },
    )
    seconds = notice.seconds_left
    if notice.kind is NoticeKind.INTERRUPTION and seconds is None:
        seconds = context.state.limits.hold_drain
    if seconds is not None and seconds <= context.state.limits.notice_drain:
        # A clock that is off must not leave the trainer no time at all.
        seconds = max(seconds, context.state.limits.notice_least)
        attempt_ending.begin_drain(context, context.now + seconds, DrainReason.NOTICE)
