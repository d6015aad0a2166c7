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
from trainer.agent.rules.step_pace import StepPace
from trainer.agent.rules.turn import NOTICE_IDS_KEPT_MAX, StepContext
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
    turn = StepContext(state, now_seconds)
    turn.emit(FactKind.PHASE, None, {"phase": MachinePhase.BOOT.value, "step": None})
    if killed_fence is not None:
        message = "the agent restarted and ended the trainer it found"
        message += f": it had failed with {last_words}" if last_words else ""
        error = TrainerError(message, type=AGENT_RESTARTED)
        end = TrainerEnd(TrainerOutcome.KILLED, step=killed_step, error=error)
        turn.emit(FactKind.TRAINER_ENDED, killed_fence, attempt_ending.end_data(end, None))
    return turn.state


def step(
    state: AgentState, observations: Iterable[Observation], now_seconds: float
) -> tuple[AgentState, tuple[Action, ...]]:
    """Take in what happened, apply the rules of time, and say what to do. Never raises."""
    turn = StepContext(state, now_seconds)
    for observation in observations:
        _observe(turn, observation)
    time_rules.apply(turn)
    obey(turn)
    attempt_ending.advance(turn)
    obey(turn)  # the machine may have become free for what is wanted of it
    turn.flush_points(at_once=False)
    _keep_quiet(turn)
    return turn.state, turn.finished_actions()


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


def _observe(turn: StepContext, seen: Observation) -> None:
    match seen:
        case Registered(sent_at, reply):
            if turn.state.instance_id not in (None, reply.instance_id):
                _became_another(turn)
            config = reply.run_config
            turn.state = replace(
                turn.state,
                instance_id=reply.instance_id,
                stall_timeout_seconds=config.stall_timeout_seconds,
                watches_first_step=config.trainer is not None,
                has_outputs=bool(config.outputs),
            )
            _renew_lease(turn, sent_at, reply.lease_seconds)
            receive(turn, reply.directive)
        case ReportAnswered(sent_at, answer):
            turn.state = replace(turn.state, facts=turn.state.facts.acknowledge(answer.ack_fact_no))
            _renew_lease(turn, sent_at, answer.lease_seconds)
            receive(turn, answer.directive)
            if len(turn.state.facts.pending) > len(turn.state.facts.next_batch()):
                turn.do(ReportNow())
        case ReportRefused(refusal):
            _refused(turn, refusal)
        case NoticeSeen(notice):
            _noticed(turn, notice)
        case ShutdownAsked(seconds_left):
            turn.state = replace(turn.state, shutting_down=True)
            identity = notice_id_of("shutdown")
            kind = NoticeKind.INTERRUPTION
            _noticed(turn, Notice(kind, "shutdown", seconds_left, "os", identity))
        case DiskSeen():
            disk_rules.disk_seen(turn, seen)
        case GpuFaulted(message):
            turn.emit(FactKind.GPU_FAULT, turn.fence, {"message": message})
            turn.do(ReportNow())
        case _:
            _observe_attempt(turn, seen)


def _became_another(turn: StepContext) -> None:
    """The control plane lost this machine's row and has made another one for it.

    What runs here belongs to an attempt that nobody knows: it saves and ends, and nothing more is
    told of it, for a report that named it would be refused as a whole.
    """
    work = turn.state.work
    if work is not None:
        turn.state = replace(turn.state, lost_fence=work.fence)
        until = turn.now + turn.state.limits.hold_drain
        attempt_ending.begin_drain(turn, until, DrainReason.HOLD)
    # Orders to the lost row are numbered by it.
    turn.state = replace(turn.state, directive=None, drain_by=None, seq=0)


def _keep_quiet(turn: StepContext) -> None:
    lost = turn.state.lost_fence
    if lost is not None:
        turn.state = replace(turn.state, facts=turn.state.facts.forget_fences(lost))


def _told_fence(state: AgentState) -> int | None:
    work, lost = state.work, state.lost_fence
    if work is None or work.stage is Stage.ENDED or (lost is not None and work.fence <= lost):
        return None
    return work.fence


def _observe_attempt(turn: StepContext, seen: Observation) -> None:
    """Observations that belong to an attempt; those of any other fence are void."""
    work = turn.state.work
    if work is None or getattr(seen, "fence", None) != work.fence:
        return
    if work.stage is Stage.ENDED and not isinstance(seen, CheckpointPublished):
        return
    match seen:
        case PhaseEntered(_, phase, at, at_step):
            trains = work.stage is Stage.RUNNING and phase in _TRAINER_PHASES
            if trains or work.stage is Stage.PREPARING:
                _lives_on(turn, phase)
                turn.enter(phase, at, at_step)
        case Prepared():
            _prepared(turn, seen)
        case PreparationFailed():
            _preparation_failed(turn, seen)
        case TrainerStarted():
            turn.work(pace=StepPace(turn.now))
            turn.emit(FactKind.TRAINER_STARTED, work.fence, {})
            turn.do(ReportNow())
        case ProgressSeen():
            _progressed(turn, seen)
        case SaveLackedRoom(_, _, left):
            disk_rules.save_lacked_room(turn, left)
        case CheckpointReady(_, checkpoint):
            disk_rules.save_found_room(turn)
            attempt_ending.checkpoint_ready(turn, checkpoint)
        case CheckpointPublished():
            attempt_ending.checkpoint_published(turn, seen)
        case ShareSent(_, checkpoint):
            attempt_ending.share_sent(turn, checkpoint)
        case PublicationFailed():
            attempt_ending.publication_failed(turn, seen)
        case OutputsSaved() | OutputsFailed():
            saving_outputs.ended(turn, seen)
        case FencedOff(_, by_fence):
            attempt_ending.fenced_off(turn, by_fence)
        case TrainerExited(_, end):
            attempt_ending.trainer_exited(turn, end)


