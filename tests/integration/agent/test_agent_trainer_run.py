"""One trainer process and its ranks: who is told to stop, and when waiting for them ends.

Not here: the whole agent (`test_agent_run`), or how an end is read (`test_agent_parts`).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent.fake_control_plane import wait_until
from tests.support.servers.free_port import free_port
from trainer.agent.attempt import trainer_command
from trainer.agent.attempt.end_files import read_end
from trainer.agent.attempt.run_place import MachinePlace
from trainer.agent.attempt.trainer_run import TrainerRun
from trainer.agent.machine import kernel_kills, process_group
from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.machine.machine_folders import AttemptFolders, MachineFolders
from trainer.agent.rules.observations import Observation, TrainerExited
from trainer.agent.secrets.secret_mask import SecretMask
from trainer.hooks.notice import NOTICE_VARIABLE, seconds_left
from trainer.protocol.agent_report import TrainerOutcome
from trainer.protocol.directive import Directive, DirectiveKind, Peer
from trainer.protocol.run_config import RunConfig

# A launcher that starts one rank in a session of its own, as torchrun does, and is slow to end.
LAUNCHER = r"""
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("launcher-was-told").touch())
subprocess.Popen([sys.executable, "rank.py"], start_new_session=True).wait()
time.sleep(float(sys.argv[1]))
pathlib.Path("launcher-ended").touch()
"""
RANK = r"""
import json, os, pathlib, signal, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
notice = pathlib.Path(os.environ["LOWTIDE_NOTICE_FILE"])
folder = pathlib.Path(os.environ["ENDS"])
(folder / "started-rank0.tmp").write_text(json.dumps({"pid": os.getpid()}))
(folder / "started-rank0.tmp").rename(folder / "started-rank0.json")
while not told and not os.path.exists("finish"):
    time.sleep(0.02)
outcome = "drained" if told else "finished"
if told and notice.exists():
    pathlib.Path("notice-seen").write_text(notice.read_text())
marker = {"outcome": outcome, "step": 5, "exit_code": 0, "error": None, "at_seconds": 1.0}
(folder / "ended-rank0.tmp").write_text(json.dumps(marker))
(folder / "ended-rank0.tmp").rename(folder / "ended-rank0.json")
"""
CONTEXT = trainer_command.CommandContext("m", "10.0.0.1", "", {})


class Machine:
    """One run in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders = MachineFolders(root / "machine", None)
        self.folders.begin_attempt(1)
        self.attempt: AttemptFolders = self.folders.attempt(1)
        self.ends = self.attempt.progress_file.parent
        self.mark = f"trainer-run-{os.getpid()}-{root.name}"
        self.mask_of_secrets = SecretMask()
        self.seen: queue.Queue[Observation] = queue.Queue()
        self.log_ends = threading.Event()
        self.log_may_end = threading.Event()
        self.log_may_end.set()
        (root / "launcher.py").write_text(LAUNCHER)
        (root / "rank.py").write_text(RANK)

    def start(self, ranks: int, linger_seconds: float) -> TrainerRun:
        run = self.begin(ranks, linger_seconds)
        wait_until((self.ends / "started-rank0.json").exists, lambda: "no rank started")
        return run

    def begin(self, ranks: int, linger_seconds: float, script: str = "launcher.py") -> TrainerRun:
        run = TrainerRun(
            1, self.mark, self.attempt, None, self.folders.trainer_file, self.seen.put,
            lambda _: None, self._send_log_end, ranks, MachinePlace(CONTEXT, None),
            self.mask_of_secrets,
        )  # fmt: skip
        environment = {
            **os.environ,
            "ENDS": str(self.ends),
            NOTICE_VARIABLE: str(self.attempt.notice_file),
            process_group.MACHINE_MARK: self.mark,
            process_group.ATTEMPT_MARK: "attempt-1",
        }
        command = [sys.executable, script, str(linger_seconds)]
        run.start(command, environment, self.root)
        return run

    def _send_log_end(self) -> None:
        self.log_ends.set()
        assert self.log_may_end.wait(60.0)

    def exited(self, seconds: float) -> TrainerExited:
        deadline = time.monotonic() + seconds
        while True:
            seen = self.seen.get(timeout=max(0.01, deadline - time.monotonic()))
            if isinstance(seen, TrainerExited):
                return seen


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    process_group.kill_all(made.mark)


