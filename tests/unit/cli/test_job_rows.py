"""Rows and last lines: a job's times, what of its cost a cloud waived, a machine's names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest

from app.cli.client.job_view import next_commands
from app.cli.client.terminal import Terminal
from app.cli.fleet.instance_commands import names_of
from app.cli.jobs.follow import finish
from app.cli.jobs.list_commands import _columns

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def cells(**fields: Any) -> dict[str, str]:
    job: dict[str, Any] = {
        "id": "01a20ae6-5801-7c48-95ca-818ea62018d9",
        "name": "digits",
        "state": "running",
        "percent": None,
        "step": 0,
        "ended_at": None,
        "remaining_seconds": None,
        "eta_from": None,
        "deadline_at": None,
        "pools": [],
        "machines": 0,
        "microusd_per_hour": 0,
        "spent_microusd": 370_000,
        "net_saved_ratio": None,
        **fields,
    }
    return {column.heading: column.text(job) for column in _columns(NOW)}


@pytest.mark.parametrize(
    ("state", "end_reason", "lines"),
    [
        ("paused", "user_paused", ["Continue: lowtide resume digits"]),
        (
            "paused",
            "budget_exhausted",
            ["Continue with a larger budget: lowtide resume digits --budget +50"],
        ),
        ("running", None, []),
    ],
)
def test_a_larger_budget_is_named_only_where_the_budget_paused_the_job(
    state: str, end_reason: str | None, lines: list[str]
) -> None:
    assert next_commands({"name": "digits", "state": state, "end_reason": end_reason}) == lines


@pytest.mark.parametrize(
    ("budget", "line"),
    [
        ("job", "Continue with a larger budget: lowtide resume digits --budget +50"),
        ("project", "Continue: lowtide resume digits"),
        (
            "project_month",
            "It continues by itself once the project's budget of the month has money again: "
            "lowtide budget",
        ),
        (
            "deployment_month",
            "It continues by itself once the deployment's budget of the month has money again.",
        ),
    ],
)
def test_a_larger_budget_of_the_job_is_no_help_where_another_one_paused_it(
    budget: str, line: str
) -> None:
    job = {"name": "digits", "state": "paused", "end_reason": "budget_exhausted"}
    assert next_commands({**job, "paused_by_budget": budget}) == [line]


def test_the_explanation_of_the_release_before_has_no_end_reason():
    told = next_commands({"name": "digits", "state": "paused"})
    assert told == ["Continue: lowtide resume digits"]


@pytest.mark.parametrize(
    ("left", "eta_from", "deadline", "told"),
    [
        (None, None, None, "-"),
        (725, "measured", None, "in 12m 5s"),
        (725, "estimate", None, "in ~12m 5s"),
        (725, "measured", 2 * HOUR, "in 12m 5s / in 2h"),
        (7_200, "measured", HOUR, "in 2h / in 1h, late"),
        (None, None, 2 * HOUR, "due in 2h"),
        (None, None, -HOUR, "missed 1h ago"),
        (60, "measured", -HOUR, "in 1m / missed 1h ago"),
    ],
)
def test_its_end_and_its_deadline_are_both_told_from_now_on(
    left: int | None, eta_from: str | None, deadline: timedelta | None, told: str
) -> None:
    due = None if deadline is None else (NOW + deadline).isoformat()
    found = cells(remaining_seconds=left, eta_from=eta_from, deadline_at=due)
    assert found["ETA/DEADLINE"] == told


def test_what_a_cloud_waived_is_marked_at_its_cost() -> None:
    assert cells()["COST"] == "$0.370"
    assert cells(waived=True)["COST"] == "$0.370, some waived"


RUNNING: dict[str, Any] = {
    "job_name": "bert-ft",
    "name": "m2",
    "provider": "aws",
    "provider_instance_id": "i-0abc",
}


def test_a_machine_goes_by_its_name_and_by_the_clouds_id():
    assert names_of(RUNNING)[:2] == ["bert-ft/m2", "i-0abc"]


def test_a_machine_that_the_cloud_has_not_named_yet_has_no_name():
    """Else a dash, or `bert-ft/None`, would interrupt it."""
    assert names_of({**RUNNING, "name": None, "provider_instance_id": None}) == []


@pytest.mark.parametrize("saved_at", [None, "2031-01-01T12:00:00Z"])
def test_a_download_is_offered_of_what_was_saved(saved_at: str | None):
    out = StringIO()
    job = {
        "name": "tiny",
        "state": "succeeded",
        "why": None,
        "money": {"spent_microusd": 1_000},
        "progress": {"last_checkpoint_at": saved_at},
    }
    finish(Terminal(out=out), job)
    assert ("lowtide download tiny" in out.getvalue()) is (saved_at is not None)
    assert ("lowtide logs tiny" in out.getvalue()) is (saved_at is None)


def test_a_job_that_is_not_done_does_not_look_done():
    assert cells(percent=99.9)["PROGRESS"].endswith(" 99 %")


def test_a_job_before_its_first_step_has_no_progress_yet():
    assert cells(percent=0.0)["PROGRESS"] == "-"
    assert cells(percent=0.0, step=1)["PROGRESS"].endswith(" 0 %")
