"""The rules of one rented machine, as a pure function.

    step(state, observations, now_seconds) -> (state, actions)

No I/O, no clock, no threads: the agent (`machine_runtime`) and the simulator drive this same
function. `now_seconds` is the machine's CLOCK_BOOTTIME. A driver

1. begins with `initial_state`,
2. sends what `next_report` builds and feeds back ReportAnswered(sent_at=when it was *sent*),
3. carries out the actions and feeds back what each of them says it answers,
4. calls `step` at the latest at `time_rules.next_due(state, now_seconds)`.

Lives here: the turn of events. Not here: what a directive means (`directive_rules`), leases and
stalls (`time_rules`), checkpoints and the end of an attempt (`attempt_ending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trainer.agent.machine.progress_file import METRICS_MAX
from trainer.agent.notices import Notice, NoticeKind, notice_id_of
from trainer.agent.rules import attempt_ending, disk_rules, saving_outputs, time_rules
from trainer.agent.rules.actions import Action, ArmPowerOff, CancelPreparation, ReportNow
from trainer.agent.rules.agent_state import (
    TRAINER_STAGES,
    AgentState,
    DrainReason,
    Stage,
    Timings,
    TrainerEnd,
)
from trainer.agent.rules.directive_rules import obey, receive
from trainer.agent.rules.fact_backlog import FactBacklog
from trainer.agent.rules.observations import (
    CheckpointPublished,
    CheckpointReady,
    DiskSeen,
    FencedOff,
    GpuFaulted,
    NoticeSeen,
    Observation,
    OutputsFailed,
    OutputsSaved,
    PhaseEntered,
    PreparationFailed,
    Prepared,
    ProgressSeen,
    PublicationFailed,
    Refusal,
    Registered,
    ReportAnswered,
    ReportRefused,
    SaveLackedRoom,
    ShareSent,
    ShutdownAsked,
    TrainerExited,
    TrainerStarted,
)
from trainer.agent.rules.step_context import NOTICE_IDS_KEPT_MAX, StepContext
from trainer.agent.rules.step_pace import StepPace
from trainer.protocol.agent_report import (
    AGENT_RESTARTED,
    PROTOCOL_VERSION,
    AgentReport,
    FactKind,
    MachinePhase,
    Progress,
    TrainerError,
    TrainerOutcome,
)
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
            _observe_attempt(context, seen)


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


# One case an observation, each a call.
def _observe_attempt(context: StepContext, seen: Observation) -> None:  # noqa: C901
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
