"""The control plane's API as simulated agents reach it: api processes behind one address.

Lives here: registration through the production verb, which process a report reaches, and outages.
Not here: how a process answers (`api_process`), the agent (`simulated_agent`), or what gets lost
between the two (`faults`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from sqlalchemy import Engine

from app.domain.deployment.credentials import digest
from app.orchestration.agents.register_agent import register_agent
from app.orchestration.frame.runtime import Runtime
from app.simulation.engine.event_log import EventLog
from app.simulation.engine.event_loop import EventLoop
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.engine.virtual_clock import MICROSECONDS
from app.simulation.engine.watched_transactions import Interrupted, WatchedTransactions
from app.simulation.simulated.api_process import ApiProcess, Unreachable
from trainer.protocol.agent_report import AgentReport, Registration
from trainer.protocol.directive import RegistrationReply, ReportReply

_TOLD_US = 60 * MICROSECONDS


class AgentNetwork:
    """All api processes. Implements `Ticker` and `ExchangeListener`.

    answered_us: when each instance was answered last, so that a record of it is left somewhere.
    hears_since_us: since when one of them could hear agents.
    """

    def __init__(
        self,
        runtime: Runtime,
        engine: Engine,
        transactions: WatchedTransactions,
        loop: EventLoop,
        log: EventLog,
        dice: Dice,
        processes: int,
    ) -> None:
        self.answered_us: dict[str, int] = {}
        self.hears_since_us = loop.clock.starts_us
        self.on_heard_again: Callable[[], None] = lambda: None
        self._runtime = runtime
        self._clock = loop.clock
        self._loop = loop
        self._log = log
        self._dice = dice
        self._written_us: dict[str, int] = {}
        self._listened_us = self._told_us = -_TOLD_US
        self._database_away = self._left = False
        self.processes = [
            ApiProcess(number, runtime, engine, transactions, loop, self)
            for number in range(processes)
        ]

    @property
    def away(self) -> bool:
        """Whether no request can be served."""
        return self._database_away or not any(process.up for process in self.processes)

    # --- requests -----------------------------------------------------------------------------

    def register(self, registration: Registration) -> RegistrationReply:
        """Through the production verb. Raises Unreachable and what the verb raises."""
        if self.away:
            raise Unreachable
        try:
            with self._runtime.begin() as uow:
                return register_agent(uow, self._runtime, registration)
        except Interrupted as error:
            raise Unreachable from error

    def report(self, credential: str, report: AgentReport, *, is_copy: bool = False) -> ReportReply:
        """Answer a report. Raises Unreachable and what the production verb raises.

        is_copy: it is late or doubled, so nobody waits for the answer and it proves no life.
        """
        up = [process for process in self.processes if process.up]
        if not up:
            raise Unreachable
        reply = self._dice.choice(up).report(digest(credential), report)
        if not is_copy:
            self.answered_us[report.instance_id] = self._clock.true_us
        return reply

    # --- what processes tell ------------------------------------------------------------------

    def written(self, instance_id: UUID, answered_us: int) -> None:
        """After a silence, whoever watches for silence is told."""
        key = str(instance_id)
        before_us = self._written_us.get(key)
        self._written_us[key] = max(answered_us, before_us or 0)
        interval_us = MICROSECONDS * self._runtime.limits.report_interval_seconds
        if before_us is None or answered_us - before_us > 2 * interval_us:
            self.on_heard_again()

    def listened(self) -> None:
        """After a gap, and every minute, whoever waits until agents are heard is told."""
        now_us = self._clock.true_us
        gap_us = MICROSECONDS * self._runtime.limits.listening_gap_seconds
        if now_us - self._listened_us > gap_us or now_us - self._told_us > _TOLD_US:
            self._told_us = now_us
            self.on_heard_again()
        self._listened_us = now_us

    # --- the ticker ---------------------------------------------------------------------------

    def next_us(self) -> int | None:
        """When the first process is to exchange."""
        due = [at for process in self.processes if (at := process.next_us()) is not None]
        return min(due, default=None)

    def tick(self) -> None:
        """Let the first process that is due exchange."""
        now_us = self._clock.true_us
        next(one for one in self.processes if one.next_us() == now_us).tick()

    def exchange_now(self) -> bool:
        """Let every process exchange; whether all that was answered is written, and what each
        remembers is what the rows say.
        """
        written = [process.exchange_now() for process in self.processes if process.up]
        return all(written)

    # --- what goes wrong ----------------------------------------------------------------------

    def kill_one(self, seconds: float) -> bool:
        """SIGKILL to an api process, which is back after so long; False where none is up."""
        up = [process for process in self.processes if process.up]
        if not up:
            return False
        process = self._dice.choice(up)
        for instance_id in process.kill():
            key = str(instance_id)
            # Its agent was answered, and nobody can know.
            self.answered_us[key] = self._written_us.get(key, self._clock.starts_us)
        self._log.write("api", f"one process is killed, and comes back in {seconds:.0f} s")
        self._loop.after(seconds, partial(self._start, process))
        return True

    def leave(self) -> None:
        """Every api process ends as it is asked to; what they had promised is written."""
        self._left = True
        for process in self.processes:
            if process.up:
                process.stop()

    def come_back(self) -> None:
        """All are started again, and listen."""
        self._left = False
        for process in self.processes:
            self._start(process)

    def lose_database(self) -> None:
        """The processes run on, and the database is away."""
        self._database_away = True
        for process in self.processes:
            process.database_away = True

    def find_database(self) -> None:
        """The database can be reached again."""
        self._database_away = False
        self.hears_since_us = self._clock.true_us
        for process in self.processes:
            process.database_away = False

    def restored(self) -> None:
        """The rows are older ones now."""
        for process in self.processes:
            process.watch.forget()

    def _start(self, process: ApiProcess) -> None:
        if process.up or self._left:
            return
        if not any(one.up for one in self.processes):
            self.hears_since_us = self._clock.true_us
        process.start()
