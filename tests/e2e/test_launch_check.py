"""`lowtide doctor --launch` over the local cloud: each way it can end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.adapters.providers.local.machines import power_off
from tests.support.cli.command_line import CommandLine, Ran
from tests.support.deployment.control_plane import (
    LOWTIDE,
    ControlPlane,
    Document,
    clean_environment,
    running_control_plane,
)

STAGES = ["rent", "boot", "register", "train", "checkpoint", "give back"]
WAIT_SECONDS = 60.0


def command_line(plane: ControlPlane, home: Path) -> CommandLine:
    """A person's own terminal, elsewhere, with a key."""
    return CommandLine(home, settings(plane))


def settings(plane: ControlPlane) -> dict[str, str]:
    key = (plane.state_dir / "admin.key").read_text("ascii").strip()
    return {"LOWTIDE_SERVER_URL": plane.url, "LOWTIDE_API_KEY": key}


def launch(plane: ControlPlane, home: Path, *options: str, exit_code: int = 0) -> Document:
    """The JSON of one trial launch; its job's books are looked at with all others."""
    ran = command_line(plane, home).run("doctor", "--launch", "-y", "--json", *options)
    assert ran.exit_code == exit_code, ran
    told: Document = ran.json
    plane.job_ids.append(plane.get(f"/jobs/{told['job']}")["id"])
    assert told["left"] == []
    return told


def by_stage(told: Document) -> dict[str, Document]:
    return {one["stage"]: one for one in told["stages"]}


def instances(plane: ControlPlane, job: str) -> list[Document]:
    found: list[Document] = plane.get("/instances", job=job, live=False)["items"]
    return found


@contextmanager
def playing_machines(plane: ControlPlane, play: Any) -> Iterator[None]:
    """Whatever `play(machine)` does to the next machine that boots, beside what the test does."""
    over = threading.Event()
    known = {one["id"] for one in plane.get("/instances", live=False)["items"]}

    def look() -> None:
        while not over.wait(0.1):
            for one in plane.get("/instances", live=True)["items"]:
                if one["id"] not in known and one["launched_at"] is not None:
                    play(one)
                    return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(WAIT_SECONDS)


def user_data(plane: ControlPlane, machine_id: str) -> dict[str, str]:
    """What the machine was started with, from the local cloud's own record."""
    for line in (plane.state_dir / "cloud/cloud.jsonl").read_text("utf-8").splitlines():
        with contextlib.suppress(ValueError):
            found = _record_of(json.loads(line.strip("\0")), machine_id)
            if found is not None:
                return dict(found["user_data"])
    raise AssertionError(f"no record of {machine_id}")


def _record_of(document: Any, machine_id: str) -> Any:
    if isinstance(document, dict):
        if document.get("machine_id") == machine_id and document.get("user_data"):
            return document
        return next((f for v in document.values() if (f := _record_of(v, machine_id))), None)
    if isinstance(document, list):
        return next((f for v in document if (f := _record_of(v, machine_id))), None)
    return None


def trial_jobs(plane: ControlPlane) -> set[str]:
    """Ids of the jobs of every trial launch."""
    return {row["id"] for row in plane.get("/jobs", label="lowtide=doctor", limit=100)["items"]}


def region_at_hand(plane: ControlPlane) -> str:
    """One whose V100s can start now: pools rest after what other tests did to their machines."""

    def found() -> list[str]:
        offers = plane.get("/offers", gpu="V100")["items"]
        now = datetime.now(UTC)
        return sorted(
            {
                offer["region"]
                for offer in offers
                if (until := offer["cool_until_at"]) is None or datetime.fromisoformat(until) < now
            }
        )

    plane.wait(lambda: bool(found()), "a V100 that can be rented", seconds=600)
    return found()[0]


def test_one_step_goes_through_every_stage_and_leaves_nothing(plane: ControlPlane, tmp_path: Path):
    cli = command_line(plane, tmp_path)
    before = trial_jobs(plane)
    unasked = cli.fails(2, "doctor", "--launch")
    assert "add -y to run without a prompt" in unasked.errors
    assert "the cheapest that fits" in unasked.out, "the price is said before anything is asked"
    assert "the job's budget" in unasked.out
    nowhere = cli.fails(2, "doctor", "--launch", "-y", "--region", "mars-1")
    assert "nothing is offered in mars-1; there are " in nowhere.errors
    assert (
        "Nothing can start now" in cli.fails(2, "doctor", "--launch", "-y", "--gpu", "B300").errors
    )
    assert "--timeout '5'" in cli.fails(2, "doctor", "--launch", "-y", "--timeout", "5").errors
    assert trial_jobs(plane) == before, "nothing was submitted"

    region = region_at_hand(plane)
    ran = cli.ok("doctor", "--launch", "-y", "--gpu", "V100", "--region", region)
    told = [line[2:12].strip() for line in ran.out.splitlines() if line.startswith("✓")]
    assert told == STAGES, ran.out
    assert "It works." in ran.out
    assert "one step done: Python 3." in ran.row("train"), "the machine's own words are shown"
    [job_id] = trial_jobs(plane) - before
    job = plane.get(f"/jobs/{job_id}")
    plane.job_ids.append(job["id"])
    assert job["name"].startswith("doctor-")
    assert job["spec"]["infra"] == [f"local/{region}"]
    assert job["money"]["budget_microusd"] > 0
    assert job["deadline"]["on_deadline"] == "stop"
    assert job["progress"]["committed_step"] == 1
    assert all(one["ended_at"] for one in instances(plane, job["id"]))


