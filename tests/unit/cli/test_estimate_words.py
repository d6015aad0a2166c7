"""How an estimate is told in the terminal."""

from __future__ import annotations

import io
import itertools
from typing import Any

from app.cli.client.terminal import Terminal
from app.cli.jobs.estimate_command import print_estimate

WAITS = "while the deadline is far, Lowtide waits for cheaper machines"


POOL: dict[str, Any] = {
    "pool": "local/us-west-2/us-west-2a/p3.2xlarge/spot",
    "microusd_per_hour": 3_672_000,
    "billing_speed": 60,
    "interruptions_per_hour": 0.2,
    "empty_chance": 0.0,
    "expected_microusd": 1_000_000,
    "expected_seconds": 540.0,
    "lived_hours": 1.0,
    "speed": 1.0,
    "speed_source": "measured",
}


def told(finish_p90: float, simulated: float, **fields: Any) -> str:
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
        **fields,
    }
    out = io.StringIO()
    print_estimate(Terminal(out=out, errors=io.StringIO()), found)
    return out.getvalue()


def test_a_p90_that_counts_waits_stands_beside_the_simulated_one_and_is_explained() -> None:
    text = told(57_780.0, 4_320.0)
    head, row = text.splitlines()[1:3]
    assert "P90 SIMULATED" in head
    # Time is what a job took; machines are interrupted.
    assert "INTERRUPTED" in head
    assert "TAKEN" not in head
    assert "16h 3m" in row
    assert "1h 12m" in row
    assert WAITS in text


def test_figures_that_rest_on_on_demand_machines_alone_say_so() -> None:
    """No spot pool has room for the gang: every run found on-demand machines at once."""
    alone = {**POOL, "pool": "local/us-east-1/us-east-1c/p3.2xlarge/on_demand"}
    sentence = (
        "assumes that 64 on-demand machines are available in local us-east-1c; "
        "the cloud does not say how many it has"
    )
    text = told(4_320.0, 4_320.0, on_demand=alone, node_count=64)
    assert f"every figure {sentence}" in text.splitlines()
    assert sentence not in told(4_320.0, 4_320.0, on_demand=alone, pools=[POOL])


def test_a_p90_that_was_not_moved_needs_no_words() -> None:
    assert WAITS not in told(4_320.0, 4_320.0)


def test_a_finish_that_counts_a_reserve_is_not_called_the_earliest() -> None:
    """The P50 of spot machines, 1h 6m, is sooner: on-demand machines usually need no reserve."""
    text = told(4_320.0, 4_320.0)
    assert "earliest" not in text
    assert (
        "shortest deadline that on-demand machines keep: 1h 30m; 30m of it are reserved to get them"
    ) in text


def test_a_finish_says_that_it_counts_no_reserve() -> None:
    reserve = "30m to get on-demand machines count in DEADLINE MET and in the shortest deadline"
    assert f"reserve: {reserve}, not in FINISH" in told(4_320.0, 4_320.0)
    assert "reserve" not in told(4_320.0, 4_320.0, acquire_seconds=0.0)


def test_a_price_is_that_of_all_machines_and_names_that_of_one() -> None:
    several = told(4_320.0, 4_320.0, pools=[POOL], node_count=4).splitlines()
    head, row = next(pair for pair in itertools.pairwise(several) if "POOL ALONE" in pair[0])
    assert head.split()[2:4] == ["$/H", "EACH"]
    assert "3.672  4 × 0.918" in row
    assert "EACH" not in told(4_320.0, 4_320.0, pools=[POOL], node_count=1)


def test_a_faster_bill_is_told_beside_the_costs_that_count_it() -> None:
    line = "The local cloud bills 1m for each second; every cost here counts that."
    assert line in told(4_320.0, 4_320.0, pools=[POOL])
    assert line not in told(4_320.0, 4_320.0, pools=[{**POOL, "billing_speed": 1}])
