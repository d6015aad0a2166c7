"""The schedule that beat reads is the controllers' own, and beat loads nothing more than that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from app.orchestration.controllers import all_controllers
from app.orchestration.frame.limits import Limits
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.schedule import TURNS, turn_of

_QUICK = replace(Limits(), accrual_seconds=2.0, next_look_seconds=1.0, sweep_seconds=8.0)


def controllers(limits: Limits) -> tuple[Any, ...]:
    ports: dict[str, Any] = dict.fromkeys((port.name for port in fields(Runtime)), None)
    return all_controllers(Runtime(**{**ports, "limits": limits, "machine_files": {}}))


@pytest.mark.parametrize("limits", [Limits(), _QUICK])
def test_every_controller_has_its_turn_and_no_other_has(limits: Limits):
    found = [(one.name, one.queue, one.period_seconds) for one in controllers(limits)]
    assert found == [(name, *turn_of(name, limits)) for name in TURNS]


def test_beat_loads_neither_settings_nor_controllers():
    code = (
        "import json, sys; import celery.apps.beat, workers.beat_scheduler, workers.beat_program\n"
        "from workers.plan import read_plan_apart; from workers.celery_app import make_celery\n"
        "plan = read_plan_apart(); app = make_celery(plan)\n"
        "app.conf.include = (); app.loader.init_worker()\n"
        "print(json.dumps([sorted(plan.periods), plan.log_level, sorted(sys.modules)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "LOWTIDE_REDIS_URL": "redis://127.0.0.1:1/0"},
    )
    names, log_level, modules = json.loads(done.stdout)
    assert names == sorted(TURNS)
    assert log_level == "info"
    heavy = {"pydantic", "sqlalchemy", "app.settings", "app.orchestration.controllers"}
    assert heavy.isdisjoint(modules)
