"""The api under a crowd: 200 readers over 5,000 jobs, 16 hostile bodies at a time, mass cancels.

Here: the served api with its jobs and pools, and the three measures. `tests/integration` holds the
ratios as tests. Not here: the rate of submissions (`submit_rate`).
"""

from __future__ import annotations

import hashlib
import http.client
import itertools
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import httpx

from app.bootstrap import NoWakeups
from app.domain.market.offer import Hardware, Offer, Pool
from app.storage.session.engine import make_engine
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.bench.api.submit_rate import requests_to
from tests.bench.bench_environment import (
    API_APP,
    BenchEnvironment,
    ServedProgram,
    api_settings,
    serve,
)
from tests.bench.load_client import LoadResult, run_load
from tests.bench.results import Figure
from tests.support.api.hostile_bodies import worst_archives, worst_specs
from tests.support.api.people_api import make_key, make_project

JOBS = 5_000
POOLS = 1_500
READERS = 200
HOSTILE = 16
RATIO_MAX = 5.0
_SUBMITTERS = 8


@dataclass(frozen=True)
class CrowdedApi:
    """A served api with jobs in it."""

    program: ServedProgram
    key: str

    def client(self) -> httpx.Client:
        """A client with the project's key."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.program.url, headers=headers, timeout=60)


@contextmanager
def crowded_api(
    database_url: str, valkey_url: str, folder: Path, jobs: int, pools: int = POOLS
) -> Iterator[CrowdedApi]:
    """An api in a process of its own, with so many queued jobs and so many pools to rent in."""
    engine = make_engine(database_url)
    key = make_key(engine, make_project(engine, "vision"))
    settings = api_settings(database_url, valkey_url, folder)
    with serve(API_APP, folder, "/readyz", settings) as program:
        # Before there are pools: each submission with a limit would be simulated on them.
        _submit(program.port, key, jobs)
        with PostgresUnitOfWorkFactory(engine, NoWakeups())() as uow:
            uow.offers.record([_offer(number) for number in range(pools)], [], datetime.now(UTC))
        engine.dispose()
        yield CrowdedApi(program, key)


def measure(around: BenchEnvironment) -> list[Figure]:
    """All three, one after the other, on one api."""
    jobs, seconds = (500, 4.0) if around.quick else (JOBS, 15.0)
    url, folder = around.postgres.clone(), around.new_folder("crowd")
    with crowded_api(url, around.valkey_url, folder, jobs) as api:
        around.say(f"{READERS} readers over {jobs} jobs")
        read = read_with(api, READERS, seconds)
        around.say(f"{HOSTILE} hostile bodies at a time")
        calm, attacked, sent = healthz_under_attack(api, seconds)
        idle, busy = percentile(calm, 0.99), percentile(attacked, 0.99)
        around.say("cancelling all")
        rate = cancel_all(api)
    refused = sum(read.refused.values())
    told = {"hostile_bodies_answered": sent, "probes": len(attacked)}
    detail = {"refused": read.refused, "answers": read.count, "jobs": jobs}
    return [
        Figure("crowd", f"{READERS} readers, not answered", refused, "", 0, True, detail),
        Figure("crowd", f"{READERS} readers", read.per_second, "/s"),
        Figure("crowd", f"{READERS} readers, p50", read.percentile_ms(0.5), "ms"),
        Figure("crowd", f"{READERS} readers, p99", read.percentile_ms(0.99), "ms"),
        Figure("crowd", "healthz p99, attacked ÷ idle", busy / idle, "x", RATIO_MAX, True, told),
        Figure("crowd", "healthz p99, idle", 1000 * idle, "ms"),
        Figure("crowd", "healthz p99, attacked", 1000 * busy, "ms"),
        Figure("crowd", "jobs cancelled in batches", rate, "/s", 50, False),
    ]


def read_with(api: CrowdedApi, readers: int, seconds: float) -> LoadResult:
    """So many connections that ask for everything people look at, one question after the other."""
    with api.client() as client:
        name = client.get("/api/v1/jobs", params={"limit": 1}).json()["items"][0]["name"]
    paths = (
        "/api/v1/jobs?limit=50",
        "/api/v1/jobs?state=live&limit=200",
        "/api/v1/jobs?name=a&limit=20",
        f"/api/v1/jobs/{name}",
        f"/api/v1/jobs/{name}/events",
        f"/api/v1/jobs/{name}/cost",
        "/api/v1/costs",
        "/api/v1/instances",
        "/api/v1/offers",
        "/readyz",
    )
    requests = [_get(path, api.key) for path in paths]
    turns = itertools.cycle(requests)
    return run_load(api.program.port, lambda: next(turns), readers, seconds, 200)


def healthz_under_attack(api: CrowdedApi, seconds: float) -> tuple[list[float], list[float], int]:
    """Seconds that /healthz takes: idle, then with hostile bodies, sorted; and bodies answered."""
    _probe(api.program.port, 1.0)
    calm = _probe(api.program.port, seconds)
    with _attack(api) as answers:
        attacked = _probe(api.program.port, seconds)
    if not answers.value:
        raise RuntimeError("no hostile body was answered, so nothing was attacked")
    return calm, attacked, answers.value


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that so large a share of sorted ones stays within."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _probe(port: int, seconds: float) -> list[float]:
    """One connection that asks a few hundred times a second."""
    found, until = list[float](), time.perf_counter() + seconds
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while (began := time.perf_counter()) < until:
        connection.request("GET", "/healthz")
        if connection.getresponse().read() != b'{"status":"ok"}':
            raise RuntimeError("/healthz did not answer as it should")
        found.append(time.perf_counter() - began)
        time.sleep(0.002)
    connection.close()
    return sorted(found)


def cancel_all(api: CrowdedApi) -> float:
    """Cancel every live job by a filter; jobs a second."""
    done, cursor, began = 0, None, time.perf_counter()
    with api.client() as client:
        while True:
            body: dict[str, Any] = {"action": "cancel", "filter": {}, "cursor": cursor}
            answer = client.post("/api/v1/jobs/batch", json=body).raise_for_status().json()
            done += int(answer["counts"].get("done", 0))
            cursor = answer["next"]
            if cursor is None:
                return done / (time.perf_counter() - began)


@contextmanager
def _attack(api: CrowdedApi) -> Iterator[Synchronized[int]]:
    """Hostile bodies, so many at a time, until the end of the block; how many were answered.

    They come from a process of their own, that what it costs to send them is nobody's latency.
    """
    context = multiprocessing.get_context("spawn")
    stop, answers = context.Event(), context.Value("i", 0)
    process = context.Process(target=_send_all, args=(api.program.port, api.key, stop, answers))
    process.start()
    try:
        while not answers.value and process.is_alive():
            time.sleep(0.05)
        yield answers
    finally:
        stop.set()
        process.join()


def _send_all(port: int, key: str, stop: Event, answers: Synchronized[int]) -> None:
    os.nice(10)
    specs = [_post_spec(body, key) for body in worst_specs()]
    archives = [_put_archive(body, key) for body in worst_archives()]

    def send(one: int) -> None:
        requests = specs if one % 2 else archives
        for turn in itertools.count(one):
            if stop.is_set():
                return
            status = _answer_to(port, requests[turn % len(requests)])
            if status not in (200, 201, 422, 503):
                raise RuntimeError(f"a hostile body was answered with {status}")
            with answers.get_lock():
                answers.value += 1

    with ThreadPoolExecutor(HOSTILE) as senders:
        for sent in [senders.submit(send, one) for one in range(HOSTILE)]:
            sent.result()


def _answer_to(port: int, request: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        try:
            connection.sendall(request)
        except OSError:
            pass  # it was answered before it was read to its end
        answer = connection.recv(65_536)
    return int(answer[9:12] or b"503")


def _post_spec(body: bytes, key: str) -> bytes:
    return _request("POST", "/api/v1/jobs", key, body)


def _put_archive(body: bytes, key: str) -> bytes:
    path = f"/api/v1/workdirs/sha256:{hashlib.sha256(body).hexdigest()}"
    return _request("PUT", path, key, body)


def _request(method: str, path: str, key: str, body: bytes) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/yaml\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body


def _submit(port: int, key: str, jobs: int) -> None:
    """Jobs over the api itself, until there are so many."""
    make, done = requests_to("/api/v1/jobs", key), 0
    while done < jobs:
        done += run_load(port, make, _SUBMITTERS, 1.0, 201).count


def _get(path: str, key: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
    ).encode()


def _offer(number: int) -> Offer:
    zone, kind = number % 30, number // 30
    market = "spot" if number % 2 else "on_demand"
    return Offer(
        pool=Pool.parse(f"aws/region-{zone % 6}/zone-{zone}/g{kind}.xlarge/{market}"),
        hardware=Hardware("A10G", 1, 24, 8, 32),
        price_microusd_per_hour=500_000 + number,
        on_demand_microusd_per_hour=1_200_000,
        cloud="aws",
        quoted_at=datetime.now(UTC),
        price_source="bench",
        available=True,
        billing_speed=1,
        attachments=None,
        hazard_factor=1.0,
    )