def _lives_on(turn: StepContext, phase: MachinePhase) -> None:
    """Before the first step each new phase has the whole time in which a step is expected."""
    work = turn.state.work
    if work is None or work.step is not None or work.stepped_at is None:
        return
    if phase in _BEFORE_FIRST_STEP and phase is not turn.state.phase:
        turn.work(stepped_at=turn.now)


def _renew_lease(turn: StepContext, sent_at: float, lease_seconds: float) -> None:
    """An answer to a report that was sent earlier than the newest answered one adds nothing."""
    if turn.state.lease_from is not None and sent_at < turn.state.lease_from:
        return
    turn.state = replace(turn.state, lease_from=sent_at, lease_seconds=lease_seconds)
    turn.do(ArmPowerOff(time_rules.power_off_at(turn.state)))


def _refused(turn: StepContext, refusal: Refusal) -> None:
    if refusal is Refusal.REVOKED:
        attempt_ending.kill(turn)
        turn.leave("credential revoked")
    elif refusal is Refusal.PROTOCOL:
        attempt_ending.begin_drain(turn, turn.state.lease_until, DrainReason.PROTOCOL)
    else:
        attempt_ending.abandon(turn)


def _noticed(turn: StepContext, notice: Notice) -> None:
    """Report a notice once, and drain for it without waiting to be told."""
    if notice.notice_id in turn.state.notice_ids:
        return
    ids = (*turn.state.notice_ids, notice.notice_id)[-NOTICE_IDS_KEPT_MAX:]
    turn.state = replace(turn.state, notice_ids=ids)
    if notice.kind is NoticeKind.REBALANCE:
        turn.emit(FactKind.REBALANCE, turn.fence, {"source": notice.source})
        turn.do(ReportNow())
        return
    turn.emit(
        FactKind.NOTICE,
        turn.fence,
        {
            "action": notice.action,
            "seconds_left": notice.seconds_left,
            "source": notice.source,
            "notice_id": notice.notice_id,
        },
    )
    seconds = notice.seconds_left
    if notice.kind is NoticeKind.INTERRUPTION and seconds is None:
        seconds = turn.state.limits.hold_drain
    if seconds is not None and seconds <= turn.state.limits.notice_drain:
        # A clock that is off must not leave the trainer no time at all.
        seconds = max(seconds, turn.state.limits.notice_least)
        attempt_ending.begin_drain(turn, turn.now + seconds, DrainReason.NOTICE)


def _prepared(turn: StepContext, seen: Prepared) -> None:
    work = turn.state.work
    if work is None or work.stage is not Stage.PREPARING:
        return
    turn.work(stage=Stage.PREPARED, parent=seen.parent, master_port=seen.master_port)
    data = {
        "parent": encode(seen.parent) if seen.parent else None,
        "master_port": seen.master_port,
        "final": seen.parent_final,
        "restored_bytes": seen.restored_bytes,
        "image": seen.image,
        "parent_size_bytes": seen.parent_size_bytes,
    }
    turn.emit(FactKind.PREPARED, work.fence, data)
    if seen.parent_final and seen.parent is not None:
        done = {"step": seen.parent.step, "digest": seen.parent.digest}
        turn.emit(FactKind.COMPLETION, work.fence, done)
    turn.enter(MachinePhase.GANG_WAIT if work.gang_size > 1 else MachinePhase.IDLE, turn.now)


def _preparation_failed(turn: StepContext, seen: PreparationFailed) -> None:
    work = turn.state.work
    if work is None or work.stage is not Stage.PREPARING:
        return
    data = {
        "stage": seen.stage,
        "message": seen.message,
        "store_unavailable": seen.store_unavailable,
        "disk_full": seen.disk_full or disk_rules.full_lately(turn.state, turn.now) is not None,
        "restored_bytes": seen.restored_bytes,
    }
    turn.emit(FactKind.PREPARATION_FAILED, work.fence, data)
    turn.do(CancelPreparation(work.fence))
    turn.work(stage=Stage.ENDED)
    turn.enter(MachinePhase.IDLE, turn.now)


def _progressed(turn: StepContext, seen: ProgressSeen) -> None:
    work = turn.state.work
    if work is None or work.stage not in TRAINER_STAGES:
        return
    pace = work.pace
    if pace is not None:
        parent_step = None if work.parent is None else work.parent.step
        pace = pace.seen(seen.step, parent_step, turn.now)
        turn.work(pace=pace)
    before = turn.state.progress or Progress(seen.step)
    progress = Progress(
        max(seen.step, before.step),
        seen.total_steps if seen.total_steps is not None else before.total_steps,
        _newest_metrics(before.metrics, seen.metrics),
        None if pace is None else pace.told,
    )
    turn.state = replace(turn.state, progress=progress)
    turn.add_point({"step": float(seen.step), **seen.metrics})
    if work.step is None or seen.step > work.step:
        turn.work(step=seen.step, stepped_at=turn.now)
        if work.stage is Stage.RUNNING and turn.state.phase in _BEFORE_FIRST_STEP:
            turn.enter(MachinePhase.TRAIN, turn.now, seen.step)


def _newest_metrics(before: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """As many as a report may carry, the newest ones: one with more would be refused for ever."""
    older = [(name, value) for name, value in before.items() if name not in seen]
    return dict([*older, *seen.items()][-METRICS_MAX:])
