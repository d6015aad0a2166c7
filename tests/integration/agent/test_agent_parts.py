"""Parts of the agent against real files, processes and sockets."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent.fake_control_plane import wait_until
from trainer.agent.attempt.end_files import failed_already, read_end
from trainer.agent.attempt.workdir import unpack
from trainer.agent.machine import process_group
from trainer.agent.machine.agent_settings import EnvironmentInvalid, read_settings
from trainer.agent.machine.control_plane_client import WorkdirInvalid
from trainer.agent.machine.kernel_kills import RECENT_SECONDS, KernelKills
from trainer.agent.machine.peer_probe import (
    PeerUnreachable,
    ProbeListener,
    hold_free_port,
    probe_peers,
)
from trainer.agent.machine.progress_file import PhaseLine, ProgressTail, StepLine
from trainer.agent.runtime import power_off_watchdog
from trainer.protocol.agent_report import MachinePhase, TrainerOutcome
from trainer.protocol.directive import Peer

# --- progress ---


def test_progress_of_any_quality_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    tail = ProgressTail(path)
    assert tail.poll() == []
    path.write_bytes(
        b'{"type":"step","step":1,"total_steps":9,"loss":0.5,"bad":NaN,"flag":true,"s":"x"}\n'
        b"Epoch 1: 50%|#####     |\r\n\xff\xfe\x00\n[1]\n{}\n"
        b'{"type":"step","step":-1}\n{"type":"step","step":1e999}\n'
        + b'{"a":' * 5_000
        + b"\n"
        + b'{"type":"phase","phase":"checkpoint","at":12.5,"step":1}\n'
        b'{"type":"phase","phase":"lunch"}\n'
        b'{"type":"step","st'
    )
    assert tail.poll() == [
        StepLine(1, 9, {"loss": 0.5}),
        PhaseLine(MachinePhase.CHECKPOINT, 12.5, 1),
    ]
    with path.open("ab") as file:
        file.write(b'ep":2}\n')
    assert tail.poll() == [StepLine(2)]
    path.write_bytes(b'{"type":"step","step":3}\n')
    assert tail.poll() == [StepLine(3)]


def test_many_steps_are_sampled_and_the_last_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(f'{{"type":"step","step":{n}}}\n' for n in range(1_001)))
    lines = ProgressTail(path).poll()
    steps = [line.step for line in lines if isinstance(line, StepLine)]
    assert len(steps) == len(lines) <= 50
    assert steps == sorted(steps)
    assert steps[-1] == 1_000


# --- ends ---


def mark(folder: Path, rank: int, outcome: str | None, at: float = 1.0, **error: Any) -> None:
    (folder / f"started-rank{rank}.json").write_text("{}")
    if outcome is not None:
        told = {"outcome": outcome, "step": 7 + rank, "exit_code": 1, "at_seconds": at}
        document = {**told, "error": {"type": "E", "message": "m", **error} if error else None}
        (folder / f"ended-rank{rank}.json").write_text(json.dumps(document))


def test_markers_decide_and_not_the_exit_code(tmp_path: Path) -> None:
    mark(tmp_path, 0, "finished")
    mark(tmp_path, 1, "finished")
    assert read_end(tmp_path, -6).outcome is TrainerOutcome.FINISHED
    mark(tmp_path, 1, "drained")
    drained = read_end(tmp_path, 1)
    assert (drained.outcome, drained.exit_code, drained.step) == (TrainerOutcome.DRAINED, 75, 8)


def test_a_stop_before_any_rank_could_listen_is_a_drain(tmp_path: Path) -> None:
    drained = read_end(tmp_path, 1, asked_before_start=True)
    assert (drained.outcome, drained.exit_code) == (TrainerOutcome.DRAINED, 75)
    assert read_end(tmp_path, 1).outcome is TrainerOutcome.FAILED
    mark(tmp_path, 0, None)
    killed = read_end(tmp_path, 1, asked_before_start=True)
    assert killed.outcome is TrainerOutcome.FAILED


def test_the_earliest_rank_that_failed_by_itself_is_named(tmp_path: Path) -> None:
    mark(tmp_path, 0, "failed", at=1.0, message="reset by peer", peer_communication=True)
    mark(tmp_path, 1, "failed", at=3.0, message="later")
    mark(tmp_path, 2, "failed", at=2.0, message="CUDA out of memory", out_of_memory=True)
    error = read_end(tmp_path, 1).error
    assert error is not None
    assert (error.rank, error.out_of_memory, error.failed_uptime_ms) == (2, True, 2_000)


def test_a_silent_rank_is_the_reason_and_not_the_peer_that_noticed(tmp_path: Path) -> None:
    mark(tmp_path, 0, "failed", message="reset by peer", peer_communication=True)
    mark(tmp_path, 1, None)
    end = read_end(tmp_path, 1)
    assert end.outcome is TrainerOutcome.FAILED
    assert end.error is not None
    assert (end.error.rank, end.error.peer_communication) == (1, False)


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: CUDA error: out of memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 64.0 GiB",
        "MemoryError",
    ],
)
def test_a_command_that_prints_so_ran_out_of_memory(tmp_path: Path, line: str) -> None:
    error = read_end(tmp_path, 1, printed=f"epoch 1\n{line}\n").error
    assert error is not None
    assert (error.message, error.out_of_memory) == (line, True)
    other = read_end(tmp_path, 1, printed=f"{line}\nKeyError: 'out'\n").error
    assert other is not None
    assert not other.out_of_memory


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (-9, ""),
        (137, "Killed"),
        (1, "RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed. "),
        (1, "Signal 9 (SIGKILL) received by PID 31"),
    ],
)
def test_what_the_kernel_killed_for_memory_ran_out_of_it(
    tmp_path: Path, code: int, printed: str
) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 12\noom_kill 3\n")
    kills = KernelKills(vmstat)
    before = read_end(tmp_path, code, printed=printed, memory_was_full=kills.look(0.0))
    assert before.error is not None
    assert not before.error.out_of_memory
    vmstat.write_text("pgfault 12\noom_kill 4\n")
    error = read_end(tmp_path, code, printed=printed, memory_was_full=kills.look(1.0)).error
    assert error is not None
    assert (error.out_of_memory, error.type) == (True, "Killed")
    mistaken = read_end(tmp_path, 1, printed="KeyError: 1", memory_was_full=kills.look(2.0)).error
    assert mistaken is not None
    assert not mistaken.out_of_memory
    assert not kills.look(2.0 + RECENT_SECONDS), "what ends later ends of something else"


def test_a_rank_that_the_kernel_killed_for_memory_ran_out_of_it(tmp_path: Path) -> None:
    mark(tmp_path, 0, "failed", message="reset by peer", peer_communication=True)
    (tmp_path / "started-rank1.json").write_text('{"pid": 31}')
    told = "  traceback : Signal 9 (SIGKILL) received by PID 31\n"
    error = read_end(tmp_path, 1, printed=told, memory_was_full=True).error
    assert error is not None
    assert (error.rank, error.out_of_memory, error.peer_communication) == (1, True, False)
    error = read_end(tmp_path, 137, memory_was_full=True).error
    assert error is not None
    assert (error.rank, error.out_of_memory) == (1, True), "all that ran was killed"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (
            "",
            "rank 1 ended without a word: it was killed or crashed; the machine's memory was full "
            "about then, and the kernel ended a process, maybe this one",
        ),
        ("Signal 9 (SIGKILL) received by PID 32", None),  # of another process: the same "maybe"
        ("Signal 11 (SIGSEGV) received by PID 31", "rank 1 ended without a word: SIGSEGV"),
    ],
)
def test_a_silent_rank_beside_a_kill_for_memory_is_only_maybe_the_one_killed(
    tmp_path: Path, told: str, message: str | None
) -> None:
    """The kernel counts such kills for the whole machine, not by process."""
    mark(tmp_path, 0, "failed", message="reset by peer", peer_communication=True)
    (tmp_path / "started-rank1.json").write_text('{"pid": 31}')
    error = read_end(tmp_path, 1, printed=told, memory_was_full=True).error
    assert error is not None
    assert (error.rank, error.out_of_memory, error.type) == (1, False, "Killed")
    assert error.message.endswith("maybe this one") if message is None else error.message == message


def test_a_machine_that_counts_no_such_ends_reports_none(tmp_path: Path) -> None:
    assert not KernelKills(tmp_path / "missing").look(0.0)


def test_a_count_that_could_not_be_read_before_is_no_news(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    kills = KernelKills(vmstat)
    vmstat.write_text("oom_kill 3\n")
    assert not kills.look(0.0), "three ended before it looked, for all that is known"
    vmstat.unlink()
    assert not kills.look(1.0)
    vmstat.write_text("oom_kill 4\n")
    assert kills.look(2.0)


def test_a_lost_peer_alone_stays_a_lost_peer(tmp_path: Path) -> None:
    mark(tmp_path, 0, "failed", message="reset by peer", peer_communication=True)
    error = read_end(tmp_path, 1).error
    assert error is not None
    assert error.peer_communication


@pytest.mark.parametrize("at", ["NaN", "1e999", "1" + "0" * 400, "-3"])
def test_an_impossible_time_in_a_marker_does_not_hide_the_failure(tmp_path: Path, at: str) -> None:
    marker = (
        f'{{"outcome": "failed", "exit_code": 3, "error": {{"message": "m"}}, "at_seconds": {at}}}'
    )
    (tmp_path / "ended-rank0.json").write_text(marker)
    end = read_end(tmp_path, 1)
    assert (end.outcome, end.exit_code) == (TrainerOutcome.FAILED, 3)
    assert end.error is not None
    assert end.error.failed_uptime_ms is None


def test_right_before_a_kill_ranks_that_failed_of_themselves_are_told(tmp_path: Path) -> None:
    for rank, pid in ((0, 100), (1, 101), (2, 102)):
        (tmp_path / f"started-rank{rank}.json").write_text(json.dumps({"pid": pid}))
    assert failed_already(tmp_path, lambda _: False) is None
    mark(tmp_path, 0, "failed", message="reset by peer", peer_communication=True)
    assert failed_already(tmp_path, lambda pid: pid == 100) is None
    died = failed_already(tmp_path, lambda pid: pid == 102)
    assert died is not None
    assert died.before_kill
    assert died.error is not None
    assert died.error.rank == 2
    mark(tmp_path, 1, "failed", message="boom")
    told = failed_already(tmp_path, lambda _: False)
    assert told is not None
    assert told.error is not None
    assert (told.error.message, told.step) == ("boom", 8)


@pytest.mark.parametrize(
    ("code", "outcome", "word"),
    [
        (0, TrainerOutcome.FINISHED, None),
        (75, TrainerOutcome.DRAINED, None),
        (1, TrainerOutcome.FAILED, "printed no error"),
        (-11, TrainerOutcome.FAILED, "SIGSEGV"),
    ],
)
def test_without_markers_the_exit_status_decides(
    tmp_path: Path, code: int, outcome: TrainerOutcome, word: str | None
) -> None:
    (tmp_path / "ended-rank0.json").write_text("torn {")
    (tmp_path / "ended-rank0.json").unlink()
    end = read_end(tmp_path, code, tmp_path / "none.json")
    assert end.outcome is outcome
    assert (word is None) == (end.error is None)
    if word is not None and end.error is not None:
        assert word in end.error.message


def test_the_last_error_that_a_command_printed_gives_the_words(tmp_path: Path) -> None:
    printed = "step 1\n\x1b[31mNameError: name 'x' is not defined\x1b[0m\n[lowtide] ended\n"
    error = read_end(tmp_path / "nothing", 1, printed=printed).error
    assert error is not None
    assert error.message == "NameError: name 'x' is not defined"


def test_torchruns_error_file_gives_the_words(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.write_text(json.dumps({"message": {"message": "OutOfMemoryError: no", "extraInfo": {}}}))
    error = read_end(tmp_path / "nothing", 1, path).error
    assert error is not None
    assert error.out_of_memory
    assert "OutOfMemoryError" in error.message


# --- processes ---


def test_everything_marked_dies_even_in_a_session_of_its_own(tmp_path: Path) -> None:
    machine = f"m-{os.getpid()}-{tmp_path.name}"
    script = (
        "import subprocess,sys,time\n"
        "subprocess.Popen([sys.executable,'-c','import time; time.sleep(60)'],"
        "start_new_session=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "LOWTIDE_MACHINE_ID": machine, "LOWTIDE_ATTEMPT_ID": "a"}
    process = process_group.start_in_own_group(
        [sys.executable, "-c", script], environment, tmp_path
    )
    wait_until(lambda: len(process_group.marked_processes(machine)) == 2, lambda: "two processes")
    file = tmp_path / "trainer.json"
    process_group.remember_trainer(file, process.pid, fence=4)
    containers: list[str] = []

    def end_containers() -> None:
        containers.append("ended")

    assert process_group.kill_earlier_trainer(file, machine, end_containers) == 4
    process.wait(timeout=60)
    process_group.pump_output(process, lambda _: None)
    assert process_group.marked_processes(machine) == []
    assert process_group.kill_earlier_trainer(file, machine, end_containers) is None
    assert containers == []  # it ran in none


def test_another_process_with_the_old_pid_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], process_group=0) as innocent:
        file = tmp_path / "trainer.json"
        file.write_text(json.dumps({"pid": innocent.pid, "start_ticks": 1, "fence": 2}))
        nobody = f"nobody-{tmp_path.name}"
        assert process_group.kill_earlier_trainer(file, nobody, lambda: None) == 2
        assert innocent.poll() is None
        innocent.kill()


def test_the_timer_powers_off_at_its_deadline_and_not_before(tmp_path: Path) -> None:
    deadline, sign = tmp_path / "power-off-at", tmp_path / "off"
    first_at = time.clock_gettime(time.CLOCK_BOOTTIME) + 2.0
    power_off_watchdog.arm(deadline, first_at)
    # The command tells when it ran: seconds since the machine's start, as the deadlines are.
    with power_off_watchdog.start_timer(deadline, f"cp /proc/uptime {sign}") as timer:
        second = power_off_watchdog.start_timer(deadline, f"cp /proc/uptime {sign}-twice")
        assert time.clock_gettime(time.CLOCK_BOOTTIME) < first_at, "the timers took too long"
        power_off_watchdog.arm(deadline, first_at + 1.0)
        assert timer.wait(timeout=60) == 0
        assert second.wait(timeout=60) == 0
    (told,) = tmp_path.glob("off*")  # of the two timers, whichever came first
    assert float(told.read_text().split()[0]) >= first_at + 0.98, "before the later deadline"


# --- the working folder ---


def pack(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for member in members:
            packed.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def a_member(name: str, link_to: str | None = None) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    if link_to is not None:
        member.type, member.linkname = tarfile.SYMTYPE, link_to
    else:
        member.size = 3
    return member


@pytest.mark.parametrize(
    "members",
    [
        [a_member("../evil")],
        [a_member("way", "../.."), a_member("way/evil")],
        [a_member("way", "/etc")],
    ],
)
def test_an_archive_that_reaches_outside_is_refused(
    tmp_path: Path, members: list[tarfile.TarInfo]
) -> None:
    target = tmp_path / "in" / "workdir"
    target.mkdir(parents=True)
    with pytest.raises(WorkdirInvalid):
        unpack(pack(tmp_path / "w.tar.gz", *members), target)
    assert not list(tmp_path.rglob("evil"))


def test_an_absolute_name_stays_inside(tmp_path: Path) -> None:
    unpack(pack(tmp_path / "w.tar.gz", a_member("/evil-abs")), tmp_path)
    assert (tmp_path / "evil-abs").read_bytes() == b"xxx"
    (tmp_path / "torn").write_bytes(b"\x1f\x8b torn")
    with pytest.raises(WorkdirInvalid):
        unpack(tmp_path / "torn", tmp_path)


# --- peers ---


def test_peers_are_reached_or_named() -> None:
    held, port = hold_free_port(20_000, 40_000)
    with held:
        silent = Peer(2, "127.0.0.1", port, port + 9)
        listening, other = hold_free_port(port + 1, 40_000)
        listening.close()
        listener = ProbeListener(other, fence=7)
        try:
            reachable = Peer(1, "127.0.0.1", other, other + 9)
            probe_peers([reachable, Peer(0, "nowhere", 1, 2)], 0, 7, lambda: False, 60.0)
            with pytest.raises(PeerUnreachable, match=f"rank 2 at 127.0.0.1:{port}"):
                probe_peers([reachable, silent], 0, 7, lambda: False, 0.1)
            with pytest.raises(PeerUnreachable, match="another attempt"):
                probe_peers([reachable], 0, 8, lambda: False, 0.1)
        finally:
            listener.close()


# --- settings ---


def test_settings_name_what_is_wrong() -> None:
    good = {
        "LOWTIDE_CONTROL_URL": "http://127.0.0.1:1/",
        "LOWTIDE_LAUNCH_TOKEN": "t",
        "LOWTIDE_MACHINE_DIR": "/m",
        "LOWTIDE_CLOUD": "gce",
        "GCE_METADATA_HOST": "127.0.0.1:8",
        "LOWTIDE_PRIVATE_ADDRESS": "10.0.0.1",
    }
    settings = read_settings(good)
    assert settings.metadata_url == "http://127.0.0.1:8"
    assert settings.control_url == "http://127.0.0.1:1"
    for name, value in (
        ("LOWTIDE_CLOUD", "azure"),
        ("LOWTIDE_PORT_FROM", "x"),
        ("LOWTIDE_PORT_TO", "1"),
        ("LOWTIDE_CONTROL_URL", ""),
    ):
        with pytest.raises(EnvironmentInvalid, match=name):
            read_settings({**good, name: value})
