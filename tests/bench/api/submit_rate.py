"""POST /api/v1/jobs beside a raw asyncpg handler: requests per second, and what each costs.

Both are loaded in turn, with the same body, headers and number of connections, on one PostgreSQL.
The real route signs the caller in, validates the whole spec, honours the idempotency key, and
stores job, budget, event and audit row; the raw one checks types and inserts a row.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import psycopg

from app.storage.session.engine import make_engine
from tests.bench.api import raw_handler
from tests.bench.bench_environment import (
    BenchEnvironment,
    ServedProgram,
    api_settings,
    driver_url,
    serve,
)
from tests.bench.load_client import NextRequest, run_load
from tests.bench.process_cost import Meter, cpu_seconds
from tests.bench.results import Figure
from tests.support.api.people_api import make_key, make_project

CONNECTIONS = 8
SPEC: dict[str, Any] = {
    "project": "vision",
    "priority": 5,
    "trainer": {
        "model": "cnn",
        "data": "digits",
        "steps": 20_000,
        "batch_size": 64,
        "learning_rate": 0.01,
        "precision": "bf16",
    },
    "nodes": 2,
    "resources": {"gpu": "V100:1"},
    "market": "auto",
    "infra": ["local"],
    "max_price_ratio": 0.9,
    "deadline": "8h",
    "on_deadline": "finish",
    "budget_usd": 25,
    "max_duration": "12h",
    "max_wait": "2h",
    "retries": 3,
    "stall_timeout": "10m",
    "checkpoint": {"interval": "5m", "keep": 3},
    "env": {"OMP_NUM_THREADS": "4", "TOKENIZERS_PARALLELISM": "false"},
    "labels": {"team": "vision", "experiment": "baseline-7", "owner": "ada"},
}


@dataclass(frozen=True)
class Round:
    """One stretch of load on one server. CPU in microseconds per request."""

    per_second: float
    p50_ms: float
    p99_ms: float
    app_cpu: float
    postgres_cpu: float
    client_cpu: float


def measure(around: BenchEnvironment) -> list[Figure]:
    """Interleaved rounds of both."""
    rounds, seconds = (2, 1.0) if around.quick else (5, 2.5)
    with ExitStack() as stack:
        product, product_requests = _product(around, stack)
        raw, raw_requests = _raw(around, stack)
        sides = {"lowtide": (product, product_requests), "raw": (raw, raw_requests)}
        found: dict[str, list[Round]] = {name: [] for name in sides}
        for name, (program, requests) in sides.items():
            around.say(f"warming {name}")
            run_load(program.port, requests, CONNECTIONS, 1.0, 201)
        for number in range(rounds):
            for name, (program, requests) in sides.items():
                one = _round(around, program, requests, seconds)
                found[name].append(one)
                around.say(
                    f"round {number + 1}/{rounds} {name}: {one.per_second:,.0f}/s, "
                    f"app {one.app_cpu:.0f} us, PostgreSQL {one.postgres_cpu:.0f} us"
                )
    return _figures(found)


def _product(around: BenchEnvironment, stack: ExitStack) -> tuple[ServedProgram, NextRequest]:
    url = around.postgres.clone()
    engine = make_engine(url)
    key = make_key(engine, make_project(engine, "vision"))
    engine.dispose()
    folder = around.new_folder("api")
    settings = api_settings(url, around.valkey_url, folder)
    program = stack.enter_context(serve("app.api.main:app", folder, "/readyz", settings))
    return program, requests_to("/api/v1/jobs", key)


def _raw(around: BenchEnvironment, stack: ExitStack) -> tuple[ServedProgram, NextRequest]:
    url = driver_url(around.postgres.clone())
    with psycopg.connect(url) as connection:
        connection.execute(raw_handler.TABLE)
    program = stack.enter_context(
        serve(
            "tests.bench.api.raw_handler:app",
            around.new_folder("raw"),
            "/healthz",
            {"BENCH_DATABASE_URL": url},
        )
    )
    return program, requests_to("/jobs", "lt_" + "x" * 43)


def requests_to(path: str, key: str) -> NextRequest:
    """Requests that differ in their idempotency key alone."""
    body = json.dumps(SPEC).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\nIdempotency-Key: bench-"
    ).encode()
    rest = b"\r\n\r\n" + body
    numbers: Iterator[int] = itertools.count(1)
    return lambda: b"%b%012d%b" % (head, next(numbers), rest)


def _round(
    around: BenchEnvironment, program: ServedProgram, requests: NextRequest, seconds: float
) -> Round:
    clocks = {"app": lambda: cpu_seconds(program.pid), "postgres": around.postgres.cpu_seconds}
    with Meter(clocks) as meter:
        load = run_load(program.port, requests, CONNECTIONS, seconds, 201)
    if load.refused:
        raise RuntimeError(f"requests were refused: {load.refused}")
    return Round(
        per_second=load.per_second,
        p50_ms=load.percentile_ms(0.5),
        p99_ms=load.percentile_ms(0.99),
        app_cpu=meter.cost.per(load.count, "app"),
        postgres_cpu=meter.cost.per(load.count, "postgres"),
        client_cpu=load.client_cpu_seconds / load.count * 1e6,
    )


def _figures(found: dict[str, list[Round]]) -> list[Figure]:
    def middle(side: str, field: str) -> float:
        return float(round(median(getattr(one, field) for one in found[side]), 2))

    fields = ("per_second", "p50_ms", "p99_ms", "app_cpu", "postgres_cpu", "client_cpu")
    detail = {side: {field: middle(side, field) for field in fields} for side in found}
    # Rounds side by side ran within the same seconds: their ratios bear a busy machine.
    pairs = list(zip(found["lowtide"], found["raw"], strict=True))
    rate = median(ours.per_second / raw.per_second for ours, raw in pairs)
    cost = median(ours.app_cpu / raw.app_cpu for ours, raw in pairs)
    return [
        Figure("submit", "requests/s, of raw asyncpg's", rate, "x", 0.4, False, detail),
        Figure("submit", "app CPU, of raw asyncpg's", cost, "x", 2.5),
        Figure("submit", "POST /jobs", middle("lowtide", "per_second"), "/s"),
        Figure("submit", "raw asyncpg handler", middle("raw", "per_second"), "/s"),
        Figure("submit", "POST /jobs, app CPU", middle("lowtide", "app_cpu"), "us"),
        Figure("submit", "raw handler, app CPU", middle("raw", "app_cpu"), "us"),
        Figure("submit", "POST /jobs, PostgreSQL CPU", middle("lowtide", "postgres_cpu"), "us"),
        Figure("submit", "raw handler, PostgreSQL CPU", middle("raw", "postgres_cpu"), "us"),
        Figure("submit", "POST /jobs, p99", middle("lowtide", "p99_ms"), "ms"),
    ]
