"""A small foreground supervisor: starts processes in stages, keeps them alive, stops them all.

Not here: which processes `lowtide up` runs, and the restart arithmetic (see `restart_policy`).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TextIO

from app.adapters.embedded.embedded_errors import ChildFailedError, EmbeddedServerError
from app.adapters.embedded.processes import log_files, run_record, state_folder
from app.adapters.embedded.processes.process_launch import launch
from app.adapters.embedded.processes.process_output import ProcessOutput
from app.adapters.embedded.processes.process_spec import ProcessSpec
from app.adapters.embedded.processes.process_stopping import (
    StopTarget,
    kill_group_of,
    stop_processes,
)
from app.adapters.embedded.processes.restart_policy import CrashHistory, RestartLimits
from app.adapters.embedded.processes.run_record import SUPERVISOR_NAME, RecordedProcess
from app.domain.units.durations import measured_duration

_START_POLL_SECONDS = 0.02
_RUN_POLL_SECONDS = 0.1
_READER_WAIT_SECONDS = 1.0
_QUIET_AFTER_CRASH_SECONDS = 5.0  # programs try again what failed meanwhile, and complain once more
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class _Child:
    spec: ProcessSpec
    stage: int
    crashes: CrashHistory
    process: subprocess.Popen[bytes] | None = None
    record: RecordedProcess | None = None
    reader: threading.Thread | None = None
    ready: bool = False
    was_ready: bool = False
    finished: bool = False
    started_at_seconds: float = 0.0
    restart_due_seconds: float = 0.0


class ProcessSupervisor:
    """Use as a context manager from the main thread: entering locks the state folder, stops what a
    killed supervisor left running and takes the stop signals; leaving stops every process.

    Raises StateFolderBusyError on entering a folder that another supervisor holds.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        colour: bool = False,
        stream: TextIO | None = None,
        limits: RestartLimits | None = None,
        commands: run_record.Commands = run_record.NO_COMMANDS,
        disk_problem: Callable[[], str | None] = lambda: None,
        quiet_until_announced: bool = False,
    ) -> None:
        """commands: arguments by which programs of an earlier run are known (`stop_left_overs`).
        disk_problem: which disk is full, as a sentence; a crash meanwhile is not counted.
        quiet_until_announced: until `announce`, nothing that goes well is printed; it is logged.
        """
        self.state_dir = state_folder.open_state_folder(state_dir)
        self._output = ProcessOutput(self.state_dir, stream or sys.stdout, colour=colour)
        self._is_announced = not quiet_until_announced
        self._quiet_until_seconds = 0.0
        self._set_quiet()
        self._limits = limits or RestartLimits()
        self._commands = commands
        self._read_disks = disk_problem
        self._disk_problem: str | None = None
        self._next_disk_look_seconds = 0.0
        self._record_is_behind = False
        self._is_stopping_all = False
        self._start_step: str | None = None
        self._children: list[_Child] = []
        self._stages = 0
        self._stop_requests = 0
        self._self_record = run_record.record_supervisor()
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> ProcessSupervisor:
        with contextlib.ExitStack() as entering:
            entering.enter_context(state_folder.up_lock(self.state_dir))
            for number in _STOP_SIGNALS:
                # `nohup lowtide up` asks us not to mind the terminal closing.
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                previous = signal.signal(number, self._on_stop_signal)
                entering.callback(signal.signal, number, previous)
            left = run_record.stop_left_overs(self.state_dir, self._commands)
            if left:
                self.say(f"stopped what an earlier run left behind: {', '.join(left)}")
            self._write_record()
            self._resources = entering.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._resources:
            self._stop_all()
            run_record.remove_record(self.state_dir)

    @property
    def stopping(self) -> bool:
        """True once a stop was asked for, by a signal or `request_stop`."""
        return self._stop_requests > 0

    def say(self, text: str) -> None:
        """Print a line of the supervisor's own."""
        self._output.say(SUPERVISOR_NAME, text)

    def mention(self, text: str) -> None:
        """Print a line about something that went as it should; its log alone gets it where
        nothing is printed before `announce`.
        """
        if self._is_announced:
            self.say(text)
            return
        log_files.LogFile(log_files.log_path(self.state_dir, SUPERVISOR_NAME)).append(text.encode())

    def announce(self, line: str) -> None:
        """Print a line as it is, for programs that read this output; quiet and starting end."""
        self._is_announced = True
        self._set_quiet()
        self._start_step = None
        self._write_record()
        self._output.line(line)

    def enter_start_step(self, step: str) -> None:
        """Write down for other terminals what the start is at, until `announce`."""
        self._start_step = step
        self._write_record()

    def request_stop(self) -> None:
        """Ask `start` and `run` to return soon; asked twice, processes are killed, not asked."""
        self._stop_requests += 1

    def start(self, specs: Sequence[ProcessSpec]) -> bool:
        """Start one stage: all of `specs` side by side, in order, and wait until all are ready.

        Stages stop in reverse order. False when a stop was asked for meanwhile. Raises
        ChildFailedError, with the end of its log, for one that keeps failing or is never ready.
        """
        self._stages += 1
        stage = [_Child(spec, self._stages, CrashHistory(self._limits)) for spec in specs]
        for child in stage:
            self._children.append(child)
            self._launch(child)
        while not all(child.was_ready or child.finished for child in stage):
            if self.stopping:
                return False
            self.look_after_all()
            time.sleep(_START_POLL_SECONDS)
        return not self.stopping

    def run(self) -> None:
        """Look after the processes until a stop is asked for, or nothing is left to look after.

        Raises ChildFailedError when a process crashed too often.
        """
        while not self.stopping and any(not child.finished for child in self._children):
            self.look_after_all()
            time.sleep(_RUN_POLL_SECONDS)

    def look_after_all(self) -> None:
        """One round: notice ends, restart what is due, ask the started whether they are ready."""
        if time.monotonic() >= self._next_disk_look_seconds:
            self._look_at_disks()
        for child in self._children:
            if child.finished:
                continue
            if child.process is None:
                if time.monotonic() >= child.restart_due_seconds:
                    self._launch(child)
            elif child.process.poll() is not None:
                self._on_exit(child, child.process)
            elif not child.ready:
                self._check_ready(child)
        if any(child.was_ready and not self._runs(child) for child in self._children):
            self._begin_quiet()
        self._set_quiet()

    # ---- inside ------------------------------------------------------------------------------

    def _runs(self, child: _Child) -> bool:
        return child.finished or (child.process is not None and child.ready)

    def _begin_quiet(self) -> None:
        """While one program is down the others only complain that it is: in their logs."""
        self._quiet_until_seconds = time.monotonic() + _QUIET_AFTER_CRASH_SECONDS
        self._set_quiet()

    def _set_quiet(self) -> None:
        crashed = time.monotonic() < self._quiet_until_seconds
        self._output.is_quiet = crashed or not self._is_announced

    def _look_at_disks(self) -> None:
        """Say that a disk has become full, and that it has room again."""
        self._next_disk_look_seconds = time.monotonic() + self._limits.full_disk_delay_seconds
        before, self._disk_problem = self._disk_problem, self._read_disks()
        if self._disk_problem is not None and before is None:
            self.say(self._disk_problem)
        if self._disk_problem is None and before is not None:
            self.say("the disk has space again; everything continues")
        if self._record_is_behind:
            self._write_record()

    def _on_stop_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.request_stop()

    def _launch(self, child: _Child) -> None:
        spec = child.spec
        child.ready = False
        child.started_at_seconds = time.monotonic()
        try:
            child.process = launch(spec, subprocess.PIPE)
        except (OSError, EmbeddedServerError) as error:
            self._on_crash(child, f"could not be started: {error}")
            return
        child.record = run_record.record_now(
            spec.name,
            child.process.pid,
            stop_signal=spec.stop_signal,
            stop_timeout_seconds=spec.stop_timeout_seconds,
            stage=child.stage,
        )
        self._write_record()
        assert child.process.stdout is not None  # asked for a pipe
        child.reader = self._output.follow(
            spec.name, child.process.stdout, echo=spec.echo, unechoed=spec.unechoed
        )

    def _check_ready(self, child: _Child) -> None:
        spec = child.spec
        waited = time.monotonic() - child.started_at_seconds
        told = measured_duration(waited)
        if spec.ready is None or spec.ready():
            child.ready = child.was_ready = True
            how = "is started" if spec.ready is None else f"is ready after {told}"
            self.mention(f"{spec.name} {how} (pid {self._pid(child)})")
        elif waited > spec.ready_timeout_seconds:
            self._look_at_disks()
            if not child.was_ready and self._disk_problem is None:
                raise self._failed(child, f"was not ready within {told}")
            self.say(f"{spec.name} is not ready {told} after its start; starting again")
            self._stop([child])

    def _on_exit(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        kill_group_of(process.pid)
        self._forget(child)
        code = process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        if child.spec.restart:
            self._on_crash(child, how)
        else:
            child.finished = True
            self.say(f"{child.spec.name} {how}")
            if not child.was_ready and child.spec.ready is not None:
                raise self._failed(child, f"{how} before it was ready")

    def _on_crash(self, child: _Child, how: str) -> None:
        now = time.monotonic()
        self._look_at_disks()
        if self._disk_problem is not None:
            # It would fail until there is room: no sign of anything wrong with the program.
            delay = self._limits.full_disk_delay_seconds
            child.restart_due_seconds = now + delay
            self.say(
                f"{child.spec.name} {how}; {self._disk_problem}; "
                f"starting it again in {measured_duration(delay)}"
            )
            return
        back_off = child.crashes.delay_after_crash(now, was_ready=child.was_ready)
        if back_off is None:
            raise self._failed(child, f"{how}; it has failed {child.crashes.count} times now")
        child.restart_due_seconds = now + back_off
        self._begin_quiet()
        folder = log_files.log_path(self.state_dir, child.spec.name).parent
        quiet = f"; until it runs, the programs write to {folder} alone"
        self.say(
            f"{child.spec.name} {how}; starting it again in {measured_duration(back_off)}"
            f"{quiet if child.was_ready else ''}"
        )

    def _failed(self, child: _Child, why: str) -> ChildFailedError:
        path = log_files.log_path(self.state_dir, child.spec.name)
        return ChildFailedError(
            f"{child.spec.name} {why}; the end of {path}:\n{log_files.last_lines(path)}"
        )

    def _stop_all(self) -> None:
        self._is_stopping_all = True
        self._write_record()
        for number in range(self._stages, 0, -1):
            stage = [child for child in reversed(self._children) if child.stage == number]
            self._stop(stage)
            for child in stage:
                self._reap(child)

    def _stop(self, children: Sequence[_Child]) -> None:
        targets = [
            StopTarget(
                child.spec.name,
                child.record.identity,
                child.spec.stop_signal,
                child.spec.stop_timeout_seconds,
            )
            for child in children
            if child.record is not None
        ]
        killed = stop_processes(targets, hurry=lambda: self._stop_requests > 1)
        if killed:
            self.say(f"had to kill {', '.join(killed)}")

    def _reap(self, child: _Child) -> None:
        if child.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=_READER_WAIT_SECONDS)
            self._forget(child)

    def _forget(self, child: _Child) -> None:
        if child.reader is not None:
            child.reader.join(timeout=_READER_WAIT_SECONDS)
        child.process = child.record = child.reader = None
        self._write_record()

    def _pid(self, child: _Child) -> int:
        return 0 if child.process is None else child.process.pid

    def _write_record(self) -> None:
        records = [child.record for child in self._children if child.record is not None]
        try:
            run_record.write_record(
                self.state_dir,
                [self._self_record, *records],
                stopping=self._is_stopping_all,
                start_step=self._start_step,
            )
            self._record_is_behind = False
        except OSError:
            # On a full disk: tried again with the next look. `commands` find what is missing.
            self._record_is_behind = True