def test_an_error_quotes_no_part_of_a_value_that_is_longer_than_what_is_kept(
    machine: Machine,
) -> None:
    value = "".join(f"{number:05d}" for number in range(6_000))
    machine.mask_of_secrets.hide([value])
    (machine.root / "fails.py").write_text(f"print('refused: {value}'); raise SystemExit(3)")
    machine.begin(0, 0.0, "fails.py")
    error = machine.exited(60.0).end.error
    assert error is not None
    assert error.message == "refused: ***"


def test_a_drain_is_told_to_the_ranks_and_not_to_what_started_them(machine: Machine) -> None:
    """torchrun of some versions kills its ranks 30 s after it is told, saved or not."""
    until = boot_seconds() + 90.0
    machine.start(ranks=1, linger_seconds=0.0).drain(until)
    assert machine.exited(60.0).end.outcome is TrainerOutcome.DRAINED
    assert not (machine.root / "launcher-was-told").exists()
    # By when it had to be done lay there before the signal came.
    assert json.loads((machine.root / "notice-seen").read_text()) == {"deadline": until}


def test_a_users_command_is_told_as_a_whole(machine: Machine) -> None:
    run = machine.start(ranks=0, linger_seconds=0.0)
    run.drain(None)
    assert not machine.attempt.notice_file.exists()
    run.tell_deadline(boot_seconds() + 5.0)
    assert seconds_left({NOTICE_VARIABLE: str(machine.attempt.notice_file)}) is not None
    wait_until((machine.root / "launcher-was-told").exists, lambda: "nobody was told")


def test_once_every_rank_has_written_its_end_the_launcher_is_not_waited_for(
    machine: Machine,
) -> None:
    machine.start(ranks=1, linger_seconds=600.0)
    (machine.root / "finish").touch()
    end = machine.exited(60.0).end
    assert (end.outcome, end.exit_code, end.step) == (TrainerOutcome.FINISHED, 0, 5)
    assert process_group.marked_processes(machine.mark) == []


def test_a_kill_ordered_after_the_end_does_not_hide_that_a_rank_was_killed(
    machine: Machine,
) -> None:
    """The peer's end is told first, and its order to stop comes while this log is being sent."""
    machine.log_may_end.clear()
    run = machine.start(ranks=1, linger_seconds=0.0)
    rank = json.loads((machine.ends / "started-rank0.json").read_text())["pid"]
    os.kill(rank, signal.SIGKILL)
    assert machine.log_ends.wait(60.0)
    run.kill()
    machine.log_may_end.set()
    end = machine.exited(60.0).end
    assert end.error is not None
    assert (end.outcome, end.error.type, end.error.rank) == (TrainerOutcome.FAILED, "Killed", 0)
    assert end.before_kill


def test_a_trainer_that_the_agent_killed_did_not_fail_before(machine: Machine) -> None:
    machine.start(ranks=1, linger_seconds=0.0).kill()
    assert not machine.exited(60.0).end.before_kill


@pytest.mark.parametrize(("end", "of_itself"), [("1", False), ("137", True)])
def test_a_command_that_does_not_say_why_it_failed_may_have_lost_its_peer(
    machine: Machine, end: str, of_itself: bool
) -> None:
    """All machines are told to stop, another one a moment before this; SIGKILL was not ours."""
    machine.log_may_end.clear()
    (machine.root / "launcher.py").write_text(f"raise SystemExit({end})")
    run = machine.begin(ranks=0, linger_seconds=0.0)
    assert machine.log_ends.wait(60.0)
    run.kill()
    machine.log_may_end.set()
    found = machine.exited(60.0).end
    assert (found.outcome, found.exit_code) == (TrainerOutcome.FAILED, int(end))
    assert found.before_kill is of_itself


