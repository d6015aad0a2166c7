"""What other terminals say of a `lowtide up` that is starting, stopping, or was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.adapters.embedded.processes.run_record import describe_running, record_now, write_record
from app.adapters.embedded.processes.state_folder import open_state_folder, up_lock
from app.cli.client.local_run import RunPhase, look_at_run
from app.cli.server.server_status import forget_address, remember_address
from tests.support.cli.command_line import CommandLine
from tests.support.servers.embedded import is_running, python_process, sleeping_stranger, wait_until

NOBODY = "http://127.0.0.1:9"

# A supervisor with a child called api that needs argv[2] seconds to stop; argv[3] is what its start
# is at.
SUPERVISING = """
import pathlib, sys
from app.adapters.embedded.processes.process_spec import ProcessSpec
from app.adapters.embedded.processes.process_supervisor import ProcessSupervisor
slow = "trap '' TERM; exec sleep 600"
with ProcessSupervisor(pathlib.Path(sys.argv[1])) as supervisor:
    supervisor.start([ProcessSpec("api", ["sh", "-c", slow],
                                  stop_timeout_seconds=float(sys.argv[2]))])
    if sys.argv[3:]:
        supervisor.enter_start_step(sys.argv[3])
    print("up", flush=True)
    supervisor.run()
"""

# Holds the folder as an `up` does that has not written anything down yet.
HOLDING = """
import pathlib, sys, time
from app.adapters.embedded.processes.state_folder import up_lock
with up_lock(pathlib.Path(sys.argv[1])):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return open_state_folder(tmp_path / "state")


@pytest.fixture
def cli(tmp_path: Path, state_dir: Path) -> CommandLine:
    return CommandLine(tmp_path, {"LOWTIDE_STATE_DIR": str(state_dir)})


