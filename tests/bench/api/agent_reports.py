"""Steady reports of machines: how many one api takes, and what each costs.

Machines are registered as agents do; then the same reports come again and again, as from machines
that train. They are answered from memory and written together twice a second.
"""

from __future__ import annotations

import itertools
import json
from contextlib import ExitStack
from statistics import median
from typing import Any

import httpx

from app.storage.session.engine import make_engine
from tests.bench.bench_environment import BenchEnvironment, api_settings, serve
from tests.bench.load_client import NextRequest, run_load
from tests.bench.process_cost import Meter, cpu_seconds
from tests.bench.results import Figure
from tests.support.api.agent_api import Gang, make_gang, make_runtime
from trainer.protocol.agent_report import PROTOCOL_VERSION

MACHINES = 64
CONNECTIONS = 16


def measure(around: BenchEnvironment) -> list[Figure]:
    """Rounds of load by all machines."""
    rounds, seconds = (2, 1.0) if around.quick else (4, 3.0)
    found: list[dict[str, float]] = []
    with ExitStack() as stack:
        url = around.postgres.clone()
        engine = make_engine(url)
        stack.callback(engine.dispose)
        folder = around.new_folder("agents")
        gang = make_gang(engine, make_runtime(engine, folder), MACHINES)
        settings = api_settings(url, around.valkey_url, folder)
        program = stack.enter_context(serve("app.api.main:app", folder, "/readyz", settings))
        around.say(f"registering {MACHINES} machines")
        requests = _requests(program.url, gang)
        run_load(program.port, requests, CONNECTIONS, 1.0, 200)
        clocks = {"postgres": around.postgres.cpu_seconds, "api": lambda: cpu_seconds(program.pid)}
        for number in range(rounds):
            with Meter(clocks) as meter:
                load = run_load(program.port, requests, CONNECTIONS, seconds, 200)
            if load.refused:
                raise RuntimeError(f"reports were refused: {load.refused}")
            one = {
                "per_second": load.per_second,
                "p99_ms": load.percentile_ms(0.99),
                "api_us": meter.cost.per(load.count, "api"),
                "postgres_us": meter.cost.per(load.count, "postgres"),
            }
            found.append(one)
            around.say(
                f"round {number + 1}/{rounds}: {one['per_second']:,.0f}/s, api "
                f"{one['api_us']:.0f} us, PostgreSQL {one['postgres_us']:.0f} us"
            )
    detail = {name: round(median(one[name] for one in found), 1) for name in found[0]}
    cost = detail["api_us"] + detail["postgres_us"]
    return [
        Figure("reports", "steady agent reports", detail["per_second"], "/s", detail=detail),
        Figure("reports", "CPU of one, PostgreSQL's included", cost, "us", 250),
    ]


def _requests(url: str, gang: Gang) -> NextRequest:
    """Every machine's report in turn, after each has registered and reported once."""
    made: list[bytes] = []
    with httpx.Client(base_url=url, timeout=10, trust_env=False) as client:
        for rank, instance_id in enumerate(gang.instance_ids):
            credential = _register(client, gang, rank)
            report = _report(str(instance_id))
            headers = {"Authorization": f"Bearer {credential}"}
            client.post("/agent/v1/reports", json=report, headers=headers).raise_for_status()
            body = json.dumps(report).encode()
            head = (
                "POST /agent/v1/reports HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"Content-Type: application/json\r\nAuthorization: Bearer {credential}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            made.append(head.encode() + body)
    turns = itertools.cycle(made)
    return lambda: next(turns)


def _register(client: httpx.Client, gang: Gang, rank: int) -> str:
    answer = client.post(
        "/agent/v1/register",
        json={
            "protocol": PROTOCOL_VERSION,
            "launch_token": gang.token,
            "nonce": f"nonce-{rank}",
            "provider_instance_id": Gang.machine(gang.instance_ids[rank]),
            "boot_id": "boot",
            "session_id": "session-1",
            "uptime_ms": 1_000,
            "private_address": f"10.0.0.{rank + 1}",
            "port_from": 20_000,
            "port_to": 20_100,
        },
    )
    answer.raise_for_status()
    credential: str = answer.json()["credential"]
    return credential


def _report(instance_id: str) -> dict[str, Any]:
    """As of a machine that trains; the same number may come again."""
    return {
        "protocol": PROTOCOL_VERSION,
        "instance_id": instance_id,
        "boot_id": "boot",
        "session_id": "session-1",
        "seq": 10,
        "uptime_ms": 60_000,
        "phase": "idle",
        "progress": {
            "step": 1_200,
            "total_steps": 20_000,
            "metrics": {"loss": 0.4321, "samples_per_second": 812.5, "learning_rate": 0.01},
        },
    }
