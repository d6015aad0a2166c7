"""How an estimate is told in the terminal."""

from __future__ import annotations

import io
from typing import Any

from app.cli.estimate import print_estimate
from app.cli.terminal import Terminal

WAITS = "while the deadline is far, Lowtide waits for cheaper machines"


def told(finish_p90: float, simulated: float) -> str:
    row: dict[str, Any] = {
        "market": "auto",
        "cost_p50_microusd": 1_000_000,
        "cost_p90_microusd": 1_200_000,
        "finish_p50_seconds": 4_000.0,
        "finish_p90_seconds": finish_p90,
        "simulated_finish_p90_seconds": simulated,
        "interruptions_mean": 0.5,
        "deadline_chance": 1.0,
        "budget_chance": None,
    }
    found = {
        "estimates": [row],
        "work_seconds": 3_600.0,
        "work_source": "the spec's estimate",
        "scaling": None,
        "earliest_seconds": 5_400.0,
        "acquire_seconds": 1_800.0,
        "risk": None,
        "pools": [],
        "on_demand": None,
        "curve": [],
    }
    out = io.StringIO()
    print_estimate(Terminal(out=out, errors=io.StringIO()), found)
    return out.getvalue()


def test_a_p90_that_counts_waits_stands_beside_the_simulated_one_and_is_explained() -> None:
    text = told(57_780.0, 4_320.0)
    head, row = text.splitlines()[1:3]
    assert "P90 SIMULATED" in head
    assert "16h 3m" in row
    assert "1h 12m" in row
    assert WAITS in text


def test_a_p90_that_was_not_moved_needs_no_words() -> None:
    assert WAITS not in told(4_320.0, 4_320.0)


def test_a_finish_that_counts_a_reserve_is_not_called_the_earliest() -> None:
    """The P50 of spot machines, 1h 6m, is sooner: on-demand machines usually need no reserve."""
    text = told(4_320.0, 4_320.0)
    assert "earliest" not in text
    assert (
        "shortest deadline that on-demand machines keep: 1h 30m; 30m of it are reserved to get them"
    ) in text
