"""Drives the supervisor on a real machine: one queue of observations in, actions out.

Lives here: the loop and the carrying out of each action. Not here: any rule (`supervisor`).
"""

from __future__ import annotations

import functools
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainer.agent.attempt import trainer_command
from trainer.agent.attempt.preparation import LOG_END_SECONDS, Preparation, PreparationTools
from trainer.agent.attempt.trainer_run import TrainerRun
from trainer.agent.checkpoints.gather_shares import ShareGatherer
from trainer.agent.checkpoints.outbox import ASKED_WITHIN_SECONDS, Outbox
from trainer.agent.checkpoints.publisher import Publisher
from trainer.agent.checkpoints.share_sender import ShareSender
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.folders import hazard_file
from trainer.agent.folders.named_folders import output_folders
from trainer.agent.folders.output_folders import OutputsUpload, addresses_of
from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.machine.machine_folders import AttemptFolders
from trainer.agent.machine.make_room import Removable
from trainer.agent.rules import supervisor, time_rules
from trainer.agent.rules.actions import (
    Action,
    ArmPowerOff,
    CancelPreparation,
    DumpStacks,
    KillTrainer,
    Leave,
    PowerOff,
    PublishCheckpoint,
    ReportNow,
    SaveOutputs,
    Say,
    SignalDrain,
    StartPreparation,
    StartTrainer,
    TellDeadline,
    TellOutlook,
)
from trainer.agent.rules.agent_state import AgentState, TrainerEnd
from trainer.agent.rules.observations import (
    Observation,
    Registered,
    SaveLackedRoom,
    ShutdownAsked,
    TrainerExited,
)
from trainer.agent.runtime import power_off_watchdog
from trainer.agent.runtime.disk_watch import DiskWatch
from trainer.agent.runtime.report_loop import ReportLoop
from trainer.agent.secrets.masked_logs import MaskedLogs
from trainer.agent.secrets.masked_observations import masked
from trainer.agent.secrets.secret_mask import SecretMask
from trainer.protocol.agent_report import AgentReport, TrainerError, TrainerOutcome
from trainer.protocol.directive import Directive

QUEUE_MAX = 10_000
TICK_SECONDS = 0.25
BATCH_MAX = 500
FAREWELL_SECONDS = 10.0
LOG_END_SECONDS_MIN = 2.0


