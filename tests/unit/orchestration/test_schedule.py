"""The schedule by which beat rings is the controllers' own."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from app.bootstrap import limits_of
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.limits import Limits
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.schedule import TURNS, turn_of
from app.settings import load_settings
from tests.support.servers.finished_commands import run_command

_QUICK = replace(Limits(), accrual_seconds=2.0, next_look_seconds=1.0, sweep_seconds=8.0)


def controllers(limits: Limits) -> tuple[Any, ...]:
    ports: dict[str, Any] = dict.fromkeys((port.name for port in fields(Runtime)), None)
    return all_controllers(Runtime(**{**ports, "limits": limits, "machine_files": {}}))


@pytest.mark.parametrize("limits", [Limits(), _QUICK])
def test_every_controller_has_its_turn_and_no_other_has(limits: Limits):
    found = [(one.name, one.queue, one.period_seconds) for one in controllers(limits)]
    assert found == [(name, *turn_of(name, limits)) for name in TURNS]


def test_beat_rings_every_controller_at_its_period():
    code = (
        "import json; from app.settings import load_settings\n"
        "from workers.celery_app import QUEUES, make_celery; app = make_celery(load_settings())\n"
        "print(json.dumps([[(one['schedule'], one['args'][0], one['options']['expires'])"
        " for one in app.conf.beat_schedule.values()], QUEUES]))"
    )
    done = run_command(
        [sys.executable, "-c", code],
        timeout=60,
        check=True,
        env={**os.environ, "LOWTIDE_REDIS_URL": "redis://127.0.0.1:1/0"},
    )
    rung, queues = json.loads(done.stdout)
    assert sorted(name for _, names, _ in rung for name in names) == sorted(TURNS), "each once"
    periods = {name: period for period, names, _ in rung for name in names}
    limits = limits_of(load_settings())
    assert periods == {name: max(turn_of(name, limits)[1], 5.0) for name in TURNS}
    assert all(expires == period for period, _, expires in rung)
    assert set(queues) == {turn_of(name, limits)[0] for name in TURNS}
