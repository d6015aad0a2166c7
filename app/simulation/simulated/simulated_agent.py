"""One machine's agent: the real supervisor, driven in virtual time.

Lives here: what `machine_runtime` does on a real machine: registering, reporting, and carrying out
actions, with trainer, store and network simulated. Not here: the agent's rules (`trainer.agent`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.domain.lifecycle.instance import EndedBy
from app.domain.units.errors import DomainError
from app.orchestration.agents.receive_agent_report import CredentialRefused, FenceRefused
from app.orchestration.agents.register_agent import NotKnownYet
from app.simulation.engine.event_log import EventLog
from app.simulation.engine.event_loop import Event, EventLoop
from app.simulation.engine.memory_store import JobStore, MemoryStore
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.engine.virtual_clock import microseconds
from app.simulation.simulated.agent_line import AgentLine
from app.simulation.simulated.agent_network import AgentNetwork
from app.simulation.simulated.api_process import Unreachable
from app.simulation.simulated.machine_clock import MachineClock
from app.simulation.simulated.simulated_gang import SimulatedGang, Trainings
from app.simulation.simulated.simulated_lineage import Lineage
from app.simulation.simulated.simulated_machine import SimulatedMachine
from trainer.agent.notices import Notice, NoticeKind
from trainer.agent.rules import supervisor, time_rules
from trainer.agent.rules.actions import (
    Action,
    ArmPowerOff,
    CancelPreparation,
    KillTrainer,
    Leave,
    PowerOff,
    PublishCheckpoint,
    ReportNow,
    SignalDrain,
    StartPreparation,
    StartTrainer,
)
from trainer.agent.rules.agent_state import AgentState, Stage
from trainer.agent.rules.observations import (
    CheckpointReady,
    DiskSeen,
    GpuFaulted,
    NoticeSeen,
    Observation,
    Refusal,
    Registered,
    ReportAnswered,
    ReportRefused,
    SaveLackedRoom,
    TrainerStarted,
)
from trainer.protocol.agent_report import PROTOCOL_VERSION, DiskFull, Registration

_REGISTRATION_SECONDS_MAX = 1_800.0
_RETRY_MOST_SECONDS = 15.0
_UNANSWERED_POWER_OFF_SECONDS = 2_100.0
_SOON_SECONDS = 0.05


@dataclass(frozen=True)
class AgentTools:
    """What agents share: the world they live in."""

    loop: EventLoop
    log: EventLog
    network: AgentNetwork
    trainings: Trainings
    store: MemoryStore
    power_off: Callable[[SimulatedMachine, EndedBy], None]


class SimulatedAgent:
    """The agent of one machine, from boot to its end."""

    def __init__(self, tools: AgentTools, machine: SimulatedMachine, dice: Dice) -> None:
        self.machine = machine
        self.state: AgentState | None = None
        self.line = AgentLine(tools.network, tools.loop, dice, self._say)
        self.dead = False
        self.disk_full: DiskFull | None = None
        self._tools = tools
        self._clock = MachineClock(tools.loop.clock, machine.running_us)
        self.uptime = self._clock.seconds
        self._dice = dice
        self._nonce = f"{dice.bits(256):064x}"
        self._boot_id = f"boot-{machine.machine_id}"
        self._sessions = 0
        self._period = 60.0
        self._failures = 0
        self._report: Event | None = None
        self._wake: Event | None = None
        self._power_off: Event | None = None
        self._gang: SimulatedGang | None = None
        self._rank = 0
        self._lineage: Lineage | None = None
        self._job_id = ""

    def drift(self, pace: float) -> None:
        """From now on its clock makes so many seconds in one."""
        self._clock.drift(pace)
        self._plan_wake()

    def report_now(self) -> None:
        """Its next report is not waited for."""
        if self._report is not None:
            self._report.cancel()
        self._send()

    def disk(self, full: DiskFull | None) -> None:
        """Its disk is full from now on, or has room again (None)."""
        self.disk_full = full
        self.observe(DiskSeen(full))

    @property
    def registered(self) -> bool:
        """It has a credential."""
        return bool(self.line.credential)

    def has_lease(self) -> bool:
        """By its own clock it may train on."""
        until = None if self.dead or self.state is None else self.state.lease_until
        return until is not None and self.uptime() < until

    def notice_delay(self) -> float:
        """Seconds until its watch of the metadata looks again."""
        return self._dice.uniform(0.1, 5.0)

    def boot(self, after_seconds: float) -> None:
        """The machine runs; its agent starts after the image has booted."""
        self._arm(self.uptime() + after_seconds + _UNANSWERED_POWER_OFF_SECONDS)
        self._after(after_seconds, self._begin_session)

    def die(self) -> None:
        """The machine is gone, or hangs for good: nothing on it runs any more."""
        if self.dead:
            return
        self.dead = True
        for event in (self._report, self._wake, self._power_off):
            if event is not None:
                event.cancel()
        if self._lineage is not None:
            self._lineage.cancel()
        if self._gang is not None:
            self._gang.vanish(self._rank)

    def restart(self) -> None:
        """The agent's process dies and comes back; it kills the trainer it finds."""
        if self.dead or self.state is None:
            return
        work = self.state.work
        killed = work.fence if work is not None and work.stage is not Stage.ENDED else None
        self._say(f"its agent restarts, killing the trainer of attempt {killed}")
        for event in (self._report, self._wake):
            if event is not None:
                event.cancel()
        if self._lineage is not None:
            self._lineage.cancel()
        if self._gang is not None:
            self._gang.vanish(self._rank)
        self._gang = self.state = None
        self._after(1.0, lambda: self._begin_session(killed))

    def gpu_fault(self) -> None:
        """A GPU reports an error for good."""
        self.observe(GpuFaulted("Xid 79: the GPU has fallen off the bus"))

    def see_notice(self, seconds_left: Callable[[], float], number: int) -> None:
        """The machine's metadata shows a notice from now on."""
        if self.state is None:
            self._after(2.0, lambda: self.see_notice(seconds_left, number))
            return
        notice = Notice(
            NoticeKind.INTERRUPTION,
            "terminate",
            max(0.0, seconds_left()),
            "simulated_metadata",
            f"{self.machine.machine_id}/{number}",
        )
        self.observe(NoticeSeen(notice))

    def observe(self, observation: Observation) -> None:
        """Let the supervisor take a step and do what it says."""
        self._step((observation,))

    # --- the supervisor's driver ---

    def _begin_session(self, killed_fence: int | None = None) -> None:
        self._sessions += 1
        session_id = f"{self.machine.machine_id}-session-{self._sessions}"
        self._register(session_id, killed_fence, self.uptime(), 1.0)

    def _register(
        self, session_id: str, killed_fence: int | None, since: float, wait: float
    ) -> None:
        now = self.uptime()
        if now - since > _REGISTRATION_SECONDS_MAX:
            self._say("gives up registering")
            return
        try:
            reply = self.line.register(self._registration(session_id))
        except NotKnownYet:
            self._after(1.0, lambda: self._register(session_id, killed_fence, since, 1.0))
            return
        except Unreachable:
            longer = min(wait * 1.5, _RETRY_MOST_SECONDS)
            self._after(longer, lambda: self._register(session_id, killed_fence, since, longer))
            return
        except DomainError as error:
            self._say(f"its registration is refused: {type(error).__name__}")
            return
        self._job_id = reply.run_config.job_id
        store = JobStore(self._tools.store, reply.run_config.checkpoint_uri.rsplit("/", 1)[-1])
        self._lineage = Lineage(
            store,
            self._tools.loop,
            self._dice,
            self.observe,
            self._may_commit,
            self.has_lease,
            self.uptime,
            reply.instance_id,
        )
        self._period = reply.next_report_seconds
        self.state = supervisor.initial_state(
            self._boot_id, session_id, now, killed_fence=killed_fence
        )
        self._say(f"registered as {reply.instance_id}")
        self._step((Registered(now, reply),))
        self._send_after(_SOON_SECONDS)

    def _registration(self, session_id: str) -> Registration:
        number = int(self.machine.machine_id.rsplit("-", 1)[-1])
        return Registration(
            protocol=PROTOCOL_VERSION,
            launch_token=self.machine.user_data["LOWTIDE_LAUNCH_TOKEN"],
            nonce=self._nonce,
            provider_instance_id=self.machine.machine_id,
            boot_id=self._boot_id,
            session_id=session_id,
            uptime_ms=round(self.uptime() * 1000),
            private_address=f"10.0.{number // 250}.{number % 250 + 1}",
            port_from=20_000,
            port_to=20_100,
            gpu_count=1,
        )

    def _step(self, observations: tuple[Observation, ...]) -> None:
        if self.dead or self.state is None:
            return
        self.state, actions = supervisor.step(self.state, observations, self.uptime())
        for action in actions:
            self._carry_out(action)
        self._plan_wake()

    def _plan_wake(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if self.dead or self.state is None:
            return
        due = time_rules.next_due(self.state, self.uptime())
        if due is not None:
            # A hair later, so that what is due has really come when floats are compared.
            self._wake = self._tools.loop.at(
                self._clock.true_us_at(due) + 2, lambda: self._step(())
            )

    def _carry_out(self, action: Action) -> None:
        match action:
            case StartPreparation(directive) if self._lineage is not None:
                self._rank = directive.node_rank or 0
                self._gang = self._tools.trainings.gang(
                    self._job_id, directive.fence or 0, max(1, len(directive.peers))
                )
                self._lineage.prepare(directive)
            case CancelPreparation() if self._lineage is not None:
                self._lineage.cancel_preparation()
            case StartTrainer(directive, parent):
                self._start_trainer(directive.fence or 0, parent.step if parent else 0)
            case SignalDrain() if self._gang is not None:
                self._gang.drain(self._rank)
            case KillTrainer() if self._gang is not None:
                self._gang.kill(self._rank)
            case PublishCheckpoint() if self._lineage is not None:
                self._lineage.publish(action)
            case ReportNow():
                if not self._failures:
                    self._send_after(_SOON_SECONDS)
            case ArmPowerOff(at):
                self._arm(at)
            case PowerOff():
                self._tools.power_off(self.machine, EndedBy.OS_SHUTDOWN)
            case Leave():
                self._say("leaves")
                self._after(10.0, self._gone)

    def _start_trainer(self, fence: int, from_step: int) -> None:
        gang, rank = self._gang, self._rank
        if gang is None:
            return

        def started() -> None:
            if self.dead or self.state is None or self._gang is not gang:
                return
            self.observe(TrainerStarted(fence))
            gang.join(rank, from_step, self._from_trainer)

        self._after(self._dice.uniform(1.0, 4.0), started)

    def _from_trainer(self, seen: Observation) -> None:
        """What its trainer says; a save finds no room while the disk is full."""
        if isinstance(seen, CheckpointReady) and self.disk_full is not None:
            seen = SaveLackedRoom(seen.fence, seen.checkpoint.step, self.disk_full)
        self.observe(seen)

    def _may_commit(self, fence: int) -> bool:
        return self.state is not None and time_rules.may_commit(self.state, fence, self.uptime())

    def _gone(self) -> None:
        """The agent has ended in peace; the machine idles until it is released."""
        if self._gang is not None:
            self._gang.vanish(self._rank)
        self.state = None
        for event in (self._report, self._wake):
            if event is not None:
                event.cancel()

    # --- reports ---

    def _send_after(self, seconds: float) -> None:
        at_us = self._tools.loop.clock.true_us + microseconds(seconds)
        if self._report is not None and not self._report.cancelled:
            if self._tools.loop.clock.true_us < self._report.at_us <= at_us:
                return
            self._report.cancel()
        self._report = self._tools.loop.at(at_us, self._send)

    def _send(self) -> None:
        if self.dead or self.state is None:
            return
        sent_at = self.uptime()
        self.state, report = supervisor.next_report(self.state, sent_at)
        observation: Observation
        try:
            observation = ReportAnswered(sent_at, self.line.report(report))
        except (Unreachable, NotKnownYet) as error:
            self._failures += 1
            pause = min(2.0 ** min(self._failures - 1, 5), _RETRY_MOST_SECONDS)
            self._report = None
            self._send_after(pause)
            if isinstance(error, NotKnownYet):
                self._register_again()
            return
        except CredentialRefused:
            observation = ReportRefused(Refusal.REVOKED)
            self.line.credential = ""
            self._failures = 0
            self._step((observation,))
            self._report = None
            return
        except FenceRefused:
            observation = ReportRefused(Refusal.NOT_A_MEMBER)
        self._failures = 0
        self._report = None
        if isinstance(observation, ReportAnswered):
            self._period = observation.reply.next_report_seconds
        self._send_after(self._period)
        self._step((observation,))

    def _register_again(self) -> None:
        """Rows were lost, and nothing was revoked: it trains on, and tries to be known again."""
        sent_at, state = self.uptime(), self.state
        try:
            reply = self.line.register(self._registration(state.session_id if state else ""))
        except (Unreachable, DomainError):
            return
        self._failures = 0
        self._step((Registered(sent_at, reply),))

    # --- small things ---

    def _arm(self, at: float) -> None:
        """The independent timer that powers the machine off; it survives the agent."""
        if self._power_off is not None:
            self._power_off.cancel()
        self._power_off = self._tools.loop.at(
            self._clock.true_us_at(at),
            lambda: self._tools.power_off(self.machine, EndedBy.OS_SHUTDOWN),
        )

    def _after(self, seconds: float, action: Callable[[], None]) -> Event:
        return self._tools.loop.after(seconds, lambda: None if self.dead else action())

    def _say(self, text: str) -> None:
        self._tools.log.write(f"agent {self.machine.machine_id}", text)
