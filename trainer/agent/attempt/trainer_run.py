"""One trainer process from its start to its end: output, progress, checkpoints, exit.

Lives here: the watching. Not here: which process (`trainer_command`), what its end means
(`end_files`), when it is stopped (`supervisor`).
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer.agent.attempt.end_files import (
    all_ended_well,
    failed_already,
    read_end,
    read_markers,
    started_pids,
)
from trainer.agent.attempt.launcher_report import LauncherReports
from trainer.agent.attempt.run_place import RunPlace, Started
from trainer.agent.checkpoints.outbox import Outbox
from trainer.agent.folders.notice_file import write_deadline
from trainer.agent.machine import process_group
from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.machine.kernel_kills import KernelKills
from trainer.agent.machine.machine_folders import AttemptFolders
from trainer.agent.machine.make_room import free_space, told_as
from trainer.agent.machine.progress_file import (
    READ_BYTES_MAX,
    PhaseLine,
    ProgressLine,
    ProgressTail,
    SaveFailedLine,
)
from trainer.agent.rules.agent_state import TrainerEnd
from trainer.agent.rules.observations import (
    CheckpointReady,
    Observation,
    PhaseEntered,
    ProgressSeen,
    SaveLackedRoom,
    TrainerExited,
    TrainerStarted,
)
from trainer.agent.secrets.secret_mask import SecretMask, StreamMask
from trainer.protocol.agent_report import TrainerError, TrainerOutcome

LOOK_SECONDS = 0.2
FAILED_RANK_SECONDS = 15.0
"""A rank that failed leaves its peers waiting in a collective; they get this long to notice."""
ENDED_RANKS_SECONDS = 1.0
"""Ranks that have written their end leave within moments; what starts them may take seconds."""
LAST_WORDS_SECONDS = 2.0
"""What was printed last is read from the pipe for so long; a process left over may hold it open."""
DRAINED_WORDS = b"[lowtide] this machine's ranks have saved and stopped, as they were asked to.\n"
"""The last words of a drain; what torchrun prints of it as a failure is left out."""
PRINTED_BYTES_KEPT = 16 << 10
"""So much of the end of a command's output is searched for the line that names its error."""
POLLS_PER_LOOK_MAX = 16
PROGRESS_END_SECONDS = 5.0
"""A command may write progress faster than it is read; what is left at its end has this long."""
LEFT_BEHIND_SECONDS = 5.0
"""What a command left running when it ended by itself gets this long to follow."""
KILLED_CODES = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""SIGKILL as subprocess tells it, and as a shell does (POSIX shell, 2.8.2: over 128)."""


class TrainerRun:
    """Starts in the constructor; every observation of it carries its fence."""

    def __init__(
        self,
        fence: int,
        machine_id: str,
        folders: AttemptFolders,
        outbox: Outbox | None,
        trainer_file: Path,
        observe: Callable[[Observation], None],
        write_log: Callable[[bytes], None],
        send_log_end: Callable[[], None],
        ranks: int,
        place: RunPlace,
        mask: SecretMask,
    ) -> None:
        """send_log_end: returns when the end of the log is sent, or its time is over.

        ranks: how many of the bundled trainer run on this machine; 0 for a user's command, which
        is left alone until it ends. place: where it runs. mask: what no error may quote.
        """
        self._fence = fence
        self._machine_id = machine_id
        self._folders = folders
        self._outbox = outbox
        self._trainer_file = trainer_file
        self._observe = observe
        self._write_log = write_log
        self._send_log_end = send_log_end
        self._ranks = ranks
        self._place = place
        # Before the end of it is cut out: half a value would not be recognised.
        self._quoted = StreamMask(mask)
        self._started: Started | None = None
        self._tail = ProgressTail(folders.progress_file)
        self._process: subprocess.Popen[bytes] | None = None
        self._draining = False
        self._asked_before_start = False
        self._killed = False
        self._failed_end: TrainerEnd | None = None
        self._marker_seen_at: float | None = None
        self._ended_well_at: float | None = None
        self._looked_at = 0.0
        self._printed = b""
        self._kernel_kills = KernelKills()
        self.reached_step = 0

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start it; one that cannot be started has failed, which is observed like any end."""
        try:
            script = self._folders.root / "trainer.sh"
            started = self._place.start(command, environment, script)
            process = process_group.start_in_own_group(
                started.command, started.environment, folder, started.user
            )
        except (OSError, KeyError, ValueError) as error:
            told = TrainerError(f"the trainer cannot be started: {error}", type="StartFailed")
            end = TrainerEnd(TrainerOutcome.FAILED, error=told)
            self._observe(TrainerExited(self._fence, end))
            return
        self._process, self._started = process, started
        process_group.remember_trainer(
            self._trainer_file, process.pid, self._fence, started.container
        )
        self._observe(TrainerStarted(self._fence))
        output = threading.Thread(target=self._pump, name="trainer-output", daemon=True)
        output.start()
        threading.Thread(
            target=self._watch, name="trainer-watch", args=(output,), daemon=True
        ).start()

    def drain(self, until: float | None) -> None:
        """SIGTERM: save and end, by `until` if it is known, in `boot_seconds`.

        To the bundled trainer's own ranks where they run, else to the group. torchrun would hand
        it on and then kill them after a time that not every version lets us choose.
        """
        self._draining = True
        self.tell_deadline(until)
        if self._process is None or self._process.poll() is not None:
            return
        marked = set(process_group.marked_processes(self._machine_id))
        ranks = [pid for pid in started_pids(self._end_folder) if pid in marked]
        if ranks and self._ranks:
            process_group.signal_all(ranks, signal.SIGTERM)
        else:
            self._asked_before_start = self._ranks > 0
            process_group.signal_group(self._process.pid, signal.SIGTERM)

    @property
    def fence(self) -> int:
        """The attempt that it is of."""
        return self._fence

    @property
    def progress_read(self) -> int:
        """So many bytes of the progress file have been taken in."""
        return self._tail.offset

    def tell_deadline(self, until: float | None) -> None:
        """Lets the trainer know how long it has."""
        write_deadline(self._folders.notice_file, until)

    def dump_stacks(self) -> None:
        """Ask every rank of this machine for its stacks; they go where its output goes."""
        process_group.ask_for_stacks(self._machine_id)

    def kill(self) -> None:
        """SIGKILL to everything it started; returns when nothing is left, or after 5 s."""
        if self._is_alive() and not self._killed:
            self._killed = True
            self._failed_end = failed_already(self._end_folder, process_group.is_dead)
        self._end_rest()

    def _is_alive(self) -> bool:
        """Whether the launcher runs, or what it has started and left behind."""
        if self._process is None:
            return False
        return self._process.poll() is None or bool(
            process_group.marked_processes(self._machine_id)
        )

    def _end_rest(self) -> None:
        group = self._process.pid if self._process is not None else None
        process_group.kill_all(self._machine_id, group)
        if self._started is not None:
            self._place.end(self._started)

    @property
    def _end_folder(self) -> Path:
        return self._folders.progress_file.parent

    def _pump(self) -> None:
        if self._process is None:
            return
        reports = LauncherReports(lambda: self._draining)

        def write(shown: bytes) -> None:
            if shown:
                self._keep(self._quoted.feed(shown))
                self._write_log(shown)

        process_group.pump_output(self._process, lambda content: write(reports.feed(content)))
        write(reports.end())
        self._keep(self._quoted.end())

    def _keep(self, shown: bytes) -> None:
        self._printed = (self._printed + shown)[-PRINTED_BYTES_KEPT:]

    def _watch(self, output: threading.Thread) -> None:
        process = self._process
        assert process is not None
        while process.poll() is None:
            self._look()
            self._end_if_a_rank_failed()
            self._end_if_all_ranks_ended()
            time.sleep(LOOK_SECONDS)
        self._wait_for_children()
        failed = not self._killed and (
            process.returncode in KILLED_CODES
            or failed_already(self._end_folder, process_group.is_dead) is not None
        )
        self._end_rest()
        self._look(at_end=True)
        output.join(LAST_WORDS_SECONDS)
        end = self._failed_end or read_end(
            self._end_folder,
            process.returncode,
            self._folders.error_file,
            self._asked_before_start,
            self._printed.decode("utf-8", "replace"),
            self._kernel_kills.look(time.monotonic()) and not self._killed,
        )
        if end.outcome is TrainerOutcome.FAILED and failed:
            # An order to stop may come while the end of the log is being sent. A command that says
            # nothing of why it failed may have lost a peer that was stopped a moment before it.
            end = replace(end, before_kill=True)
        if end.outcome is TrainerOutcome.DRAINED:
            self._write_log(DRAINED_WORDS)
        self._send_log_end()
        process_group.forget_trainer(self._trainer_file)
        self._observe(TrainerExited(self._fence, end))

    def _wait_for_children(self) -> None:
        """A shell dies of SIGTERM before the command it runs has saved: wait for that one.

        In a drain the supervisor's deadline ends the wait by killing; else a few seconds do.
        """
        left_at = time.monotonic()
        while process_group.marked_processes(self._machine_id):
            if not self._draining and time.monotonic() - left_at > LEFT_BEHIND_SECONDS:
                return
            self._look()
            time.sleep(LOOK_SECONDS)

    def _look(self, at_end: bool = False) -> None:
        """Progress first, so that a checkpoint is never ahead of the step it was made at."""
        for line in self._new_progress(at_end):
            if isinstance(line, PhaseLine):
                at = line.at if line.at is not None else boot_seconds()
                self._observe(PhaseEntered(self._fence, line.phase, at, line.step))
            elif isinstance(line, SaveFailedLine):
                self._save_failed(line)
            else:
                self.reached_step = max(self.reached_step, line.step)
                self._observe(ProgressSeen(self._fence, line.step, line.total_steps, line.metrics))
        if self._outbox is not None:
            for checkpoint in self._outbox.scan():
                self._observe(CheckpointReady(self._fence, checkpoint))

    def _save_failed(self, line: SaveFailedLine) -> None:
        if line.disk_full:
            with suppress(OSError):
                left = told_as(free_space(self._folders.checkpoints))
                self._observe(SaveLackedRoom(self._fence, line.step, left))

    def _new_progress(self, at_end: bool) -> Iterator[ProgressLine]:
        if at_end:
            yield from self._tail.poll_to_end(PROGRESS_END_SECONDS, time.monotonic)
            return
        for _ in range(POLLS_PER_LOOK_MAX):
            before = self._tail.offset
            yield from self._tail.poll()
            if self._tail.offset - before < READ_BYTES_MAX:
                return

    def _end_if_a_rank_failed(self) -> None:
        now = time.monotonic()
        if now < self._looked_at + 1.0:
            return
        self._looked_at = now
        self._kernel_kills.look(now)
        if self._marker_seen_at is None:
            _, ended = read_markers(self._end_folder)
            if any(marker.outcome is TrainerOutcome.FAILED for marker in ended):
                self._marker_seen_at = now
        elif now > self._marker_seen_at + FAILED_RANK_SECONDS:
            self.kill()

    def _end_if_all_ranks_ended(self) -> None:
        """torchrun takes seconds to end after its last rank has; the next attempt waits for it."""
        now = time.monotonic()
        if self._ended_well_at is None:
            if self._ranks and all_ended_well(self._end_folder, self._ranks):
                self._ended_well_at = now
        elif now > self._ended_well_at + ENDED_RANKS_SECONDS:
            self.kill()
