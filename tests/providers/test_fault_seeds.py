"""Seeded schedules of faults on both fake clouds, and for ever the seeds that once failed.

A few in every run, the others in full. More of them:
FAULT_SEEDS=1000-1099 pytest tests/providers/test_fault_seeds.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.simulation.engine.seeded_entropy import Dice
from tests.support.aws.aws_parts import ENVIRONMENT
from tests.support.faults.fault_rules import check
from tests.support.faults.fault_schedule import FaultRun
from tests.support.faults.scripted_aws import scripted_aws
from tests.support.faults.scripted_cloud import ScriptedCloud, ScriptedTime
from tests.support.faults.scripted_gce import scripted_gce

# In every run Google's faults are in tests/providers/gcp/test_gcp_faults.py, without the books.
SHORT = [("aws", 1)]
SEEDS = range(1, 9)
REGRESSIONS = Path(__file__).with_name("fault_regressions.txt")
CLOUDS: dict[str, Callable[[ScriptedTime, Dice], AbstractContextManager[ScriptedCloud]]] = {
    "aws": scripted_aws,
    "gcp": scripted_gce,
}


def seeds() -> list[Any]:
    """(cloud, seed): the usual ones, those that once failed, or what FAULT_SEEDS names."""
    asked = os.environ.get("FAULT_SEEDS")
    if asked:
        first, _, last = asked.partition("-")
        return [
            (name, seed) for name in CLOUDS for seed in range(int(first), int(last or first) + 1)
        ]
    lines = (line.partition("#")[0].split() for line in REGRESSIONS.read_text().splitlines())
    failed = [(cloud, int(seed)) for cloud, seed in filter(None, lines)]
    every = ((name, seed) for name in CLOUDS for seed in SEEDS)
    long = [*(each for each in every if each not in SHORT), *failed]
    return [*SHORT, *(pytest.param(*each, marks=pytest.mark.full) for each in long)]


@pytest.mark.parametrize(("cloud", "seed"), seeds())
def test_whatever_fails_nothing_is_left_or_started_twice_and_the_books_agree(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cloud: str, seed: int
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    time = ScriptedTime()
    with CLOUDS[cloud](time, Dice(seed, "cloud")) as fake:
        run = FaultRun(engine, tmp_path / "store", fake, seed)
        run.play()
        check(run)
        assert run.log
