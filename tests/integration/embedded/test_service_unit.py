"""deploy/lowtide.service: what it says, and a real systemd that starts a killed `lowtide up`."""

from __future__ import annotations

import configparser
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers.embedded import open_folder, wait_until
from tests.support.servers.finished_commands import run_command
from tests.support.servers.free_port import free_port
from tests.support.servers.own_systemd import SYSTEMD, own_systemd

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "lowtide.service"
LOWTIDE = str(Path(sys.executable).with_name("lowtide"))
JOB = {"run": "sleep 600", "infra": ["local"], "resources": {"gpu": "V100"}}
START_SECONDS = 180.0

# The unit as it is shipped, but for where things lie here.
DROP_IN = """
[Service]
ExecStart=
ExecStart={lowtide} up
WorkingDirectory={folder}
Environment=LOWTIDE_STATE_DIR={folder}/state LOWTIDE_PORT={port}
StateDirectory=
RestartSec=1
StandardOutput=append:{folder}/up.out
StandardError=inherit
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as made:
        yield made


def test_whatever_ends_it_it_is_started_again_and_its_machines_stay():
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text("utf-8"))
    service = unit["Service"]
    assert service["ExecStart"].split()[1:] == ["up"]
    assert (service["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")
    assert service["KillMode"] == "process", "machines of the local cloud are kept"
    assert service["OOMPolicy"] == "continue", "one program without memory does not end the others"
    state_dir = service["Environment"].removeprefix("LOWTIDE_STATE_DIR=")
    assert state_dir == f"/var/lib/{service['StateDirectory']}"


def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path):
    verify = shutil.which("systemd-analyze")
    if verify is None:
        return  # its values are looked at above; a machine without systemd runs no unit
    text = UNIT.read_text("utf-8").replace("/opt/lowtide/.venv/bin/lowtide", LOWTIDE)
    assert LOWTIDE in text
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    done = run_command([verify, "verify", "--man=no", str(copy)], timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_systemd_starts_a_killed_up_again_beside_its_machines(folder: Path):
    if not SYSTEMD.exists():
        return  # as above; test_programs.py kills `lowtide up` and starts it again by hand
    units, port = folder / "units", free_port()
    (units / f"{UNIT.name}.d").mkdir(parents=True)
    shutil.copy(UNIT, units)
    told = DROP_IN.format(lowtide=LOWTIDE, folder=folder, port=port)
    (units / f"{UNIT.name}.d" / "here.conf").write_text(told)
    output, key = folder / "up.out", folder / "state" / "admin.key"
    with own_systemd(units, UNIT.name) as systemd:
        await_ready(port, output)
        signed_in = {"Authorization": f"Bearer {key.read_text('ascii').strip()}"}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1", headers=signed_in, timeout=60
        ) as api:
            job = api.post("/jobs", json=JOB).raise_for_status().json()["id"]
            wait_until(lambda: state_of(api, job) == "running", "it runs", START_SECONDS)
            before = systemd.shown(UNIT.name, "MainPID", "NRestarts")
            systemd.systemctl("kill", "--kill-who=main", "--signal=KILL", UNIT.name)
            wait_until(
                lambda: systemd.shown(UNIT.name, "NRestarts") != {"NRestarts": "0"}, "again", 60.0
            )
            wait_until(lambda: output.read_text().count("\nready http") == 2, "ready", 180.0)
            await_ready(port, output)
            assert before["NRestarts"] == "0"
            assert systemd.shown(UNIT.name, "MainPID")["MainPID"] != before["MainPID"]
            assert "stopped what an earlier run left behind" in output.read_text()
            assert state_of(api, job) == "running"
            [attempt] = api.get(f"/jobs/{job}/attempts").raise_for_status().json()["items"]
            assert attempt["state"] == "running", "its machine was never touched"
        systemd.systemctl("stop", UNIT.name)
        ended = systemd.shown(UNIT.name, "ActiveState", "Result")
        assert ended == {"ActiveState": "inactive", "Result": "success"}
        assert processes_of(folder / "state") == []


def await_ready(port: int, output: Path) -> None:
    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    def said() -> str:
        return output.read_text("utf-8", "replace")[-2_000:] if output.exists() else "nothing"

    try:
        wait_until(answers, "the api is ready", START_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}; it has said: {said()}") from None


def state_of(api: httpx.Client, job: str) -> Any:
    return api.get(f"/jobs/{job}").raise_for_status().json()["state"]


def processes_of(folder: Path) -> list[str]:
    """Command lines of the processes that work below a folder, or name one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in line or (process / "cwd").readlink().is_relative_to(folder):
                found.append(line)
        except OSError:
            continue
    return found
