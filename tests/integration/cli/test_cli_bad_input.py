"""Bad input at the command line: one sentence with what to do, one exit code, nothing half done."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.storage.schema import tables
from tests.support.cli.cli_world import TRAINER, World
from tests.support.servers.http_server import QuietHandler, http_server


@contextmanager
def another_service(status: int, kind: str, body: bytes) -> Iterator[str]:
    """Something that is no Lowtide, and answers whatever is asked alike."""

    class Handler(QuietHandler):
        def serve(self) -> None:
            self.body()
            self.answer(status, body, {"Content-Type": kind})

    with http_server(Handler) as url:
        yield url


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("deadline: tomorrow", "deadline: 'tomorrow' is neither a duration nor a time; write 36h,"),
        ("infra: azure", "infra: 'azure' is not a cloud that Lowtide can rent from; write one of"),
        ("nodes: 0", "nodes: must be between 1 and 64, not 0"),
        ("priority: 500", "priority: must be at most 100, not 500"),
        ("secrets: [WANDB_API_KEY]", "secrets.WANDB_API_KEY: the project "),
        ("secrets: {WANDB_API_KEY: azure}", "secrets: names secrets of the project, never their"),
        ("notify: https://a.example/x", "notify: has a text that is no name of a channel; write ["),
        ("keep_on_failure: 30m", "keep_on_failure: not available yet; the logs are kept:"),
        ("image: Not An Image", "image: 'Not An Image' is not accepted; write an image like"),
        ("workdir: /proc/x", "workdir: /proc/x is not a folder; name one that exists"),
    ],
)
def test_a_field_that_makes_no_sense_is_told_with_what_to_write(
    world: World, change: str, told: str
):
    before = world.api.count(tables.jobs)
    errors = world.cli.fails(2, "submit", world.spec(f"{TRAINER}{change}\n"), "-d").errors
    assert told in errors
    assert errors.count("azure") < 2
    assert len(errors.strip().splitlines()) <= 2
    assert world.api.count(tables.jobs) == before


def test_what_is_no_yaml_is_shown_with_its_line(world: World):
    spec = world.spec("name: tour\ntrainer: {model: cnn, data: digits\nnodes: 2\n")
    lines = world.cli.fails(2, "submit", spec).errors.splitlines()
    assert lines[1].startswith("  line 3, column ")
    assert lines[2] == "  3 | nodes: 2"


def test_a_quote_that_is_never_closed_is_told_with_the_line_where_it_begins(world: World):
    told = world.cli.fails(2, "submit", world.spec('name: tour\nrun: "true\nnodes: 1\n')).errors
    assert "not valid YAML: found unexpected end of stream" in told
    assert "that begins in line 2" in told


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("user", "as in --by label:user"),
        ("label", "--by label: name the label, as in --by label:t"),
    ],
)
def test_a_group_of_costs_that_is_none_leads_to_the_label(world: World, by: str, told: str):
    assert told in world.cli.fails(2, "cost", "--by", by).errors


def test_a_time_that_is_none_is_refused_in_our_words(world: World):
    for path, told in (
        ("/costs?from=yesterday", "from: write a day, as in 2026-01-31"),
        ("/jobs?since=yesterday", "since: write a time with its zone, as in 2026-01-31T12:00:00Z"),
    ):
        answer = world.api.client.get(f"/api/v1{path}")
        assert (answer.status_code, answer.json()["detail"]) == (422, told)
    told = world.cli.fails(2, "jobs", "--since", "yesterday").errors
    assert "--since 'yesterday': write how long ago (90s, 15m, 36h, 2d) or a time like" in told


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (200, "application/json", b'{"hello": 1}'),
        (200, "application/json", b"[1]"),
        (200, "text/html", b"<h1>It works!</h1>"),
        (404, "application/json", b'{"detail": "Not Found"}'),
        (401, "application/json", b'{"error": "who are you"}'),
        (302, "text/html", b""),
    ],
)
def test_the_address_of_another_service_is_told_as_such(
    world: World, status: int, kind: str, body: bytes
):
    with another_service(status, kind, body) as url:
        world.cli.variables["LOWTIDE_SERVER_URL"] = url
        told = world.cli.fails(3, "jobs").errors
    assert f"{url} " in told
    assert "it is not the address of a Lowtide api; correct LOWTIDE_SERVER_URL" in told


def test_an_address_with_a_path_too_many_is_told_without_it(world: World):
    url = world.api.url
    world.cli.variables["LOWTIDE_SERVER_URL"] = f"{url}/nope"
    told = world.cli.fails(3, "jobs").errors
    assert f"is not the address of a Lowtide api; write it without a path, as {url}" in told


def test_a_state_folder_that_cannot_be_is_bad_input(world: World, tmp_path: Path):
    told = world.cli.fails(2, "up", "--state-dir", "/proc/x", "--port", "0").errors
    assert "the state folder /proc/x cannot be made (no folder can be made there); name " in told
    assert "--state-dir or LOWTIDE_STATE_DIR" in told
    (tmp_path / "file").write_text("")
    told = world.cli.fails(2, "up", "--state-dir", str(tmp_path / "file"), "--port", "0").errors
    assert "is not a folder; name another with --state-dir" in told


@pytest.mark.parametrize("command", ["doctor", "status", "down"])
def test_who_only_looks_at_a_state_folder_that_cannot_be_says_so(
    world: World, command: str, tmp_path: Path
):
    told = world.cli.fails(2, command, "--state-dir", "/proc/x").errors
    assert told.splitlines() == [
        "Error: the state folder /proc/x cannot be made (no folder can be made there); name "
        "another with --state-dir or LOWTIDE_STATE_DIR"
    ]
    (tmp_path / "file").write_text("")
    told = world.cli.fails(2, command, "--state-dir", str(tmp_path / "file" / "x")).errors
    assert "cannot be made (Not a directory); name another with --state-dir" in told


@pytest.mark.parametrize("command", ["status", "down"])
def test_a_state_folder_is_not_made_by_looking_for_it(world: World, command: str, tmp_path: Path):
    world.cli.run(command, "--state-dir", str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()
    assert not list(tmp_path.glob(".lowtide-*"))


def test_a_demo_in_a_state_folder_that_cannot_be_is_bad_input(world: World):
    told = world.cli.fails(2, "demo", "--state-dir", "/proc/x", "--port", "0").errors
    assert told.startswith("demo: the state folder /proc/x cannot be made")
    assert "name another with --state-dir or LOWTIDE_STATE_DIR" in told
    assert len(told.splitlines()) == 1


def test_down_in_the_folder_of_another_user_is_bad_input(world: World):
    """As root nothing is out of reach, so a user who may do nothing asks."""
    # Python may lie where that user cannot read, so what `down` imports late is imported first.
    program = "import os, psutil\nfrom app.cli.main import main\nos.setuid(65534)\nmain()\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        ran = subprocess.run(
            [sys.executable, "-c", program, "down", "--state-dir", folder],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert ran.returncode == 2
    assert ran.stderr == (
        f"Error: the state folder {folder} cannot be written in by this user; run `lowtide down "
        f"--state-dir {folder}` as the user who ran `lowtide up`, or name another folder with "
        "--state-dir\n"
    )


def test_a_dead_address_is_told_in_words(world: World):
    world.cli.variables["LOWTIDE_SERVER_URL"] = "http://127.0.0.1:9"
    told = world.cli.fails(3, "jobs").errors
    assert "the api at http://127.0.0.1:9 cannot be reached (Connection refused)." in told
    world.cli.variables["LOWTIDE_SERVER_URL"] = "http://127.0.0.1:99999"
    told = world.cli.fails(2, "jobs").errors
    assert "'http://127.0.0.1:99999' is not an address: Port out of range 0-65535" in told
    assert "; correct LOWTIDE_SERVER_URL" in told


def test_a_state_folder_of_another_user_is_bad_input():
    """As root nothing is out of reach, so a user who may do nothing asks."""
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from app.adapters.embedded.processes.state_folder import open_state_folder\n"
        "os.setuid(65534)\n"
        "open_state_folder(Path(sys.argv[1]))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        ran = subprocess.run(
            [sys.executable, "-c", program, folder],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert "StateFolderUnusableError: the state folder" in ran.stderr
    assert "cannot be written in by this user; name another with --state-dir" in ran.stderr


def test_a_verb_of_another_tool_leads_to_ours(world: World):
    for word, meant in (
        ("stop", "cancel"),
        ("ls", "jobs"),
        ("cancle", "cancel"),
        ("run", "submit"),
    ):
        told = world.cli.fails(2, word).errors
        assert "Did you mean" in told
        assert meant in told
