"""Specs and archives are read in processes with limits: these end, everybody else goes on."""

import hashlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from app.adapters.input_checks.archive_checker import ArchiveChecker
from app.adapters.input_checks.spec_reader import SpecReader, SpecUnreadable
from app.adapters.input_checks.workdir_check import CHECK_SECONDS_MAX
from app.domain.units.durations import format_duration
from app.domain.units.errors import SpecError
from app.storage.session.engine import make_engine
from tests.bench.bench_environment import API_APP, api_settings, serve
from tests.support.api.agent_api import wait_until
from tests.support.api.hostile_bodies import archive_of, sparse_terabyte, zeros_and_an_end
from tests.support.api.people_api import (
    PeopleApi,
    make_key,
    make_project,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.postgres import PostgresForTests

YAML = {"Content-Type": "application/yaml"}
GOOD = b"trainer: {model: mlp, data: digits, steps: 100}\n"


@pytest.fixture
def reader() -> Iterator[SpecReader]:
    found = SpecReader(seconds_max=60)
    yield found
    found.close()


# --- job specs ----------------------------------------------------------------------------------


def test_specs_are_parsed_by_one_child_with_limits(reader: SpecReader):
    assert reader.child_pid is None
    assert reader.parse(b"a: [1, 2.5, ~, x]\n", "yaml") == {"a": [1, 2.5, None, "x"]}
    pid = reader.child_pid
    with pytest.raises(SpecError, match="line 2, column 1: the key 'a' is written twice"):
        reader.parse(b"a: 1\na: 2\n", "yaml")
    assert reader.parse('{"é": "\\u00e9"}'.encode(), "json") == {"é": "é"}
    assert reader.child_pid == pid
    limits = Path(f"/proc/{pid}/limits").read_text("utf-8").splitlines()
    [memory] = [line.split()[3] for line in limits if line.startswith("Max address space")]
    assert memory == str(512 << 20)
    assert os.getpriority(os.PRIO_PROCESS, pid or 0) > os.getpriority(os.PRIO_PROCESS, 0)


def test_a_child_that_was_killed_is_replaced(reader: SpecReader):
    reader.parse(b"a: 1\n", "yaml")
    first = reader.child_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert reader.parse(b"a: 2\n", "yaml") == {"a": 2}
    assert reader.child_pid != first


def test_a_child_that_hangs_is_killed_at_its_limit():
    reader = SpecReader(seconds_max=1)
    try:
        while reader.child_pid is None:
            try:
                reader.parse(b"a: 1\n", "yaml")
            except SpecUnreadable:  # a starved machine: the limit was over before the start
                continue
        hung = reader.child_pid
        os.kill(hung, signal.SIGSTOP)
        with pytest.raises(SpecUnreadable, match="within 1s"):
            reader.parse(b"a: 2\n", "yaml")
        assert reader.child_pid is None
        assert not Path(f"/proc/{hung}").exists()
    finally:
        reader.close()


def test_while_a_spec_is_parsed_others_are_served_and_a_full_queue_says_so(api: PeopleApi):
    """The child is held in the middle: what waits for it is bounded, and nothing else waits."""

    def submit() -> httpx.Response:
        return httpx.post(f"{api.url}/api/v1/jobs", content=GOOD, headers=signed_in, timeout=60)

    signed_in = {**YAML, "Authorization": f"Bearer {api.key}"}
    assert submit().status_code == 201
    pid = api.parts.specs.child_pid
    assert pid is not None
    turns = api.parts.spec_turns
    with ThreadPoolExecutor(40) as people:
        os.kill(pid, signal.SIGSTOP)
        try:
            waiting = [people.submit(submit) for _ in range(33)]
            wait_until(lambda: turns.waiting == 32)
            refused = submit()
            assert httpx.get(f"{api.url}/healthz").status_code == 200
            assert api.submit().status_code == 201, "short JSON needs no child"
            assert not any(one.done() for one in waiting)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [one.result().status_code for one in waiting] == [201] * 33
    assert_refused(refused, 503)
    assert int(refused.headers["retry-after"]) >= 1
    assert "Too many job specs" in refused.json()["detail"]


def test_no_child_outlives_the_api(
    postgres: PostgresForTests, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
):
    """Not even one that is killed: its child reads the end of its requests."""
    folder = tmp_path_factory.mktemp("served")
    url = postgres.clone()
    engine = make_engine(url)
    key = make_key(engine, make_project(engine, "admin"))
    engine.dispose()
    with serve(API_APP, folder, "/readyz", api_settings(url, valkey_url, folder)) as program:
        headers = {**YAML, "Authorization": f"Bearer {key}"}
        path = f"{program.url}/api/v1/jobs"
        assert httpx.post(path, content=GOOD, headers=headers, timeout=60).status_code == 201
        tasks = Path(f"/proc/{program.pid}/task").iterdir()
        children = [pid for one in tasks for pid in (one / "children").read_text().split()]
        assert len(children) == 1
        os.kill(program.pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{children[0]}").exists())


# --- archives -----------------------------------------------------------------------------------


def put(api: PeopleApi, content: bytes) -> httpx.Response:
    digest = hashlib.sha256(content).hexdigest()
    headers = {"Authorization": f"Bearer {api.key}"}
    path = f"{api.url}/api/v1/workdirs/sha256:{digest}"
    return httpx.put(path, content=content, headers=headers, timeout=120)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        pytest.param(
            lambda: archive_of(1_000_000), "more than 100,000 members", marks=pytest.mark.full
        ),
        pytest.param(
            lambda: archive_of(100_050), "more than 100,000 members", marks=pytest.mark.full
        ),
        (sparse_terabyte, "more than 4 GiB"),
    ],
    ids=["a million members", "too many empty members", "a sparse terabyte"],
)
def test_an_archive_over_a_limit_is_refused_by_name(
    api: PeopleApi, made: Callable[[], bytes], words: str
):
    assert_refused(put(api, made()), 422, words, ".gitignore", field="workdir")