def test_a_rank_that_still_saved_when_its_launcher_was_gone_was_killed_by_the_agent(
    machine: Machine,
) -> None:
    (machine.root / "rank.py").write_text(RANK.replace("while not told", "while True"))
    (machine.root / "launcher.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(3))\n"
        "subprocess.Popen([sys.executable, 'rank.py'], start_new_session=True)\n"
        "open('launcher-pid', 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    run = machine.start(ranks=0, linger_seconds=0.0)
    launcher = int((machine.root / "launcher-pid").read_text())
    run.drain(None)
    wait_until(lambda: process_group.is_dead(launcher), lambda: "the launcher lives")
    assert len(process_group.marked_processes(machine.mark)) == 1
    run.kill()
    end = machine.exited(60.0).end
    assert end.outcome is TrainerOutcome.FAILED
    assert not end.before_kill


def test_a_users_command_may_go_on_after_a_trainer_in_it_has_ended(machine: Machine) -> None:
    machine.start(ranks=0, linger_seconds=3.0)
    (machine.root / "finish").touch()
    machine.exited(60.0)
    assert (machine.root / "launcher-ended").exists()


def test_a_command_with_a_bug_ends_with_the_line_that_names_it(machine: Machine) -> None:
    (machine.root / "launcher.py").write_text("print('x' * 40_000)\nlrate\n")
    machine.begin(ranks=0, linger_seconds=0.0)
    error = machine.exited(60.0).end.error
    assert error is not None
    assert error.message == "NameError: name 'lrate' is not defined"


@pytest.mark.parametrize("by_us", [False, True])
def test_a_command_that_the_kernel_killed_for_memory_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, by_us: bool
) -> None:
    vmstat = machine.root / "vmstat"
    vmstat.write_text("oom_kill 3\n")
    monkeypatch.setattr(kernel_kills, "VMSTAT", vmstat)
    end = "time.sleep(600)" if by_us else "os.kill(os.getpid(), 9)"
    (machine.root / "launcher.py").write_text(
        f"import os, pathlib, time\npathlib.Path('vmstat').write_text('oom_kill 4\\n')\n{end}\n"
    )
    run = machine.begin(ranks=0, linger_seconds=0.0)
    if by_us:
        wait_until(lambda: "4" in vmstat.read_text(), lambda: "the command did not begin")
        run.kill()
    error = machine.exited(60.0).end.error
    assert error is not None
    assert (error.out_of_memory, error.type) == (not by_us, "Signal" if by_us else "Killed")


def test_torchrun_gets_no_option_that_pytorch_2_11_does_not_know(tmp_path: Path) -> None:
    config = RunConfig("job", "job", 2, 4, "file:///x", 2, 60.0, trainer={})
    directive = Directive(DirectiveKind.TRAIN, 1, 1, "attempt", master_addr="a", master_port=1)
    options = trainer_command.torchrun_arguments(config, directive)
    # Source: `python -m torch.distributed.run --help` of PyTorch 2.11.0.
    known = {
        "nnodes", "node-rank", "nproc-per-node", "master-addr", "master-port", "rdzv-backend",
        "rdzv-id", "rdzv-conf", "max-restarts",
    }  # fmt: skip
    assert {option.removeprefix("--").split("=")[0] for option in options} <= known
    folders = MachineFolders(tmp_path, None)
    folders.begin_attempt(1)
    environment = trainer_command.trainer_environment(
        CONTEXT, config, directive, folders.attempt(1), None
    )
    assert environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "120"
    assert environment[NOTICE_VARIABLE] == str(folders.attempt(1).notice_file)


@pytest.mark.full
def test_machines_that_never_meet_end_torchrun_soon_and_nobody_is_blamed(tmp_path: Path) -> None:
    trainer = {"rendezvous_timeout_seconds": 1.0}
    config = RunConfig("job", "job", 2, 1, "file:///x", 2, 60.0, trainer=trainer)
    directive = Directive(
        DirectiveKind.TRAIN, 1, 1, "attempt", node_rank=0, master_addr="127.0.0.1",
        master_port=free_port(), peers=(Peer(0, "127.0.0.1", 1, 2), Peer(1, "127.0.0.1", 3, 4)),
    )  # fmt: skip
    arguments = trainer_command.torchrun_arguments(config, directive)
    errors = tmp_path / "torchrun-error.json"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments, "-m", "never_started"],
        env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(errors)},
        capture_output=True,
        timeout=300,
        check=False,
    )
    error = read_end(tmp_path, done.returncode, errors).error
    assert error is not None
    assert error.peer_communication
    assert error.message.startswith("the machines of the gang did not meet: DistStoreError")
    assert "1/2 clients joined" in error.message
