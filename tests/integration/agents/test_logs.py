"""Logs: what machines append, where it lies, and how it is read back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from app.domain.deployment.credentials import digest
from app.domain.units.errors import NotFound
from app.orchestration.agents import append_logs
from app.orchestration.agents.read_logs import list_logs, read_log
from app.orchestration.frame.runtime import Runtime
from app.storage.schema import tables
from tests.support.api.agent_api import ServedApi, SpeakingAgent
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import change_rows, rows_of

STREAM = "attempt-0001/node-0.log"
MIB = 1 << 20


@pytest.fixture
def agents(api: ServedApi) -> list[SpeakingAgent]:
    return api.agents(2)


@pytest.fixture
def agent(agents: list[SpeakingAgent]) -> SpeakingAgent:
    return agents[0]


def _whole(runtime: Runtime, agent: SpeakingAgent) -> bytes:
    return read_log(runtime, agent.gang.job_id, STREAM, 0).content


def test_bytes_are_taken_where_the_stream_ends_and_nowhere_else(
    agent: SpeakingAgent, runtime: Runtime
):
    assert agent.append(STREAM, 0, b"hello ").json() == {"next_offset": 6, "kept": True}
    for wrong in (0, 5, 7):
        refused = agent.append(STREAM, wrong, b"hello ")
        assert refused.status_code == 409
        assert refused.json() == {
            "type": "urn:lowtide:problem:log-offset",
            "title": "The stream does not end there",
            "status": 409,
            "detail": f"{STREAM} has 6 bytes; send what follows them.",
            "next_offset": 6,
        }
    assert agent.append(STREAM, 6, b"").json()["next_offset"] == 6
    assert agent.append(STREAM, 6, b"world").json()["next_offset"] == 11
    assert _whole(runtime, agent) == b"hello world"
    (stream,) = list_logs(runtime, agent.gang.job_id)
    assert (stream.stream, stream.size_bytes) == (STREAM, 11)
    assert stream.instance_id == agent.instance_id


def test_a_crash_between_the_store_and_the_index_loses_nothing(
    agent: SpeakingAgent, runtime: Runtime
):
    key = f"logs/{agent.gang.job_id}/{STREAM}/{0:012d}"
    runtime.object_store.put_new(key, b"stored, not indexed\n")
    assert agent.append(STREAM, 0, b"stored, not indexed\n").status_code == 200
    assert _whole(runtime, agent) == b"stored, not indexed\n"


def test_bytes_cut_otherwise_after_a_crash_are_kept_too(agent: SpeakingAgent, runtime: Runtime):
    key = f"logs/{agent.gang.job_id}/{STREAM}/{0:012d}"
    runtime.object_store.put_new(key, b"stored")
    content = b"stored, and more\n"
    # A second crash, after this content was stored under its own key.
    runtime.object_store.put_new(f"{key}-{digest(content.decode())[:32]}", content)
    assert agent.append(STREAM, 0, content).json()["next_offset"] == len(content)
    assert _whole(runtime, agent) == content


def test_the_same_bytes_sent_twice_at_once_are_there_once(agent: SpeakingAgent, runtime: Runtime):
    start = threading.Barrier(6)

    def send(_: int) -> int:
        start.wait()
        try:
            done = append_logs.append_log(runtime, digest(agent.credential), STREAM, 0, b"once\n")
        except append_logs.LogOffsetRefused as refusal:
            return refusal.next_offset
        return done.next_offset

    with ThreadPoolExecutor(6) as threads:
        assert set(threads.map(send, range(6))) == {5}
    assert _whole(runtime, agent) == b"once\n"


def test_reading_crosses_chunks_and_counts_from_the_end(agent: SpeakingAgent, runtime: Runtime):
    job_id, whole = agent.gang.job_id, b""
    for number in range(30):
        piece = b"%d " % number * (number + 1)
        assert agent.append(STREAM, len(whole), piece).status_code == 200
        whole += piece
    for start, limit in ((0, 10), (3, 200), (100, 10_000), (len(whole) - 1, 5), (17, 0)):
        part = read_log(runtime, job_id, STREAM, start, limit)
        assert part.content == whole[start : start + limit]
        assert part.next_offset == start + len(part.content)
        assert part.size_bytes == len(whole)
    assert read_log(runtime, job_id, STREAM, -7).content == whole[-7:]
    assert read_log(runtime, job_id, STREAM, -(10**9)).content == whole
    beyond = read_log(runtime, job_id, STREAM, len(whole) + 50)
    assert (beyond.content, beyond.next_offset) == (b"", len(whole) + 50)
    with pytest.raises(NotFound):
        read_log(runtime, job_id, "attempt-0009/node-0.log", 0)


def test_a_stream_is_written_by_one_machine(agents: list[SpeakingAgent], runtime: Runtime):
    first, second = agents
    assert first.append(STREAM, 0, b"mine").status_code == 200
    assert second.append(STREAM, 4, b"theirs").status_code == 403
    assert second.append("attempt-0001/node-1.log", 0, b"theirs").status_code == 200
    assert _whole(runtime, first) == b"mine"


@pytest.mark.parametrize(
    "name",
    ["", "../../etc/passwd.log", "/abs.log", "a/b/c/d.log", "A.log", "node-0", "x" * 41 + ".log",
     "a//b.log", ".log", "a\n.log"],
)  # fmt: skip
def test_names_that_are_no_streams(agent: SpeakingAgent, runtime: Runtime, name: str):
    assert_refused(agent.append(name, 0, b"x"), 422, "attempt-0001/node-0.log")
    assert list(runtime.object_store.list_keys("")) == []


def test_requests_that_append_nothing(agent: SpeakingAgent, api: ServedApi, runtime: Runtime):
    assert agent.append(STREAM, 0, b"x" * (MIB + 1)).status_code == 413
    assert agent.append(STREAM, -1, b"x").status_code == 422
    assert agent.append(STREAM, 2**63, b"x").status_code == 422
    stranger = SpeakingAgent(api, agent.gang, credential="c" * 64)
    assert stranger.append(STREAM, 0, b"x").status_code == 401
    assert list_logs(runtime, agent.gang.job_id) == []
    assert agent.append(STREAM, 0, b"x" * MIB).status_code == 200


def test_a_job_whose_logs_are_full_says_so_and_goes_on(
    agent: SpeakingAgent, engine: Engine, runtime: Runtime
):
    assert agent.append(STREAM, 0, b"first\n").status_code == 200
    assert agent.append("attempt-0001/other.log", 0, b"x").status_code == 200
    big = tables.log_streams.c.stream == "attempt-0001/other.log"
    room = 10
    size = append_logs.JOB_BYTES_MAX - len(b"first\n") - room
    change_rows(engine, tables.log_streams, big, size_bytes=size)
    last = agent.append(STREAM, 6, b"0123456789 and what does not fit").json()
    assert last["kept"]
    whole = _whole(runtime, agent)
    assert whole.startswith(b"first\n0123456789\n[lowtide] The logs of this job have reached 1 GiB")
    assert last["next_offset"] == len(whole)
    dropped = agent.append(STREAM, len(whole), b"not kept").json()
    assert dropped == {"next_offset": len(whole), "kept": False}
    assert len(rows_of(engine, tables.log_chunks)) == 3


def test_an_end_is_taken_before_the_bytes_that_precede_it(agent: SpeakingAgent, runtime: Runtime):
    missing = bytes(range(256)) * 40
    assert agent.append(STREAM, 0, b"begin\n").status_code == 200
    ended = agent.append(STREAM, 6, b"the error\n", gap_bytes=len(missing))
    assert ended.json() == {"next_offset": 6 + len(missing) + 10, "kept": True}
    shown = _whole(runtime, agent)
    assert len(shown) == 6 + len(missing) + 10, "every byte has its place already"
    assert shown.endswith(b"\0the error\n")
    assert shown.startswith(b"begin\n\n[lowtide] 10240 bytes of log are missing here")
    assert read_log(runtime, agent.gang.job_id, STREAM, -10).content == b"the error\n"
    assert agent.append(STREAM, ended.json()["next_offset"], b"more\n").status_code == 200
    wrong = agent.append(STREAM, 7, missing[1:9], fills_gap=True)
    assert (wrong.status_code, wrong.json()["next_offset"]) == (409, len(shown) + 5)
    assert agent.append(STREAM, 6, missing + b"x", fills_gap=True).status_code == 422
    half = agent.append(STREAM, 6, missing[:5_000], fills_gap=True)
    assert half.json() == {"next_offset": 5_006, "kept": True}
    again = agent.append(STREAM, 6, missing[:5_000], fills_gap=True)
    assert (again.status_code, again.json()["next_offset"]) == (409, 5_006)
    assert agent.append(STREAM, 5_006, missing[5_000:], fills_gap=True).status_code == 200
    assert _whole(runtime, agent) == b"begin\n" + missing + b"the error\nmore\n"
    full = agent.append(STREAM, 6, b"x", fills_gap=True)
    assert (full.status_code, full.json()["next_offset"]) == (409, len(shown) + 5)


def test_a_gap_belongs_to_its_own_machine(agents: list[SpeakingAgent]):
    one, other = agents
    assert one.append(STREAM, 0, b"end", gap_bytes=10).status_code == 200
    assert other.append(STREAM, 0, b"mine", fills_gap=True).status_code == 403


def test_a_gap_that_would_fill_the_logs_is_not_left(
    agent: SpeakingAgent, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(append_logs, "JOB_BYTES_MAX", 100)
    assert agent.append(STREAM, 0, b"end", gap_bytes=98).json()["next_offset"] == 3
    assert _whole(runtime, agent) == b"end"