@contextmanager
def supervised(
    state_dir: Path, stop_seconds: float = 0.1, start_step: str | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A supervisor with its child; both are gone at the end."""
    arguments = [str(state_dir), str(stop_seconds), *([start_step] if start_step else [])]
    with python_process(SUPERVISING, *arguments) as process:
        assert process.stdout is not None
        wait_until(lambda: "up\n" in iter(process.stdout.readline, ""), "the run")  # type: ignore[union-attr]
        children = [one.pid for one in describe_running(state_dir) if one.name == "api"]
        try:
            yield process
        finally:
            for pid in children:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not is_running(pid), "its end")  # noqa: B023


def test_of_a_killed_up_it_is_said_what_is_left_and_what_to_do(cli: CommandLine, state_dir: Path):
    with supervised(state_dir) as up:
        remember_address(state_dir, NOBODY)
        up.kill()
        up.wait()
        told = cli.run("status")
        assert told.exit_code == 3
        assert f"`lowtide up` (pid {up.pid}) was killed" in told.out
        assert "Still running, and watched by nobody: api; the api at " in told.out
        assert f"{NOBODY} does not answer." in told.out
        assert "\nRun `lowtide up` again: it stops what is left and resumes." in told.out
        asked = cli.run("status", "--json").json
        assert (asked["phase"], asked["remedy"][:22]) == ("killed", "run `lowtide up` again")
        unreachable = cli.fails(3, "jobs").errors
        assert "was killed" in unreachable
        assert "To do: run `lowtide up` again" in unreachable
        [found] = [
            one
            for one in cli.run("doctor", "--json").json["findings"]
            if one["name"] == "lowtide up"
        ]
        assert not found["ok"]
        assert found["remedy"].startswith("run `lowtide up` again")
    run = look_at_run(state_dir)
    assert (run.phase, run.remedy) == (
        RunPhase.KILLED,
        # Here no variable names the folder.
        f"run `lowtide up --state-dir {state_dir}` again: it resumes from here",
    )
    assert "none of them runs any more" in run.sentence


STARTING = re.compile(
    r"`lowtide up` \(pid (\d+)\) is still starting \(for \d+s, preparing the database\); "
    "try again in a moment"
)


def test_while_up_starts_every_command_says_the_same(cli: CommandLine, state_dir: Path):
    # The address of an earlier run, that was killed, is not that of this one.
    remember_address(state_dir, NOBODY)
    with supervised(state_dir, start_step="preparing the database") as up:
        told = cli.run("status")
        assert told.exit_code == 3
        assert STARTING.search(told.out), told.out
        assert NOBODY not in told.out
        assert cli.run("status", "--json").json["phase"] == "starting"
        cli.variables["LOWTIDE_PORT"] = "0"
        forget_address(state_dir)
        for command in (("jobs",), ("doctor", "--launch", "-y"), ("up",)):
            errors = cli.fails(3, *command).errors
            found = STARTING.search(errors)
            assert found is not None, errors
            assert int(found[1]) == up.pid
            assert "8400" not in errors
        checked = cli.run("doctor", "--json")
        assert checked.exit_code == 1
        wrong = [one for one in checked.json["findings"] if not one["ok"]]
        assert [one["name"] for one in wrong] == ["lowtide up"]
        assert not {"database", "valkey"} & {one["name"] for one in checked.json["findings"]}


def test_a_command_waits_a_moment_for_one_that_starts(cli: CommandLine, state_dir: Path):
    with supervised(state_dir):
        ready = threading.Timer(0.5, remember_address, (state_dir, NOBODY))
        ready.start()
        # It goes on as soon as the address is known: here, to one that nobody answers.
        assert f"the api at {NOBODY} cannot be reached" in cli.fails(3, "jobs").errors
        ready.join()


def test_before_it_has_written_anything_down_its_lock_tells(cli: CommandLine, state_dir: Path):
    gone = record_now("lowtide", 0, stop_signal=15, stop_timeout_seconds=1.0, stage=0)
    write_record(state_dir, [gone])
    assert look_at_run(state_dir).phase is RunPhase.KILLED
    with python_process(HOLDING, str(state_dir)) as up:
        assert up.stdout is not None
        assert up.stdout.readline() == "up\n"
        assert look_at_run(state_dir).phase is RunPhase.STARTING
        errors = cli.fails(3, "jobs").errors
        assert f"`lowtide up` (pid {up.pid}) is still starting (for" in errors
        up.kill()
        up.wait()
    assert look_at_run(state_dir).phase is RunPhase.KILLED


@pytest.mark.parametrize("damaged", [b"\xff\xfe", b"http://127.0.0.1:99999999"])
def test_a_damaged_address_ends_no_command(cli: CommandLine, state_dir: Path, damaged: bytes):
    gone = record_now("lowtide", 0, stop_signal=15, stop_timeout_seconds=1.0, stage=0)
    here = record_now("api", os.getpid(), stop_signal=15, stop_timeout_seconds=1.0, stage=1)
    write_record(state_dir, [gone, here])
    (state_dir / "server_url").write_bytes(damaged)
    assert look_at_run(state_dir).phase is RunPhase.KILLED
    assert cli.run("status").exit_code == 3


def test_a_folder_that_down_has_is_not_called_starting(state_dir: Path):
    with up_lock(state_dir, starts=False):
        run = look_at_run(state_dir)
    assert (run.phase, "is stopping programs" in run.sentence) == (RunPhase.BUSY, True)


def test_one_that_stops_is_not_called_starting(cli: CommandLine, state_dir: Path):
    with supervised(state_dir, stop_seconds=60.0) as up:
        up.send_signal(signal.SIGTERM)
        wait_until(lambda: look_at_run(state_dir).phase is RunPhase.STOPPING, "it stops")
        assert "is stopping. To do: wait until it has ended" in cli.fails(3, "jobs").errors


def test_a_program_that_is_down_is_named(cli: CommandLine, state_dir: Path):
    with supervised(state_dir):
        remember_address(state_dir, NOBODY)
        told = cli.run("status")
        assert told.exit_code == 3
        assert "runs; it is starting worker and beat again." in told.out


def test_another_address_is_not_explained_by_the_run_here(cli: CommandLine, state_dir: Path):
    with supervised(state_dir):
        remember_address(state_dir, NOBODY)
        cli.variables["LOWTIDE_SERVER_URL"] = "http://127.0.0.1:1"
        assert "LOWTIDE_SERVER_URL sets this address" in cli.fails(3, "jobs").errors


def test_without_a_run_its_folder_is_asked_about(cli: CommandLine):
    said = cli.fails(3, "jobs").errors
    assert "Does `lowtide up` run from this folder?" in said
    assert "If it was started with --state-dir, set LOWTIDE_STATE_DIR to the same folder." in said


def test_advice_on_a_folder_that_was_named_names_it_again(cli: CommandLine, tmp_path: Path):
    elsewhere = tmp_path / "low tide"
    for command in ("status", "down"):
        assert "Start it with `lowtide up`." in cli.run(command).out
        told = cli.run(command, "--state-dir", str(elsewhere)).out
        assert f"Nothing runs from {elsewhere}." in told
        assert f"Start it with `lowtide up --state-dir '{elsewhere}'`." in told


def test_a_folder_without_a_run_says_nothing(state_dir: Path):
    with sleeping_stranger() as stranger:
        (state_dir / "up.lock").write_text(f"{stranger.pid}\nanother start\n")
        assert look_at_run(state_dir).phase is RunPhase.NOTHING
