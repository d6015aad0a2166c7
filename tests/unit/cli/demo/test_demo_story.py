"""What the demo calls things: as every other command and page does."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.cli.client import wording
from app.cli.demo.demo_report import write_report
from app.cli.demo.demo_story import bill, plan, resumed

JOB: dict[str, Any] = {
    "name": "demo",
    "node_count": 2,
    "spec": {"trainer": {"model": "cnn"}},
}


def offer(pool: str, microusd: int) -> dict[str, Any]:
    return {
        "pool": pool,
        "price_microusd_per_hour": microusd,
        "on_demand_microusd_per_hour": 3_060_000,
        "hazard_per_hour": 0.38,
        "fits": microusd < 3_060_000,
        "why": "fits, cheapest",
    }


def test_a_pool_of_the_local_cloud_is_called_local_in_the_demo_too() -> None:
    offers = [
        offer("local/us-west-2/us-west-2a/p3.2xlarge/spot", 918_000),
        offer("local/us-west-2/us-west-2b/p3.2xlarge/spot", 930_000),
        offer("local/us-west-2/us-west-2a/p3.2xlarge/on_demand", 3_060_000),
    ]
    rows = plan(JOB, offers, "$20", "2h")[3:]
    for row, one in zip(rows, offers, strict=True):
        assert wording.place(one["pool"]) in row
        assert "aws" not in row
    assert len({row.index("-70 %") for row in rows[:2]}) == 1, "the columns stay aligned"


def cost_of(machines: list[tuple[int, int]], activities: list[int]) -> dict[str, Any]:
    """The api's answer for (booked, waived) of each machine, in micro-dollars."""
    names = ("useful", "boot", "idle", "restore", "checkpoint", "drain", "storage", "egress")
    return {
        "instances": [
            {"label": f"m{number}", "booked_microusd": booked, "waived_microusd": waived}
            for number, (booked, waived) in enumerate(machines, 1)
        ],
        "statement": {
            "total_microusd": sum(activities),
            "by_activity": dict(zip(names, activities, strict=False)),
            "on_demand_comparison_microusd": None,
            "net_saved_ratio": None,
        },
    }


def dollars(line: str) -> list[Decimal]:
    """Every amount of a line, with its sign."""
    return [Decimal(one.replace("$", "")) for one in re.findall(r"(?<!<)-?\$[0-9.]+", line)]


def test_the_parts_of_a_bill_add_up_to_its_total() -> None:
    # Each rounded by itself, these are 1.555 + 0.290 + 0.092 and 0.968 + 0.969, over 1.936.
    machines = [(967_600, 458_500), (968_500, 0)]
    lines = bill(cost_of(machines, [1_554_600, 289_900, 91_600]))
    machine_line, went, total = (dollars(line) for line in lines)
    assert [sum(machine_line), sum(went)] == [Decimal("1.936")] * 2 == total * 2
    assert re.search(r"waived -\$0\.458 ", lines[0])


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=8), st.data())
def test_whatever_the_bill_its_parts_add_up(activities: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, sum(activities)))
    waived = data.draw(st.integers(0, 1_000_000))
    lines = bill(cost_of([(first, waived), (sum(activities) - first, 0)], activities))
    machines, went, [total] = (dollars(line) for line in lines)
    assert sum(machines) == sum(went) == total


def test_the_report_says_of_money_what_the_bill_says(tmp_path: Path) -> None:
    cost = cost_of([(1_936_100, 0)], [1_554_600, 289_900, 91_600])
    lines = bill(cost)
    write_report(tmp_path / "report.html", "demo", lines, [], cost)
    legend = re.findall(r"<p>(.*)</p>", (tmp_path / "report.html").read_text())[0]
    assert dollars(legend) == dollars(lines[1])


def test_what_the_save_at_the_notice_was_worth_is_said():
    told = resumed("0:42", "m3", 341, 0, 6)
    assert told.endswith(" · 0 steps redone (without the save at the notice: 6)")
    assert resumed("0:42", "m3", 341, 0, None).endswith(" · 0 steps redone")
