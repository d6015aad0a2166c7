"""How soon a machine's loss is known: a notice at its agent, and a kill that nobody announced.

One job on one machine of the local cloud, with `lowtide up`'s own settings. First the machine is
killed without notice; its replacement then gets a notice. Instants are those of the history.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from app.cli.client.failures import CommandFailed
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.live_system import Document, LiveSystem, instant, wait_for
from tests.bench.results import Figure

NOTICE_SECONDS = 20.0
SETTLED_SECONDS = 8.0
"""A machine that has just started is looked at more often than later."""
_NAME = "bench-loss"
_SPEC: dict[str, Any] = {
    "name": _NAME,
    "run": "sleep 600",
    "resources": {"gpu": "V100"},
    "infra": ["local"],
}
_STEP_SECONDS = 45.0


def measure(around: BenchEnvironment) -> list[Figure]:
    """The job is cancelled at the end."""
    system = around.live
    around.say("starting a job on one machine")
    system.api.post("/jobs", _SPEC)
    try:
        first = _running_machine(system, set())
        time.sleep(SETTLED_SECONDS)
        around.say("killing its machine without notice")
        killed = _interrupt(system, first["id"], None)
        second = wait_for(lambda: _requested_after(system, killed), "a replacement", _STEP_SECONDS)
        replaced = (instant(second["requested_at"]) - killed).total_seconds()
        around.say(f"a replacement was requested after {replaced:.1f} s")
        second = _running_machine(system, {first["id"]})
        around.say("giving notice to the replacement")
        ends_at = _interrupt(system, second["id"], NOTICE_SECONDS)
        noticed_at = ends_at - timedelta(seconds=NOTICE_SECONDS)
        known = wait_for(lambda: _noticed(system, second["id"]), "the notice", _STEP_SECONDS)
        heard = (instant(known["at"]) - noticed_at).total_seconds()
        around.say(f"the notice was known after {heard:.1f} s")
    finally:
        with suppress(CommandFailed):
            system.api.post(f"/jobs/{_NAME}/cancel", {})
        wait_for(lambda: system.job(_NAME)["ended_at"], "the job's end", _STEP_SECONDS)
    return [
        Figure("loss", "notice → known of its agent", heard, "s", 2.0),
        Figure("loss", "kill without notice → replacement requested", replaced, "s", 15.0),
    ]


def _running_machine(system: LiveSystem, besides: set[str]) -> Document:
    """The job's machine, once the trainer runs on it."""

    def look() -> Document | None:
        job = system.job(_NAME)
        live = job["attempts"]["live"]
        if live is None or live["state"] != "running":
            return None
        return next((one for one in job["machines"] if one["id"] not in besides), None)

    return wait_for(look, "a running machine", _STEP_SECONDS)


def _interrupt(system: LiveSystem, machine_id: str, notice_seconds: float | None) -> datetime:
    answer = system.api.post(
        f"/instances/{machine_id}/interrupt", {"notice_seconds": notice_seconds}
    )
    return instant(answer["ends_at"])


def _requested_after(system: LiveSystem, then: datetime) -> Document | None:
    machines = system.machines(_NAME)
    return next((one for one in machines if instant(one["requested_at"]) > then), None)


def _noticed(system: LiveSystem, machine_id: str) -> Document | None:
    events = system.events(_NAME, "interruption_noticed")
    return next((one for one in events if one["noun_id"] == machine_id), None)
