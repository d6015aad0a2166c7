"""How costs are told in the terminal: nothing is called saved that was not."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from app.cli.client import wording
from app.cli.client.terminal import Terminal
from app.cli.demo.demo_story import bill
from app.cli.fleet.cost_commands import _machine_note, _print_verification, print_job_cost
from app.web import formats


def cost(total: int, compared: int | None, ratio: float | None) -> dict[str, Any]:
    """A job's cost as the api answers it."""
    return {
        "statement": {
            "total_microusd": total,
            "by_activity": {"useful": min(8_000, total), "minimum_charge": max(0, total - 8_000)},
            "waived_microusd": 0,
            "on_demand_comparison_microusd": compared,
            "net_saved_microusd": None if compared is None else compared - total,
            "net_saved_ratio": ratio,
        },
        "instances": [],
        "ended_at": "2026-03-01T12:00:00+00:00",
        "status": "final",
        "budget": {"cap_microusd": None, "spent_microusd": total},
        "not_metered": [],
        "unbilled": [],
        "books": {"sentence": "not checked yet ($0.02)"},
    }


@pytest.mark.parametrize(
    ("compared", "ratio", "told", "in_demo"),
    [
        (40_000, 0.5, "$0.040 for the same work, so 50 % saved, net", "50 % saved, net"),
        (
            16_000,
            -0.25,
            "$0.016 for the same work, so this job cost 25 % more",
            "25 % more than on-demand",
        ),
    ],
)
def test_a_job_that_cost_more_than_on_demand_saved_nothing(
    compared: int, ratio: float, told: str, in_demo: str
) -> None:
    out = io.StringIO()
    print_job_cost(Terminal(out=out, errors=io.StringIO()), cost(20_000, compared, ratio))
    assert told in out.getvalue()
    assert "minimum charge $0.012 (60 %)" in out.getvalue()
    assert ("saved" in out.getvalue()) is (ratio > 0)
    lines = bill(cost(20_000, compared, ratio))
    assert lines[-1].endswith(in_demo)
    assert "minimum charge $0.012" in lines[1]


@pytest.mark.parametrize(
    ("ratio", "shown"), [(0.746, "74 %"), (0.9996, "99 %"), (0.29, "29 %"), (-0.256, "-26 %")]
)
def test_a_saving_is_one_figure_on_the_page_in_the_list_the_bill_and_the_demo(
    ratio: float, shown: str
) -> None:
    compared = 1_000_000
    document = cost(round(compared * (1 - ratio)), compared, ratio)
    out = io.StringIO()
    print_job_cost(Terminal(out=out, errors=io.StringIO()), document)
    size = shown.removeprefix("-")
    words = f"{size} saved, net" if ratio > 0 else f"this job cost {size} more"
    in_demo = f"{size} saved, net" if ratio > 0 else f"{size} more than on-demand"
    assert f"so {words}" in out.getvalue()
    assert bill(document)[-1].endswith(in_demo)
    assert formats.saved(ratio) == wording.saved(ratio) == shown


@pytest.mark.parametrize(
    ("state", "so_far"),
    [
        ({}, ""),
        ({"status": "reconciled"}, ""),
        ({"status": "accruing", "ended_at": None}, " so far"),
        ({"status": "provisional"}, " so far"),
        # Paused: all machines' bills are final, and the job may go on.
        ({"ended_at": None}, " so far"),
    ],
)
def test_a_saving_that_may_change_is_told_so_far(state: dict[str, Any], so_far: str) -> None:
    for compared, ratio in ((40_000, 0.5), (16_000, -0.25)):
        out = io.StringIO()
        document = {**cost(20_000, compared, ratio), **state}
        print_job_cost(Terminal(out=out, errors=io.StringIO()), document)
        saved, more = f"so 50 % saved{so_far}, net\n", f"so this job cost 25 % more{so_far}\n"
        assert (saved if ratio > 0 else more) in out.getvalue()


