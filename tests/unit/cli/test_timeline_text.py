"""The tide chart as text: each column is the same length of time, for every lane."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.cli.jobs.timeline_text import LANES_MAX, LEGEND, Timeline, timeline_lines

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = START + timedelta(seconds=200)


def at(seconds: float | None) -> str | None:
    return None if seconds is None else (START + timedelta(seconds=seconds)).isoformat()


def machine(name: str, first: float, up: float | None, **fields: Any) -> dict[str, Any]:
    return {
        "id": name, "requested_at": at(first), "launched_at": at(up), "noticed_at": None,
        "ended_at": None, "ended_by": None, "state": "registered", "microusd_per_hour": 918_000,
        "name": None if up is None else {"a": "m1", "b": "m2", "c": "m3"}.get(name, name), **fields,
    }  # fmt: skip


def attempt(fence: int, last: float | None, *members: str) -> dict[str, Any]:
    return {
        "fence": fence, "ended_at": at(last),
        "members": [{"instance_id": one} for one in members],
    }  # fmt: skip


def job(**fields: Any) -> dict[str, Any]:
    progress = {"step": 80, "total_steps": 100}
    return {"state": "running", "ended_at": None, "progress": progress, **fields}


MACHINES = [
    machine("a", 0, 20),
    machine("b", 0, 20, noticed_at=at(90), ended_at=at(120), ended_by="cloud_interruption"),
    machine("c", 95, 105),
]
ATTEMPTS = [attempt(1, 100, "a", "b"), attempt(2, None, "a", "c")]
POINTS = [
    {"fence": 1, "step": 1, "at": at(40)},
    {"fence": 1, "step": 40, "at": at(95)},
    {"fence": 2, "step": 41, "at": at(140)},
    {"fence": 2, "step": 80, "at": at(199)},
]


def drawn(width: int = 54, **fields: Any) -> list[str]:
    """Forty columns of five seconds, behind thirteen of labels."""
    told = {"job": job(), "attempts": ATTEMPTS, "instances": MACHINES, "points": POINTS, **fields}
    return timeline_lines(Timeline(now=NOW, **told), width)


def test_lanes_and_progress_share_one_axis():
    assert drawn() == [
        " " * 13 + "0:00              1:40              3:20",
        "step 80      " + " " * 8 + "▁" * 11 + "▃" + " " * 8 + "▃" * 12,
        "m1 $0.918/h  " + "····▒▒▒▒" + "█" * 12 + "▒" * 8 + "█" * 12,
        "m2 $0.918/h  " + "····▒▒▒▒" + "█" * 10 + "▼█" + "▒▒▒▒×",
        "m3 $0.918/h  " + " " * 19 + "··" + "▒" * 7 + "█" * 12,
        LEGEND,
    ]


def test_nothing_trains_before_the_first_steps_are_reported():
    assert "█" not in "".join(drawn(points=[])[:-1])


def test_without_a_machine_there_is_no_chart():
    assert drawn(instances=[]) == []


def test_a_notice_and_the_end_it_announces_are_both_seen_in_one_column():
    short = machine("b", 0, 20, noticed_at=at(90), ended_at=at(91), ended_by="cloud_interruption")
    assert "▼×" in drawn(instances=[MACHINES[0], short])[3]


def test_a_refused_launch_and_many_machines_stay_within_the_screen():
    refused = machine("z", 50, None, state="launch_failed", microusd_per_hour=None)
    many = [machine(str(number), number, number + 1) for number in range(LANES_MAX)]
    lines = drawn(60, instances=[refused, *many], points=[], job=job(progress={
        "step": 0, "total_steps": None,
    }))  # fmt: skip
    assert "1 earlier machine not shown" in lines
    assert lines[1].startswith("no step")
    assert len(lines) == LANES_MAX + 4
    assert all(len(line) <= 60 for line in lines[:-1])
