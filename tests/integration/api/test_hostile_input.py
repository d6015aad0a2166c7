"""What an attacker sends, over the real api: refused with a sentence, and nothing breaks after it.

Here: machines that report nonsense, archives that unpack to gigabytes, requests at the edge of the
protocol. Not here: the ordinary refusals of each route (its own tests).
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import itertools
import logging
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.adapters.object_stores.obstore_store import open_object_store
from app.domain.units.spreadsheet_text import safe_cell
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from tests.support.api.agent_api import SpeakingAgent, wait_until
from tests.support.api.people_api import PeopleApi, make_own_gang
from trainer.agent.machine.control_plane_client import ControlPlaneClient
from trainer.protocol.agent_report import (
    PROTOCOL_VERSION,
    AgentReport,
    FactKind,
    MachinePhase,
    Progress,
    Registration,
)

_numbers = itertools.count()
PAGES = ("", "/attempts", "/events", "/checkpoints", "/metrics", "/logs", "/cost")
HUGE = 2**62 - 1


@pytest.fixture(scope="module")
def browser(api: PeopleApi) -> Iterator[httpx.Client]:
    """A browser that has signed in."""
    make_own_gang(api, name="before")  # and with it the deployment's row, as its first use does
    with httpx.Client(base_url=api.url, timeout=60) as client:
        token = client.get("/sign-in").text.split('name="form_token" value="')[1].split('"')[0]
        answer = client.post("/sign-in", data={"key": api.key, "form_token": token})
        assert answer.status_code == 303
        yield client


def training(api: PeopleApi, **spec: Any) -> tuple[SpeakingAgent, str]:
    """A machine that trains, and the name of its job."""
    name = f"hostile-{next(_numbers)}"
    agent = SpeakingAgent(api, make_own_gang(api, name=name, **spec))
    assert agent.register().status_code == 200
    agent.begin_training()
    return agent, name


def test_a_full_disk_is_on_the_page_whatever_its_folder_is_called(
    api: PeopleApi, browser: httpx.Client
) -> None:
    agent, name = training(api)
    told = {"folder": "/scratch/<script>alert(1)</script>\u2028\x1b[2J", "free_bytes": 512}
    assert agent.report(fence=1, phase="train", disk_full=told).status_code == 200
    page = browser.get(f"/jobs/{name}").text
    assert "Disk full: a machine has no room left." in page
    assert "training, disk full (512 bytes free)" in page
    assert "<script>alert" not in page
    assert "Disk full" in browser.get("/jobs").text
    assert_can_be_looked_at(api, browser, name)
    assert agent.report(fence=1, phase="train").status_code == 200
    assert "Disk full: a machine" not in browser.get(f"/jobs/{name}").text


def assert_can_be_looked_at(api: PeopleApi, browser: httpx.Client, name: str) -> None:
    """Every view of the job still answers."""
    for part in PAGES:
        answer = api.client.get(f"/api/v1/jobs/{name}{part}")
        assert answer.status_code == 200, f"{part}: {answer.text}"
    assert browser.get(f"/jobs/{name}").status_code == 200
    assert browser.get("/jobs").status_code == 200


# --- machines that report nonsense --------------------------------------------------------------


NONSENSE = [
    (FactKind.PHASE, {"phase": "dreaming"}),
    (FactKind.PHASE, {"phase": ["train"], "step": -HUGE}),
    (FactKind.NOTICE, {"seconds_left": 1e308, "source": "<script>", "notice_id": {}}),
    (FactKind.PREPARED, {"parent": {"fence": HUGE, "step": HUGE}, "master_port": HUGE}),
    (FactKind.PREPARATION_FAILED, {"stage": [], "message": "x" * 100_000}),
    (FactKind.CHECKPOINT, {"step": HUGE, "digest": None, "size_bytes": HUGE, "parent": "x"}),
    (FactKind.CHECKPOINT, {"step": 6, "digest": "d", "parent": {"fence": HUGE, "step": -1}}),
    (FactKind.CHECKPOINT, {"step": 7, "digest": "d", "metrics": {"loss": 1e30, "": 2}}),
    (FactKind.TRAINER_ENDED, {"outcome": "exploded", "exit_code": HUGE}),
    (FactKind.TRAINER_ENDED, {"outcome": {}, "exit_code": "1", "error": "none"}),
    (FactKind.TRAINER_ENDED, {"outcome": "failed", "error": {"failed_uptime_ms": -HUGE}}),
    (FactKind.STALLED, {"step": "x"}),
    (FactKind.FENCED_OFF, {"by_fence": HUGE}),
    (FactKind.GPU_FAULT, {"message": {"a": ["b"]}}),
    (FactKind.METRICS, {"points": [{"step": 1, "loss": 1e30}, {"step": []}, 5, None]}),
    (FactKind.LEAVING, {"reason": HUGE}),
    (FactKind.REBALANCE, {"source": []}),
    (FactKind.TRAINER_STARTED, {"of": HUGE}),
    (FactKind.COMPLETION, {"step": "x", "digest": {}}),
    (FactKind.OUTPUTS, {"files": -HUGE, "size_bytes": "x", "addresses": HUGE}),
    (FactKind.UNKNOWN, {"message": "of a newer agent"}),
]


def test_every_kind_of_fact_is_tried_with_nonsense():
    assert {kind for kind, _ in NONSENSE} == set(FactKind)


@pytest.mark.parametrize(("kind", "data"), NONSENSE, ids=lambda value: str(value)[:50])
def test_a_fact_that_makes_no_sense_harms_no_view(
    api: PeopleApi, browser: httpx.Client, kind: FactKind, data: dict[str, Any]
):
    agent, name = training(api)
    told = agent.report(fence=1, phase="train", facts=[agent.fact(kind, **data)])
    assert told.status_code == 200, told.text
    assert told.json()["ack_fact_no"] == agent.facts_told
    assert_can_be_looked_at(api, browser, name)


@pytest.mark.parametrize(
    "progress",
    [
        {"step": 1, "total_steps": 10**15},
        {"step": 1, "total_steps": 2**62, "metrics": {"loss": 1e30, "tokens": 5e18}},
        {"step": 2**62, "total_steps": 1, "metrics": {"loss": -1e308}},
        {"step": 0, "total_steps": 0, "metrics": {"": 1, "<script>alert(1)</script>": 2}},
    ],
    ids=lambda value: str(value)[:40],
)
def test_progress_beyond_all_measure_harms_no_view_and_no_controller(
    api: PeopleApi, browser: httpx.Client, progress: dict[str, Any]
):
    agent, name = training(api, deadline="2h", estimate={"hours": 1})
    for _ in range(2):
        assert agent.report(fence=1, phase="train", progress=progress).status_code == 200
    facts = [agent.fact(FactKind.REBALANCE)]
    told = agent.report(fence=1, phase="train", progress=progress, facts=facts)
    assert told.status_code == 200

    def seen() -> bool:
        found = api.client.get(f"/api/v1/jobs/{name}").json()
        return bool(found["progress"]["total_steps"] == progress["total_steps"])

    wait_until(seen)
    shown = api.client.get(f"/api/v1/jobs/{name}").json()["progress"]["step"]
    # A step beyond the total is no step of the work.
    assert shown == (progress["step"] if progress["step"] <= progress["total_steps"] else 0)
    assert_can_be_looked_at(api, browser, name)
    run_controller(api.parts.runtime, WatchDeadlines(api.parts.runtime))
    assert "<script>alert" not in browser.get(f"/jobs/{name}").text


def test_no_text_of_a_registration_is_longer_than_what_is_stored(api: PeopleApi):
    agent = SpeakingAgent(api, make_own_gang(api, name=f"hostile-{next(_numbers)}"))
    texts = [one.name for one in dataclasses.fields(Registration) if one.type == "str"]
    assert {"launch_token", "private_address", "interface"} <= set(texts)
    for name in texts:
        refused = agent.register(**{name: "x" * 201})
        assert refused.status_code == 422, name
        assert refused.json()["detail"] == f"{name}: at most 200 characters"
    longest = "x" * 200
    assert agent.register(interface=longest, agent_version=longest).is_success


def test_a_metric_of_any_size_is_kept(api: PeopleApi):
    agent, name = training(api)
    points = [{"step": 1, "tokens": 3e12, "loss": 1e30}]
    told = agent.report(fence=1, phase="train", facts=[agent.fact(FactKind.METRICS, points=points)])
    assert told.status_code == 200
    [point] = api.client.get(f"/api/v1/jobs/{name}/metrics").json()["items"]
    assert point["metrics"] == {"tokens": 3e12, "loss": 1e30}


def test_a_report_with_half_a_surrogate_pair_gets_through(api: PeopleApi):
    agent, name = training(api)
    client = ControlPlaneClient(api.url)
    client.credential = agent.credential
    report = AgentReport(
        protocol=PROTOCOL_VERSION,
        instance_id=str(agent.instance_id),
        boot_id="boot",
        session_id=agent.session_id,
        seq=agent.seq + 1,
        uptime_ms=9_000,
        phase=MachinePhase.TRAIN,
        fence=1,
        progress=Progress(3, 10, {"loss\ud800": 0.5}),
    )
    assert client.report(report).directive.kind == "train"
    client.close()

    def metrics() -> Any:
        return api.client.get(f"/api/v1/jobs/{name}").json()["progress"]["metrics"]

    wait_until(lambda: metrics() == {"loss?": 0.5})


# --- archives -----------------------------------------------------------------------------------


def gzipped(header: bytes, filling: bytes, mebibytes: int) -> bytes:
    """A header, and so many mebibytes of a filling, as a small gzip."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6) as file:
        file.write(header)
        for _ in range(mebibytes):
            file.write(filling * ((1 << 20) // len(filling)))
    return packed.getvalue()


def large_description() -> bytes:
    entry = tarfile.TarInfo("description")
    entry.type, entry.size = tarfile.XHDTYPE, 64 << 20
    return gzipped(entry.tobuf(), b"\0", 64)


def long_name() -> bytes:
    entry = tarfile.TarInfo("name")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    return gzipped(entry.tobuf(), b"a", 64)


def sparse_map() -> bytes:
    entry = tarfile.TarInfo("sparse")
    entry.size = 100
    words = {"major": "1", "minor": "0", "name": "sparse", "realsize": "5"}
    entry.pax_headers = {f"GNU.sparse.{name}": value for name, value in words.items()}
    return gzipped(entry.tobuf(tarfile.PAX_FORMAT) + b"999999999\n", b"1\n", 32)


def negative_size() -> bytes:
    entry = tarfile.TarInfo("backwards")
    entry.pax_headers = {"size": "-5000"}
    return gzipped(entry.tobuf(tarfile.PAX_FORMAT), b"\0", 1)


def five_gibibytes() -> bytes:
    entry = tarfile.TarInfo("zeros")
    entry.size = 5 << 30
    return gzipped(entry.tobuf(), b"\0", 1)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (large_description, "more than 1 MiB about one"),
        (long_name, "more than 1 MiB about one"),
        (sparse_map, "more than 1 MiB about one"),
        (negative_size, "more than 4 GiB"),
        (five_gibibytes, "more than 4 GiB"),
    ],
)
def test_a_small_archive_cannot_take_much_memory(
    api: PeopleApi, made: Callable[[], bytes], words: str
):
    packed = made()
    digest = hashlib.sha256(packed).hexdigest()
    answer = api.client.put(f"/api/v1/workdirs/sha256:{digest}", content=packed)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert api.client.head(f"/api/v1/workdirs/sha256:{digest}").status_code == 404


