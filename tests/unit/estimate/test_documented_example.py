"""The example of docs/what-if.md is what the command prints for its job today."""

from __future__ import annotations

import io
import math
from dataclasses import asdict
from typing import Any

from app.adapters.seeded_draws import seeded_draws
from app.cli.client.terminal import Terminal
from app.cli.jobs.estimate_command import print_estimate
from app.domain.estimate.job_estimate import (
    Forecast,
    deadline_curve,
    earliest_finish_seconds,
    estimates,
)
from app.domain.estimate.simulated_run import EstimateInput, PoolQuote
from tests.support.sources.source_tree import ROOT

HOUR = 3_600.0
PAGE = ROOT / "docs/what-if.md"
JOB = EstimateInput(
    work_seconds=10 * HOUR,
    spot=tuple(PoolQuote(zone, 3_600_000, minimum_seconds=60) for zone in "abc"),
    on_demand=PoolQuote("a", 10_800_000, minimum_seconds=60),
    boot_seconds=360.0,
    acquire_seconds=1_800.0,
    deadline_seconds=20 * HOUR,
    budget_microusd=100_000_000,
)


def figures(forecast: Forecast) -> dict[str, Any]:
    """As the api answers them: what never ends has no number."""
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in asdict(forecast).items()
    }


def test_the_page_shows_what_the_command_prints() -> None:
    answer = {
        "estimates": [figures(one) for one in estimates(JOB, seeded_draws(0))],
        "curve": [
            {"deadline_seconds": point.deadline_seconds, **figures(point.estimate)}
            for point in deadline_curve(JOB, seeded_draws(0))
        ],
        "work_seconds": JOB.work_seconds,
        "work_source": "the spec's estimate",
        "scaling": None,
        "pools": [],
        "on_demand": None,
        "earliest_seconds": earliest_finish_seconds(JOB),
        "acquire_seconds": JOB.acquire_seconds,
        "risk": None,
    }
    out = io.StringIO()
    print_estimate(Terminal(out=out, errors=io.StringIO()), answer)
    printed = {line.rstrip() for line in out.getvalue().splitlines()}
    shown = PAGE.read_text(encoding="utf-8").split("```")[3].splitlines()
    # Two lines of the page are one of the command, which a page would have to scroll.
    wrapped = [line for line in shown if line.startswith(("finish P90", "than in the"))]
    assert " ".join(wrapped) in printed
    assert [line for line in shown if line.rstrip() not in {*printed, *wrapped}] == []
    assert len(shown) > 12