class MachineRuntime:
    """Owns the state; every other thread talks to it through `observe` and `build_report`."""

    def __init__(
        self,
        tools: Callable[[Callable[[Observation], None]], PreparationTools],
        state: AgentState,
        registered: Registered,
        logs: MaskedLogs,
        mask: SecretMask,
        register_again: Callable[[], Registered] | None = None,
    ) -> None:
        """`tools` is given `observe` and answers what preparations need. register_again: as
        `ReportLoop` takes it.
        """
        self._observations: queue.Queue[Observation] = queue.Queue(QUEUE_MAX)
        self._tools = tools(self.observe)
        self._state = state
        self._config = registered.reply.run_config
        self._logs = logs
        self._mask = mask
        self._state_lock = threading.Lock()
        self._reports = ReportLoop(
            self._tools.client,
            self.build_report,
            self.observe,
            registered.reply.next_report_seconds,
            register_again,
            self._tools.access.take,
        )
        self._tools.access.notify_by(self._reports.notify)
        self._reporting = threading.Thread(target=self._reports.run, name="reports", daemon=True)
        self._preparation: Preparation | None = None
        self._trainer: TrainerRun | None = None
        self._reached_step = 0
        self._publisher: Publisher | ShareSender | None = None
        self._outputs: OutputsUpload | None = None
        self._disk_watch = DiskWatch(
            self._watched_folders,
            self._removable,
            self.observe,
            self._say,
            self._tools.folders.keep_identity,
            own_log=2,
        )
        self._failure: BaseException | None = None
        self._shutdown_asked = False
        self._left = False
        self.observe(registered)

    def observe(self, observation: Observation) -> None:
        """Tell the supervisor; from any thread. Waits while ten thousand are unread."""
        self._observations.put(masked(self._mask, observation))

    def ask_for_shutdown(self) -> None:
        """Save, tell, and end; safe to call from a signal handler."""
        self._shutdown_asked = True

    def thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """One of our threads has ended by an error that nobody caught: the agent ends by it, too.

        A part that is silently missing would hold the machine, and its bill, for ever.
        """
        error = failure.exc_value
        if error is not None and not isinstance(error, SystemExit):
            self._failure = error

    def build_report(self, now_seconds: float) -> AgentReport:
        """The report to send now."""
        with self._state_lock:
            self._state, report = supervisor.next_report(self._state, now_seconds)
        complaint = self._tools.access.complaint()
        if complaint is not None:
            self._say(complaint)
        return replace(report, storage=self._tools.access.held())

    def run(self) -> None:
        """Until the machine leaves. Raises what a thread of the agent has failed with."""
        self._turn(self._next_batch())
        self._reporting.start()
        while not self._left:
            if self._failure is not None:
                raise self._failure
            self._turn(self._next_batch())
        self._say_goodbye()
        self._reports.stop()
        self._reporting.join(timeout=FAREWELL_SECONDS)

    def _next_batch(self) -> list[Observation]:
        batch: list[Observation] = []
        try:
            batch.append(self._observations.get(timeout=TICK_SECONDS))
            while len(batch) < BATCH_MAX:
                batch.append(self._observations.get_nowait())
        except queue.Empty:
            pass
        if self._shutdown_asked:
            batch.append(ShutdownAsked(self._tools.settings.notice_seconds))
        return batch

    def _turn(self, batch: list[Observation]) -> None:
        with self._state_lock:
            self._state, actions = supervisor.step(self._state, batch, boot_seconds())
        for action in actions:
            self._carry_out(action)

    # One case an action, each a call.
    def _carry_out(self, action: Action) -> None:  # noqa: C901
        match action:
            case StartPreparation():
                self._start_preparation(action)
            case CancelPreparation():
                if self._preparation is not None:
                    self._preparation.cancel()
            case StartTrainer():
                self._try_to_start(action)
            case TellOutlook(directive):
                folders = self._tools.folders.attempt(directive.fence or 0)
                hazard_file.write_hazard(self._config, directive, folders.hazard_file)
            case SignalDrain(_, until) if self._trainer is not None:
                self._trainer.drain(until)
            case TellDeadline(_, until) if self._trainer is not None:
                self._trainer.tell_deadline(until)
            case DumpStacks() if self._trainer is not None:
                self._trainer.dump_stacks()
            case KillTrainer() if self._trainer is not None:
                self._trainer.kill()
            case PublishCheckpoint() if self._publisher is not None:
                self._publisher.submit(action)
            case SaveOutputs(fence):
                self._save_outputs(fence)
            case Say(_, sentence):
                self._say(sentence)
            case ReportNow():
                self._reports.notify()
            case ArmPowerOff(at):
                power_off_watchdog.arm(self._tools.folders.power_off_file, at)
            case PowerOff():
                power_off_watchdog.power_off(self._tools.settings.power_off_command)
            case Leave():
                self._left = True

    def _start_preparation(self, action: StartPreparation) -> None:
        if self._preparation is not None:
            self._preparation.cancel()
        if self._outputs is not None:
            self._outputs.close()
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
        instance_id = self._state.instance_id or ""
        self._preparation = Preparation(self._tools, self._config, action.directive, instance_id)
        self._preparation.start()

    def _try_to_start(self, action: StartTrainer) -> None:
        """A disk that is full may have no room for what the trainer is to be told."""
        try:
            self._start_trainer(action)
        except OSError as error:
            told = TrainerError(f"the trainer cannot be started: {error}", type="StartFailed")
            end = TrainerEnd(TrainerOutcome.FAILED, error=told)
            self.observe(TrainerExited(action.directive.fence or 0, end))

    def _start_trainer(self, action: StartTrainer) -> None:
        preparation, tools, directive = self._preparation, self._tools, action.directive
        assert preparation is not None
        assert preparation.environment is not None
        place, config = preparation.environment.place, preparation.config
        fence = directive.fence or 0
        folders = tools.folders.attempt(fence)
        outbox = self._open_outbox(directive, preparation, folders)
        if self._trainer is not None:
            self._reached_step = max(self._reached_step, self._trainer.reached_step)
        self._trainer = TrainerRun(
            fence,
            tools.context.machine_id,
            folders,
            outbox,
            tools.folders.trainer_file,
            self._observe_trainer,
            lambda content: tools.write_log(preparation.stream, content),
            lambda: self._logs.send_end(preparation.stream, self._log_end_seconds()),
            max(1, config.gpus_per_node) if config.run is None else 0,
            place,
            self._mask,
        )
        environment = trainer_command.trainer_environment(
            place.context, config, directive, folders, preparation.resume_folder,
            preparation.environment.variables,
        )  # fmt: skip
        if self._reached_step > 0:
            # What the job trained here before: doing it again is rework, and told as such.
            environment["LOWTIDE_REACHED_STEP"] = str(self._reached_step)
        command = trainer_command.trainer_command(place.context, config, directive, folders)
        preparation.release_ports()
        self._trainer.start(command, environment, tools.folders.workdir)

    def _open_outbox(
        self, directive: Directive, preparation: Preparation, folders: AttemptFolders
    ) -> Outbox | None:
        """Where complete checkpoints wait, with what brings them to the store; None: nothing does.

        Rank 0's machine commits. The others send their shares, where the gang saves together.
        """
        tools, fence, rank = self._tools, directive.fence or 0, directive.node_rank or 0
        together = trainer_command.saves_shares(directive)
        gang = trainer_command.gang_size(directive)
        machines = gang if together else 1
        owner = tools.folders.trainer_uid

        def say(sentence: str) -> None:
            tools.say(preparation.stream, sentence)

        if rank == 0:
            outbox = Outbox(folders.checkpoints, folders.outbox, machines, owner=owner)
            self._publisher = Publisher(
                tools.open_store,
                outbox,
                gang * max(1, self._config.gpus_per_node),
                lambda: self._may_commit(fence),
                self.observe,
                say,
                ShareGatherer(fence, machines) if together else None,
            )
            return outbox
        if not together:
            return None
        outbox = Outbox(
            folders.checkpoints, folders.outbox, machines, ASKED_WITHIN_SECONDS, True, owner
        )
        self._publisher = ShareSender(tools.open_store, outbox, fence, rank, self.observe, say)
        return outbox

    def _observe_trainer(self, observation: Observation) -> None:
        if isinstance(observation, TrainerExited):
            self._tools.secrets.clear(observation.fence)
        if isinstance(self._publisher, ShareSender):
            self._publisher.see(observation)
        if isinstance(observation, SaveLackedRoom):
            self._disk_watch.lacked_room(Path(observation.left.folder))
        self.observe(observation)

    def disk_watch(self) -> DiskWatch:
        """What looks at the disks of this machine; its `run` wants a thread of its own."""
        return self._disk_watch

    def _watched_folders(self) -> list[Path]:
        """Whatever the agent or the trainer writes to; a job may have mounted some of it apart."""
        folders, preparation = self._tools.folders, self._preparation
        found = [
            folders.agent,
            folders.attempts,
            folders.workdir,
            folders.scratch,
            folders.inputs,
            Path(tempfile.gettempdir()),
        ]
        if preparation is not None:
            attempt = folders.attempt(preparation.fence)
            found += [attempt.checkpoints, attempt.outbox, attempt.progress_file.parent]
            found += [attempt.resume, attempt.root / "outputs"]
        return found

    def _removable(self) -> Removable | None:
        preparation, trainer = self._preparation, self._trainer
        if preparation is None:
            return None
        with self._state_lock:
            work = self._state.work
        mine = work is not None and work.fence == preparation.fence
        committed = work.committed if work is not None and mine else None
        attempt = self._tools.folders.attempt(preparation.fence)
        return Removable(
            attempt.checkpoints,
            None if committed is None else committed.step,
            attempt.progress_file,
            0 if trainer is None or trainer.fence != preparation.fence else trainer.progress_read,
        )

    def _say(self, sentence: str) -> None:
        if self._preparation is not None:
            self._tools.say(self._preparation.stream, sentence)

    def _log_end_seconds(self) -> float:
        """How long the end of a log may hold up the end of its attempt: a share of a drain's."""
        with self._state_lock:
            end_by = None if self._state.work is None else self._state.work.end_by
        if end_by is None:
            return LOG_END_SECONDS
        share = (end_by - boot_seconds()) / 3
        return min(LOG_END_SECONDS, max(LOG_END_SECONDS_MIN, share))

    def _save_outputs(self, fence: int) -> None:
        preparation, config = self._preparation, self._config
        assert preparation is not None
        rank = preparation.node_rank
        self._outputs = OutputsUpload(
            fence,
            output_folders(config, self._tools.folders.attempt(fence)),
            addresses_of(config.outputs, config.job_id, rank),
            self.observe,
            lambda sentence: self._tools.say(preparation.stream, sentence),
            self._tools.folders.trainer_uid,
            functools.partial(StorageRoot, access=self._tools.access),
        )

    def _may_commit(self, fence: int) -> bool:
        with self._state_lock:
            return time_rules.may_commit(self._state, fence, boot_seconds())

    def _say_goodbye(self) -> None:
        """Nothing may run on; what is still untold is told, within ten seconds."""
        if self._preparation is not None:
            self._preparation.cancel()
        if self._publisher is not None:
            self._publisher.close()
        if self._outputs is not None:
            self._outputs.close()
        if self._trainer is not None:
            self._trainer.kill()
        deadline = time.monotonic() + FAREWELL_SECONDS
        while time.monotonic() < deadline and self._state.facts.pending:
            if not self._reporting.is_alive():
                break
            self._turn(self._next_batch())
        self._logs.flush(max(0.5, deadline - time.monotonic()))