@pytest.mark.full
def test_two_machines_meet(plane: ControlPlane, tmp_path: Path):
    told = launch(plane, tmp_path, "--nodes", "2", "--on-demand")
    assert told["ok"]
    assert told["plan"]["pool"].endswith("/on_demand")
    stages = by_stage(told)
    assert list(stages) == STAGES
    assert all(one["ok"] and one["seconds"] >= 0 for one in stages.values())
    assert "2 machines reach each other" in stages["train"]["sentence"]
    assert len(instances(plane, told["job"])) == 2


@pytest.mark.full
def test_a_machine_whose_boot_fails_is_told_with_its_own_words(
    rough_plane: ControlPlane, tmp_path: Path
):
    """The machine says what its boot script says, then powers off, as that does."""

    def fail(machine: Document) -> None:
        machine_id = machine["provider_instance_id"]
        token = user_data(rough_plane, machine_id)["LOWTIDE_LAUNCH_TOKEN"]
        body = {"launch_token": token, "message": "this image has no Python 3.11 or newer"}
        url = f"{rough_plane.url}/agent/v1/boot-failures"
        assert httpx.post(url, json=body).status_code == 204
        assert power_off.main(str(rough_plane.state_dir / "cloud"), machine_id) == 0

    with playing_machines(rough_plane, fail):
        told = launch(rough_plane, tmp_path, exit_code=1)
    stages = by_stage(told)
    assert stages["rent"]["ok"]
    assert stages["boot"]["ok"] is False
    assert "no Python 3.11 or newer" in stages["boot"]["sentence"]
    assert "docs/machines.md" in stages["boot"]["remedy"]
    assert [stages[name]["ok"] for name in ("register", "train", "checkpoint")] == [None] * 3
    assert stages["give back"]["ok"], "the machine that failed is gone, and no other was left"
    assert rough_plane.get(f"/jobs/{told['job']}")["state"] == "cancelled"


@pytest.mark.full
def test_a_machine_that_powers_off_without_a_word(rough_plane: ControlPlane, tmp_path: Path):
    def die(machine: Document) -> None:
        folder = str(rough_plane.state_dir / "cloud")
        assert power_off.main(folder, machine["provider_instance_id"]) == 0

    with playing_machines(rough_plane, die):
        told = launch(rough_plane, tmp_path, exit_code=1)
    boot = by_stage(told)["boot"]
    assert boot["ok"] is False
    assert "powered off before its agent called" in boot["sentence"]
    assert "console.log" in boot["remedy"]


@pytest.mark.full
def test_when_the_time_is_up_the_machine_is_given_back(rough_plane: ControlPlane, tmp_path: Path):
    told = launch(rough_plane, tmp_path, "--timeout", "1s", exit_code=1)
    register = by_stage(told)["register"]
    assert register["ok"] is False
    assert "--timeout of 1s is over: nothing was heard from " in register["sentence"]
    assert "LOWTIDE_PUBLIC_URL" in register["remedy"]
    assert by_stage(told)["give back"]["ok"]
    assert all(one["ended_at"] for one in instances(rough_plane, told["job"]))


@pytest.mark.full
def test_a_machine_that_never_registers(tmp_path: Path):
    slow = {"LOWTIDE_LOCAL_BOOT_SECONDS": "600", "LOWTIDE_REGISTRATION_TIMEOUT_SECONDS": "2"}
    with running_control_plane(slow) as silent:
        ran = command_line(silent, tmp_path).run("doctor", "--launch", "-y")
        assert ran.exit_code == 1, ran
        [line] = [line for line in ran.out.splitlines() if line.startswith("✗")]
        assert line.startswith("✗ register")
        assert "nothing was heard from " in line
        assert "→ cloud/machines/" in ran.out
        assert "✓ give back" in ran.out
        assert silent.get("/instances", live=True)["items"] == []


@pytest.mark.full
def test_ctrl_c_gives_the_machine_back_and_says_so(rough_plane: ControlPlane, tmp_path: Path):
    began = threading.Event()
    with playing_machines(rough_plane, lambda _: began.set()):
        process = subprocess.Popen(
            [LOWTIDE, "doctor", "--launch", "-y"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(HOME=str(tmp_path), **settings(rough_plane)),
        )
        assert began.wait(WAIT_SECONDS)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130, (out, errors)
    assert "Ctrl-C: releasing the machine" in errors
    assert "all its machines are released" in errors
    name = out.split(" is submitted")[0].split()[-1]
    job = rough_plane.get(f"/jobs/{name}")
    rough_plane.job_ids.append(job["id"])
    assert job["state"] == "cancelled"
    assert all(one["ended_at"] for one in instances(rough_plane, name))


def test_help_names_every_option(tmp_path: Path):
    shown: Ran = CommandLine(tmp_path, {}).ok("doctor", "--help")
    for option in (
        "--launch",
        "--gpu",
        "--region",
        "--infra",
        "--nodes",
        "--on-demand",
        "--timeout",
    ):
        assert option in shown.out
