"""The installed command on a real terminal: it asks, draws in place, and Ctrl-C leaves the job."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.storage.schema import tables
from tests.support.api.people_api import PeopleApi, people_api, settings_for
from tests.support.sources.source_tree import ROOT

PROGRAM = "from app.cli.main import main; main()"
SECONDS = 60.0


class Screen:
    """A command on a pseudo-terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.seen = ""

    def until(self, text: str) -> str:
        """Read until the text is on the screen; fails when it does not come in time."""
        ends = time.monotonic() + SECONDS
        while text not in self.seen:
            assert time.monotonic() < ends, f"{text!r} never came: {self.seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._master, 65_536).decode("utf-8", "replace")
                except OSError:  # the other side has closed
                    assert text in self.seen, f"{text!r} never came: {self.seen!r}"
        return self.seen

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def ended(self) -> int:
        return self.process.wait(timeout=SECONDS)

    def interrupted(self) -> int:
        """Ctrl-C, and once more where Python was just about to read: it then waits for a key."""
        for _ in range(5):
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(timeout=SECONDS / 5)
        return self.ended()


@pytest.fixture
def api(database_url: str, valkey_url: str, tmp_path: Path) -> Iterator[PeopleApi]:
    with people_api(settings_for(database_url, valkey_url, tmp_path / "state")) as running:
        yield running


@contextmanager
def lowtide(api: PeopleApi, home: Path, *arguments: str) -> Iterator[Screen]:
    """The command on a terminal, ended at the end."""
    master, slave = pty.openpty()
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "LOWTIDE_SERVER_URL": api.url,
        "LOWTIDE_API_KEY": api.key,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        cwd=home,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Screen(process, master)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=SECONDS)
        os.close(master)


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)\n")
    path = tmp_path / "job.yaml"
    path.write_text("name: asked\nrun: python train.py\nworkdir: code\n")
    return str(path)


def test_no_is_an_answer(api: PeopleApi, tmp_path: Path, spec: str):
    with lowtide(api, tmp_path, "submit", spec) as screen:
        assert "when a pool fits" in screen.until("Submit? [Y/n]")
        screen.type("n\n")
        screen.until("Nothing was submitted.")
        assert screen.ended() == 130
    assert api.count(tables.jobs) == 0


@pytest.mark.full
def test_ctrl_c_at_the_question_submits_nothing(api: PeopleApi, tmp_path: Path, spec: str):
    with lowtide(api, tmp_path, "submit", spec) as screen:
        screen.until("Submit? [Y/n]")
        assert screen.interrupted() == 130
    assert api.count(tables.jobs) == 0


def test_ctrl_c_while_following_leaves_the_job(api: PeopleApi, tmp_path: Path, spec: str):
    with lowtide(api, tmp_path, "submit", spec) as screen:
        screen.until("Submit? [Y/n]")
        screen.type("\n")
        seen = screen.until("\r\x1b[K")  # the line at the bottom, drawn in place
        assert "asked is submitted" in seen.replace("\x1b[1m", "").replace("\x1b[0m", "")
        screen.process.send_signal(signal.SIGINT)
        screen.until("asked continues in the background")
        assert screen.ended() == 130
    assert api.client.get("/api/v1/jobs/asked").json()["state"] == "queued"


def test_a_trial_launch_rents_only_after_a_yes_and_ctrl_c_cancels_it(
    api: PeopleApi, tmp_path: Path
):
    """The question comes after the price, and its answer is no unless somebody says yes."""
    _offered(api)
    for answer in ("\n", "n\n"):
        with lowtide(api, tmp_path, "doctor", "--launch") as screen:
            seen = screen.until("Rent it now? [y/N]")
            assert "p3.2xlarge spot, 1 × V100 16 GB, $0.918 an hour" in seen
            assert "the job's budget" in seen
            screen.type(answer)
            screen.until("Nothing was rented.")
            assert screen.ended() == 130
    assert api.count(tables.jobs) == 0
    with lowtide(api, tmp_path, "doctor", "--launch") as screen:
        screen.until("Rent it now? [y/N]")
        screen.type("y\n")
        screen.until("rent … ")
        screen.process.send_signal(signal.SIGINT)
        screen.until("all its machines are released")
        assert screen.ended() == 130
    (job,) = api.client.get("/api/v1/jobs").json()["items"]
    assert job["state"] == "cancelled"


def _offered(api: PeopleApi) -> None:
    """One pool with a price, as the worker reads it."""
    pool = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.SPOT)
    now = datetime.now(UTC)
    hardware = Hardware("V100", 1, 16, 8, 61)
    offer = Offer(pool, hardware, 918_000, 3_060_000, "ec2", now, "a test", 4)
    with api.parts.runtime.begin() as uow:
        uow.offers.record([offer], (), now)


def test_watch_draws_a_screen_and_ends_with_the_job(api: PeopleApi, tmp_path: Path):
    api.submitted(name="watched")
    with lowtide(api, tmp_path, "watch", "watched") as screen:
        screen.until("queued")
        assert api.client.post("/api/v1/jobs/watched/cancel", json={}).status_code == 200
        screen.until("watched \x1b[2mcancelled")
        assert screen.ended() == 1
    with lowtide(api, tmp_path, "jobs", "--no-color") as screen:
        assert "\x1b" not in screen.until("watched")
        assert screen.ended() == 0


def test_help_is_quick_because_little_is_loaded():
    loaded = "import sys, app.cli.main; print(sorted({'httpx', 'rich', 'sqlalchemy', 'fastapi'}"
    done = subprocess.run(
        [sys.executable, "-c", f"{loaded} & set(sys.modules)))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == "[]\n"
