"""The supervisor with real child processes: restarts, stopping, left-overs, the folder's lock."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.embedded.embedded_errors import ChildFailedError, StateFolderBusyError
from app.adapters.embedded.processes.process_spec import ProcessSpec
from app.adapters.embedded.processes.process_supervisor import ProcessSupervisor
from app.adapters.embedded.processes.restart_policy import CrashHistory, RestartLimits
from app.adapters.embedded.processes.run_record import describe_running, stop_running
from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
from tests.support.servers.embedded import is_running, python_process, sleeping_stranger, wait_until

QUICK = RestartLimits(first_delay_seconds=0.05, max_delay_seconds=0.1, max_crashes=3)

# Writes its pid to argv[1] and its last word to argv[2] when told to stop.
POLITE = """
import os, pathlib, signal, sys, time
def stop(*_):
    with open(sys.argv[2], "a") as log: log.write(sys.argv[3] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("here I am", flush=True)
pathlib.Path(sys.argv[1] + ".new").write_text(str(os.getpid()))
os.replace(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""

# Ignores SIGTERM and has a child that does so too.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1] + ".new").write_text(f"{os.getpid()} {child.pid}")
os.replace(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""

# A supervisor in a process of its own, with one polite child; argv: state folder, pid file, log.
SUPERVISING = f"""
import pathlib, sys
from app.adapters.embedded.processes.process_spec import ProcessSpec
from app.adapters.embedded.processes.process_supervisor import ProcessSupervisor
pid_file = pathlib.Path(sys.argv[2])
argv = [sys.executable, "-c", {POLITE!r}, str(pid_file), sys.argv[3], "child"]
with ProcessSupervisor(pathlib.Path(sys.argv[1])) as supervisor:
    supervisor.start([ProcessSpec("child", argv, ready=pid_file.exists)])
    print("up", flush=True)
    supervisor.run()
"""


def polite(folder: Path, name: str) -> ProcessSpec:
    pid_file = folder / f"{name}.pid"
    argv = [sys.executable, "-c", POLITE, str(pid_file), str(folder / "stops"), name]
    return ProcessSpec(name, argv, ready=pid_file.exists)


def pid_of(folder: Path, name: str) -> int:
    return int((folder / f"{name}.pid").read_text())


def supervise(
    supervisor: ProcessSupervisor, during: Callable[[], None], *specs: ProcessSpec
) -> None:
    """Start `specs`, call `during` from a thread while supervising, then stop."""
    failures: list[BaseException] = []

    def act() -> None:
        try:
            during()
        except BaseException as error:
            failures.append(error)
        supervisor.request_stop()

    with supervisor:
        assert supervisor.start(specs)
        actor = threading.Thread(target=act)
        actor.start()
        try:
            supervisor.run()
        finally:
            actor.join()
    if failures:
        raise failures[0]


class Watched(ProcessSupervisor):
    """A supervisor in a folder of its own; `screen` is what the terminal shows."""

    def __init__(
        self, folder: Path, *, colour: bool = False, quiet_until_announced: bool = False
    ) -> None:
        self.folder, self.screen = folder, io.StringIO()
        super().__init__(
            folder / "state",
            colour=colour,
            stream=self.screen,
            limits=QUICK,
            quiet_until_announced=quiet_until_announced,
        )


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Watched]:
    before = signal.getsignal(signal.SIGTERM)
    yield Watched(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before, "signal handlers were not given back"


def test_back_off_doubles_to_its_ceiling_and_ends() -> None:
    history = CrashHistory(RestartLimits())
    delays = [history.delay_after_crash(float(n), was_ready=True) for n in range(10)]
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30, 30, None]


def test_crashes_outside_the_window_are_forgiven() -> None:
    history = CrashHistory(RestartLimits())
    for hour in range(50):
        assert history.delay_after_crash(hour * 3600.0, was_ready=True) == 1


def test_a_process_that_was_never_ready_is_given_up_sooner() -> None:
    history = CrashHistory(RestartLimits())
    delays = [history.delay_after_crash(float(n), was_ready=False) for n in range(3)]
    assert delays == [1, 2, None]


def test_output_is_prefixed_and_logged(supervisor: Watched) -> None:
    silent = replace(polite(supervisor.folder, "silent"), echo=False)
    supervise(supervisor, lambda: None, polite(supervisor.folder, "child"), silent)
    assert "child    | here I am\n" in supervisor.screen.getvalue()
    assert "silent   | here I am\n" not in supervisor.screen.getvalue()
    for name in ("child", "silent"):
        assert (supervisor.folder / "state" / "logs" / f"{name}.log").read_text() == "here I am\n"


# What a worker writes whose database has gone: an entry, a traceback, and the error's own lines.
ENTRY = "13:46:02 ERROR   app: claim_jobs failed: connection refused"
COMPLAINT = f"""{ENTRY}
Traceback (most recent call last):
  File "x.py", line 1, in apply
    raise last_ex.with_traceback(None)

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "y.py", line 2, in connect
psycopg.OperationalError: connection failed
DETAIL:  Consistent recovery state has not been yet reached."""


def test_of_a_traceback_the_terminal_gets_a_sentence_and_the_log_all(supervisor: Watched) -> None:
    text = f"{COMPLAINT}\n{COMPLAINT}\n13:46:03 INFO    app: on it goes"
    once = ProcessSpec("worker", [sys.executable, "-c", f"print({text!r})"], restart=False)
    with supervisor:
        assert supervisor.start([once])
        supervisor.run()
    log = supervisor.folder / "state" / "logs" / "worker.log"
    told = [line for line in supervisor.screen.getvalue().splitlines() if line.startswith("worker")]
    assert [line.removeprefix("worker   | ") for line in told] == [
        ENTRY,
        f"an error with its traceback is in {log}",
        ENTRY,
        "13:46:03 INFO    app: on it goes",
    ]
    assert log.read_text() == f"{text}\n"


def test_of_what_is_to_be_expected_the_terminal_gets_one_line(supervisor: Watched) -> None:
    """A wait for a lock: a warning of the worker, a failed statement of the database."""
    locked = "13:46:02 WARNING app: its rows were locked by another transaction"
    text = f"{locked}\n{COMPLAINT.partition(chr(10))[2]}\n13:46:03 INFO    app: on it goes"
    at = "2031-01-01 00:00:00.000 UTC [77]"
    of_postgres = (
        f"{at} LOG:  starting\n"
        f"{at} ERROR:  canceling statement due to lock timeout\n"
        f'{at} CONTEXT:  while locking tuple (0,1) in relation "jobs"\n'
        f"{at} STATEMENT:  SELECT jobs.id\n\tFROM jobs FOR UPDATE\n"
        f"{at} FATAL:  the disk is gone"
    )
    python = [sys.executable, "-c"]
    specs = [
        ProcessSpec("worker", [*python, f"print({text!r})"], restart=False),
        ProcessSpec(
            "postgres",
            [*python, f"print({of_postgres!r})"],
            restart=False,
            unechoed=EmbeddedPostgres.unechoed,
        ),
    ]
    with supervisor:
        assert supervisor.start(specs)
        supervisor.run()
    told = [line.partition("| ")[2] for line in supervisor.screen.getvalue().splitlines()]
    assert [line for line in told if line.startswith("13:")] == [locked, text.splitlines()[-1]]
    assert [line for line in told if line.startswith("2031")] == [
        f"{at} LOG:  starting",
        f"{at} FATAL:  the disk is gone",
    ]
    assert not any("SELECT" in line or "traceback" in line for line in told)
    logs = supervisor.folder / "state" / "logs"
    assert (logs / "worker.log").read_text() == f"{text}\n"
    assert (logs / "postgres.log").read_text() == f"{of_postgres}\n"


def test_while_a_program_is_down_the_others_complain_in_their_logs_alone(
    supervisor: Watched,
) -> None:
    said = f"import time\nwhile True: print({ENTRY!r}, flush=True); time.sleep(0.005)"
    other = ProcessSpec("other", [sys.executable, "-c", said])

    def kill_it() -> None:
        wait_until(lambda: ENTRY in supervisor.screen.getvalue(), "a complaint")
        os.kill(pid_of(supervisor.folder, "child"), signal.SIGKILL)
        wait_until(
            lambda: supervisor.screen.getvalue().count("child is ready after") == 2, "it is back"
        )

    supervise(supervisor, kill_it, polite(supervisor.folder, "child"), other)
    [_, meanwhile] = supervisor.screen.getvalue().split(
        "child was ended by SIGKILL; starting it again"
    )
    assert f"write to {supervisor.folder / 'state' / 'logs'} alone" in meanwhile
    # One may be on its way as the child's end is noticed.
    assert meanwhile.partition("child is ready after")[0].count(ENTRY) <= 1


def test_what_goes_well_is_not_printed_before_the_announcement(tmp_path: Path) -> None:
    quiet = Watched(tmp_path, quiet_until_announced=True)
    with quiet:
        assert quiet.start([polite(tmp_path, "early")])
        assert quiet.screen.getvalue() == ""
        quiet.announce("ready")
        assert quiet.start([replace(polite(tmp_path, "late"), ready=None)])
        quiet.say("stopping")
    lines = quiet.screen.getvalue().splitlines()
    assert lines[0] == "ready"
    # Of the supervisor's own: `late` is not waited for, and speaks when it likes.
    own = [line for line in lines if line.startswith("lowtide ")]
    assert "late is started (pid" in own[0]
    assert own[-1] == "lowtide  | stopping"
    logs = tmp_path / "state" / "logs"
    assert (logs / "early.log").read_text() == "here I am\n"
    assert "early is ready after" in (logs / "lowtide.log").read_text()


def test_what_goes_wrong_is_printed_even_then(tmp_path: Path) -> None:
    crash = [sys.executable, "-c", "print('no such colour'); raise SystemExit(3)"]
    quiet = Watched(tmp_path, quiet_until_announced=True)
    with (
        pytest.raises(ChildFailedError, match=r"(?s)the end of .*bad\.log:.*no such colour"),
        quiet,
    ):
        quiet.start([ProcessSpec("bad", crash, ready=lambda: False)])
    assert "bad exited with 3; starting it again in 0.05s" in quiet.screen.getvalue()
    assert "no such colour" not in quiet.screen.getvalue()


def test_colours_only_on_request(tmp_path: Path) -> None:
    plain, coloured = Watched(tmp_path), Watched(tmp_path, colour=True)
    supervise(plain, lambda: None, polite(tmp_path, "plain"))
    assert "\x1b[" not in plain.screen.getvalue()
    supervise(coloured, lambda: None, polite(tmp_path, "bright"))
    shown = coloured.screen.getvalue()
    assert re.search(r"\x1b\[3[2-6]mlowtide  \| \x1b\[0mbright is ready", shown)


def test_killed_child_is_started_again(supervisor: Watched) -> None:
    def kill_it() -> None:
        first = pid_of(supervisor.folder, "child")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: pid_of(supervisor.folder, "child") != first, "a new child")
        assert is_running(pid_of(supervisor.folder, "child"))
        # The child may be quicker than the supervisor's record of it.
        wait_until(lambda: recorded() == [pid_of(supervisor.folder, "child")], "its record")

    def recorded() -> list[int]:
        return [p.pid for p in describe_running(supervisor.folder / "state") if p.name == "child"]

    supervise(supervisor, kill_it, polite(supervisor.folder, "child"))
    assert "child was ended by SIGKILL; starting it again in 0.05s" in supervisor.screen.getvalue()
    assert not is_running(pid_of(supervisor.folder, "child"))


def test_a_child_that_keeps_crashing_is_given_up_with_its_log(supervisor: Watched) -> None:
    crash = [sys.executable, "-c", "print('no such colour'); raise SystemExit(3)"]
    healthy = polite(supervisor.folder, "healthy")
    with pytest.raises(ChildFailedError, match=r"(?s)bad exited with 3.*no such colour"):
        supervise(supervisor, lambda: None, healthy, ProcessSpec("bad", crash, ready=lambda: False))
    assert not is_running(pid_of(supervisor.folder, "healthy")), "the others must be stopped too"
    assert describe_running(supervisor.folder / "state") == []


def test_a_command_that_does_not_exist_is_named(supervisor: Watched) -> None:
    with pytest.raises(ChildFailedError, match=r"ghost could not be started: .*no-such-program"):
        supervise(supervisor, lambda: None, ProcessSpec("ghost", ["/no-such-program"]))


def test_a_child_that_is_never_ready_is_reported(supervisor: Watched) -> None:
    slow = replace(
        polite(supervisor.folder, "slow"), ready=lambda: False, ready_timeout_seconds=0.3
    )
    with pytest.raises(ChildFailedError, match=r"slow was not ready within"):
        supervise(supervisor, lambda: None, slow)


def test_a_child_without_restart_may_end(supervisor: Watched) -> None:
    once = ProcessSpec("once", [sys.executable, "-c", "print('done')"], restart=False)
    with supervisor:
        assert supervisor.start([once])
        supervisor.run()
    assert "once     | done\n" in supervisor.screen.getvalue()
    assert "once exited with 0\n" in supervisor.screen.getvalue()


def test_stages_stop_in_reverse_order_on_sigterm(supervisor: Watched) -> None:
    with supervisor:
        assert supervisor.start([polite(supervisor.folder, "server")])
        assert supervisor.start([polite(supervisor.folder, "client")])
        os.kill(os.getpid(), signal.SIGTERM)
        supervisor.run()
    assert (supervisor.folder / "stops").read_text().split() == ["client", "server"]
    assert not is_running(pid_of(supervisor.folder, "server"))
    assert describe_running(supervisor.folder / "state") == []


def test_a_stop_while_starting_ends_the_start(supervisor: Watched) -> None:
    slow = replace(polite(supervisor.folder, "slow"), ready=lambda: False)
    with supervisor:
        os.kill(os.getpid(), signal.SIGINT)
        assert not supervisor.start([slow])
    assert describe_running(supervisor.folder / "state") == []


def stubborn(folder: Path, timeout_seconds: float) -> ProcessSpec:
    pid_file = folder / "stubborn.pid"
    return ProcessSpec(
        "stubborn",
        [sys.executable, "-c", STUBBORN, str(pid_file)],
        ready=pid_file.exists,
        stop_timeout_seconds=timeout_seconds,
    )


def test_a_stubborn_child_is_killed_with_its_own_children(supervisor: Watched) -> None:
    supervise(supervisor, lambda: None, stubborn(supervisor.folder, 0.2))
    assert "had to kill stubborn" in supervisor.screen.getvalue()
    child, grandchild = map(int, (supervisor.folder / "stubborn.pid").read_text().split())
    assert not is_running(child)
    wait_until(lambda: not is_running(grandchild), "the end of the grandchild")


def test_a_second_request_does_not_wait(supervisor: Watched) -> None:
    with supervisor:
        assert supervisor.start([stubborn(supervisor.folder, 3600.0)])
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        supervisor.run()
    assert not is_running(int((supervisor.folder / "stubborn.pid").read_text().split()[0]))


def test_one_supervisor_per_folder(supervisor: Watched) -> None:
    other = ProcessSupervisor(supervisor.folder / "state", stream=io.StringIO())
    with (
        supervisor,
        pytest.raises(StateFolderBusyError, match=rf"another lowtide \(pid {os.getpid()}\)"),
        other,
    ):
        pytest.fail("two supervisors in one folder")
    with other:
        pass


@pytest.fixture
def other_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = [str(tmp_path / name) for name in ("state", "child.pid", "stops")]
    with python_process(SUPERVISING, *arguments) as process:
        assert process.stdout is not None
        wait_until(lambda: "up\n" in iter(process.stdout.readline, ""), "the other run")  # type: ignore[union-attr]
        yield process


def test_next_run_stops_what_a_killed_supervisor_left(
    supervisor: Watched, other_run: subprocess.Popen[str]
) -> None:
    other_run.kill()
    other_run.wait()
    left = pid_of(supervisor.folder, "child")
    assert is_running(left)
    with supervisor:
        assert not is_running(left)
    assert "stopped what an earlier run left behind: child" in supervisor.screen.getvalue()
    assert (supervisor.folder / "stops").read_text() == "child\n"


def test_describe_and_stop_a_live_run(tmp_path: Path, other_run: subprocess.Popen[str]) -> None:
    described = describe_running(tmp_path / "state")
    assert [(p.name, p.pid, p.alive) for p in described] == [
        ("lowtide", other_run.pid, True),
        ("child", pid_of(tmp_path, "child"), True),
    ]
    assert all(p.uptime_seconds is not None and p.uptime_seconds < 600 for p in described)
    assert stop_running(tmp_path / "state", 60.0) == ["lowtide", "child"]
    assert other_run.wait(60) == 0
    assert not is_running(pid_of(tmp_path, "child"))
    assert stop_running(tmp_path / "state", 60.0) == []


def test_stop_running_cleans_up_after_a_killed_supervisor(
    tmp_path: Path, other_run: subprocess.Popen[str]
) -> None:
    other_run.kill()
    other_run.wait()
    assert stop_running(tmp_path / "state", 60.0) == ["child"]
    assert not is_running(pid_of(tmp_path, "child"))
    assert describe_running(tmp_path / "state") == []


def test_a_stranger_with_a_recorded_pid_is_left_alone(
    tmp_path: Path, other_run: subprocess.Popen[str]
) -> None:
    other_run.kill()
    other_run.wait()
    record_path = tmp_path / "state" / "run.json"
    record = json.loads(record_path.read_text())
    with sleeping_stranger() as stranger:
        # The child's record as it would look had the stranger got the child's pid later on.
        child = pid_of(tmp_path, "child")
        record["processes"][1]["pid"] = stranger.pid
        record_path.write_text(json.dumps(record))
        assert stop_running(tmp_path / "state", 5.0) == []
        assert stranger.poll() is None
    os.kill(child, signal.SIGKILL)


def test_a_broken_record_is_no_obstacle(supervisor: Watched) -> None:
    (supervisor.folder / "state" / "run.json").write_text('{"processes": [{"name"')
    assert describe_running(supervisor.folder / "state") == []
    with supervisor:
        assert [p.name for p in describe_running(supervisor.folder / "state")] == ["lowtide"]