def test_a_check_is_killed_when_its_time_is_over():
    with tempfile.TemporaryFile() as file:
        file.write(zeros_and_an_end(3_072))
        file.flush()
        with pytest.raises(SpecError, match=r"longer than 0\.2s"):
            ArchiveChecker(seconds_max=0.2).check(file)


def test_a_check_has_so_much_processor_time_and_no_more():
    with tempfile.TemporaryFile() as file, ThreadPoolExecutor(1) as people:
        file.write(zeros_and_an_end(3_072))
        file.flush()
        checking = people.submit(ArchiveChecker().check, file)
        wait_until(lambda: processor_limits() == [str(CHECK_SECONDS_MAX)])
        [child] = checkers()
        os.kill(int(child), signal.SIGXCPU)  # as the system does when it is used up
        with pytest.raises(
            SpecError, match=f"more than {format_duration(CHECK_SECONDS_MAX)} of processor"
        ):
            checking.result()


def checkers() -> list[str]:
    """The children of this process that check an archive."""
    tasks = Path("/proc/self/task").iterdir()
    children = [pid for one in tasks for pid in (one / "children").read_text().split()]
    return [
        pid for pid in children if b"workdir_check" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def processor_limits() -> list[str]:
    """Of those children, in seconds."""
    lines = [
        line
        for pid in checkers()
        for line in Path(f"/proc/{pid}/limits").read_text("utf-8").splitlines()
    ]
    return [line.split()[3] for line in lines if line.startswith("Max cpu time")]


@pytest.mark.full
def test_while_an_archive_is_checked_others_are_served(api: PeopleApi):
    bomb = zeros_and_an_end(512)
    with ThreadPoolExecutor(2) as people:
        uploads = [people.submit(put, api, bomb) for _ in range(2)]
        answered = 0
        while not all(one.done() for one in uploads):
            assert httpx.get(f"{api.url}/healthz", timeout=60).status_code == 200
            assert api.submit().status_code == 201
            answered += 1
    assert sorted(one.result().status_code for one in uploads) == [200, 201]
    assert answered > 2