# --- requests at the edge -----------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{f"X-{n}": "y" for n in range(150)}, {"X": "y" * 70_000}])
def test_a_flood_of_headers_is_refused(api: PeopleApi, headers: dict[str, str]):
    answer = api.client.get("/api/v1/jobs", headers=headers)
    assert answer.status_code == 431
    assert "send fewer" in answer.json()["detail"]


def test_a_client_that_hangs_up_is_no_failure_of_ours(
    api: PeopleApi, caplog: pytest.LogCaptureFixture
):
    address = urlsplit(api.url)
    request = (
        f"POST /api/v1/jobs HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 500\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {api.key}\r\n\r\n{{"
    )

    def gone() -> bool:
        return 'route="/api/v1/jobs",status="400"' in api.figures()

    assert not gone()
    with caplog.at_level(logging.WARNING):
        with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
            connection.sendall(request.encode())
        wait_until(gone)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("path", ["/jobs/", "/api/v1/jobs/"])
def test_no_redirect_is_made_of_the_host_header(api: PeopleApi, path: str):
    answer = api.client.get(path, headers={"Host": "elsewhere.example"})
    assert answer.status_code == 404
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "query", [{"to": "9999-12-31"}, {"from": "9999-12-31", "to": "9999-12-31"}]
)
def test_the_last_day_of_the_calendar_is_refused(api: PeopleApi, query: dict[str, str]):
    answer = api.client.get("/api/v1/costs", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "to"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"x": 1}', "x: is unknown; remove it"),
        (b'{"add_budget_usd": true}', "add_budget_usd: must be an amount of money, not bool"),
        (b'{"add_budget_usd": []}', "add_budget_usd: must be an amount of money, not list"),
        (b"[]", "body: must be a JSON object"),
    ],
)
def test_a_refused_body_is_told_in_one_sentence(api: PeopleApi, body: bytes, message: str):
    headers = {"Content-Type": "application/json"}
    answer = api.client.post("/api/v1/jobs/any/resume", content=body, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(message)


def test_every_error_is_described_as_it_comes(api: PeopleApi):
    page = httpx.get(f"{api.url}/openapi.json").json()
    assert "HTTPValidationError" not in page["components"]["schemas"]
    answers = [route["responses"] for path in page["paths"].values() for route in path.values()]
    assert all("422" not in one for one in answers)
    assert {kind for one in answers for kind in one["default"]["content"]} == {
        "application/problem+json"
    }
    told = api.client.get("/api/v1/jobs", params={"limit": 0}).json()
    assert set(told) == set(page["components"]["schemas"]["Problem"]["properties"])


def test_a_spreadsheet_runs_no_cell():
    for cell in ("=1+1", "@x", "+5", "\t=1", "\r=1", "-2+3|x", "-x", "-"):
        assert safe_cell(cell) == "'" + cell.replace("\t", " ").replace("\r", " ")
    for cell in ("-0.5", "-12", "team", "a-b", ""):
        assert safe_cell(cell) == cell


# --- what others on the machine may see, and what waits for what --------------------------------


def test_a_store_is_made_for_its_owner_alone(tmp_path: Path):
    folder = tmp_path / "made" / "store"
    open_object_store(folder.as_uri()).put_new("logs/a.log", b"a")
    assert [one.stat().st_mode & 0o777 for one in (folder, folder.parent)] == [0o700, 0o700]


def test_a_cancel_beside_a_controller_is_no_deadlock(api: PeopleApi):
    """A controller holds the job and writes it twice; a cancel holds the budget and waits."""
    begin = api.parts.runtime.begin
    job_id = make_own_gang(api, name="contended").job_id
    budget_held, failures = threading.Event(), list[BaseException]()

    def cancel() -> None:
        try:
            with begin() as uow:
                job = uow.jobs.get(job_id)
                assert job is not None
                uow.money.lock_budgets(job.project_id, job.budget_id)
                budget_held.set()
                uow.jobs.lock(job_id)
        except BaseException as error:
            failures.append(error)

    person = threading.Thread(target=cancel)
    with begin() as uow:
        job = uow.jobs.lock(job_id)
        assert job is not None
        job.wait_reason = "first"
        uow.flush()
        person.start()
        assert budget_held.wait(60)
        job.wait_reason = "second"
        uow.flush()
    person.join(60)
    assert not person.is_alive()
    assert failures == []