def test_a_faster_bill_is_said_below_a_cost_and_not_where_there_is_none() -> None:
    said = "The local cloud bills 1m for each second; every cost here counts that."
    for speed in (1, 60):
        out = io.StringIO()
        document = {**cost(20_000, None, None), "billing_speed": speed}
        print_job_cost(Terminal(out=out, errors=io.StringIO()), document)
        assert (said in out.getvalue()) is (speed == 60)


def test_a_part_that_is_zero_is_not_listed_and_a_tiny_one_does_not_look_like_zero() -> None:
    found = cost(20_000, None, None)
    found["statement"]["by_activity"] |= {"rework": 0, "drain": 40}
    out = io.StringIO()
    print_job_cost(Terminal(out=out, errors=io.StringIO()), found)
    told = " ".join(out.getvalue().split())
    assert "minimum charge $0.012 (60 %) useful $0.008 (40 %) drain <$0.001 (<1 %)" in told
    assert "rework" not in told
    assert bill(found)[1] == (
        "        where it went: useful $0.008 drain <$0.001 minimum charge $0.012"
    )


def test_a_machine_without_a_price_is_called_by_its_name() -> None:
    out, document = io.StringIO(), cost(20_000, None, None)
    document["unbilled"] = ["01890000-0000-7000-8000-000093ec1b47"]
    document["instances"] = [
        {
            "instance_id": document["unbilled"][0], "label": "m2", "pool": None, "from_at": None,
            "to_at": None, "booked_microusd": 0, "waived_microusd": 0, "status": "provisional",
            "ended_by": None,
        }
    ]  # fmt: skip
    print_job_cost(Terminal(out=out, errors=io.StringIO()), document)
    assert re.search(r"without a price +m2\n", out.getvalue())


@pytest.mark.parametrize(
    ("ended_by", "note"),
    [
        ("cloud_interruption", "final, ended by cloud interruption"),
        ("us", "final, ended by Lowtide"),
        (None, "final"),
    ],
)
def test_every_end_of_a_machine_is_said(ended_by: str | None, note: str) -> None:
    row = {"status": "final", "waived_microusd": 0, "ended_by": ended_by}
    assert _machine_note(row) == note


def test_a_job_that_is_not_compared_says_nothing_of_on_demand() -> None:
    out = io.StringIO()
    print_job_cost(Terminal(out=out, errors=io.StringIO()), cost(20_000, None, None))
    assert "on-demand" not in out.getvalue()


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({}, "12 of them were compared with the cloud's own bill.\n"),
        (
            {"invoiced": 10, "open": 1, "without_invoice": 1},
            "10 of them were compared with the cloud's own bill; not compared: 1 still running, or "
            "not booked to the end, 1 of a cloud whose own bill Lowtide does not read.\n",
        ),
        (
            {"machines": 1, "invoiced": 1},
            "1 machine equals the bill recalculated from facts and "
            "prices; it was compared with the cloud's own bill.\n",
        ),
        (
            {"machines": 1, "invoiced": 0, "open": 1},
            "prices; it was not compared with the cloud's "
            "own bill (still running, or not booked to the end).\n",
        ),
        ({"machines": 2, "invoiced": 1, "open": 1}, "; 1 of them was compared with "),
        ({"invoiced": 11, "revised": 1}, "own bill; not compared: 1 changed since last booked.\n"),
    ],
)
def test_what_is_not_compared_with_a_clouds_bill_has_its_reason(
    counts: dict[str, int], told: str
) -> None:
    found: dict[str, Any] = {
        "verified_at": "2026-03-01T12:00:00+00:00", "machines": 12, "invoiced": 12, "revised": 0,
        "open": 0, "without_invoice": 0, "booked_microusd": 1, "differences": [], "unbilled": [],
        "closed": True, **counts,
    }  # fmt: skip
    out = io.StringIO()
    _print_verification(Terminal(out=out, errors=io.StringIO()), found)
    assert told in out.getvalue()
