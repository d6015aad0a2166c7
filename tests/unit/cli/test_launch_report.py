"""What a trial launch prints: on a screen, in a pipe, when all goes well and when it does not."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from app.cli.client.failures import CommandFailed
from app.cli.client.terminal import Terminal
from app.cli.server.launch_plan import GRACE_SECONDS, TrialRequest, make_launch_plan
from app.cli.server.launch_report import LaunchReport
from app.cli.server.launch_stages import ORDER, LaunchPhase, StageView

NOW = datetime(2031, 1, 1, tzinfo=UTC)


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def views(done: int, failed: LaunchPhase | None = None) -> list[StageView]:
    shown = [StageView(stage, True, 2.0, f"{stage.value} went well") for stage in ORDER[:done]]
    shown += [StageView(stage) for stage in ORDER[done:]]
    if failed is not None:
        at = ORDER.index(failed)
        shown[at] = StageView(failed, False, 61.0, "it broke", "mend it", ("the last line",))
    return shown


def event(kind: str, message: str) -> Mapping[str, Any]:
    return {"kind": kind, "message": message}


def test_a_pipe_gets_each_thing_once_and_a_line_now_and_then() -> None:
    out = io.StringIO()
    report = LaunchReport(Terminal(out=out), 1_800)
    refused = [event("launch_refused", "Refused: no_capacity"), event("claimed", "not worth it")]
    for seconds in range(0, 95, 5):
        report.show(views(1), refused, float(seconds))
    report.end(views(6), 9_000, "doctor-1")
    text = out.getvalue()
    assert "\r" not in text
    assert "\x1b" not in text
    assert text.count("Refused: no_capacity") == 1
    assert "not worth it" not in text
    assert text.count("boot … ") == 3, "every thirty seconds"
    assert "boot … 1m of at most 30m" in text
    for stage in ORDER:
        assert text.count(f"✓ {stage.value}") == 1
    assert text.endswith("It works. It cost $0.009 so far: lowtide cost doctor-1\n")


def test_a_screen_shows_what_is_waited_for_in_one_line() -> None:
    screen = Screen()
    report = LaunchReport(Terminal(out=screen, no_color=True), 600)
    report.show(views(1), [], 42.0)
    report.show(views(2), [], 43.0)
    report.wait_for_end(["i-1"])
    report.end(views(6), 0, "doctor-1")
    text = screen.getvalue()
    assert "\r\x1b[K" in text
    assert "boot … 42s of at most 10m" in text
    assert "register … 43s" in text
    assert "release … 1 machine left" in text


def test_a_failure_is_told_with_its_log_and_what_to_do_also_when_quiet() -> None:
    out = io.StringIO()
    report = LaunchReport(Terminal(out=out, quiet=True), 600)
    report.show(views(1), [], 1.0)
    report.end(views(1, LaunchPhase.BOOT), 0, "doctor-1")
    lines = out.getvalue().splitlines()
    assert lines[0] == "✗ boot          1m 1s  it broke"
    assert [line.strip() for line in lines[1:]] == ["| the last line", "→ mend it"]


def offer(price: int, until: str | None = None, **changes: Any) -> dict[str, Any]:
    place = changes.get("zone", "us-east-1a")
    kind = changes.get("kind", "g4dn.xlarge")
    return {
        "pool": f"aws/{place[:-1]}/{place}/{kind}/spot",
        "provider": "aws",
        "region": place[:-1],
        "hardware": {
            "gpu_name": "T4",
            "gpu_memory_gb": 16,
            "gpu_count": 1,
            "interconnect": "",
            "fast_network": "",
            "vcpus": 4,
            "memory_gb": 16,
        },
        "price_microusd_per_hour": price,
        "on_demand_microusd_per_hour": 526_000,
        "cloud": "ec2",
        "quoted_at": NOW.isoformat(),
        "price_source": "test",
        "available": None,
        "billing_speed": 1,
        "cool_until_at": until,
        "cool_reason": None if until is None else "denied",
    }


def test_the_plan_is_bounded_in_time_and_money_whoever_follows_it() -> None:
    offers = [
        offer(900_000, kind="g6.xlarge"),
        offer(158_000),
        offer(190_000, zone="us-west-2a"),
    ]
    plan = make_launch_plan(TrialRequest(nodes=2, timeout_seconds=1_800), "doctor-1", offers, NOW)
    spec = plan.spec("sha256:" + "1" * 64)
    assert (spec["market"], spec["on_deadline"], spec["retries"]) == ("spot", "stop", 0)
    assert spec["deadline"] == f"{1_800 + GRACE_SECONDS}s"
    # Two machines for an hour, `--timeout` and as long again, a quarter dearer than the cheapest.
    assert (spec["budget_usd"], plan.most_microusd) == ("0.40", 400_000)
    assert spec["instance_types"] == ["g4dn.xlarge"]
    assert plan.usual_microusd == round(2 * 158_000 / 6)
    told = " ".join(plan.sentences())
    assert "aws us-east-1a g4dn.xlarge spot, 1 × T4 16 GB, $0.158 an hour each" in told
    assert "at most $0.400, the job's budget" in told
    assert plan.pools == {"aws/us-east-1/us-east-1a/g4dn.xlarge/spot",
                          "aws/us-west-2/us-west-2a/g4dn.xlarge/spot"}  # fmt: skip
    west = make_launch_plan(TrialRequest(region="us-west-2"), "doctor-1", offers, NOW)
    assert west.spec("sha256:" + "1" * 64)["infra"] == ["aws/us-west-2"]


@pytest.mark.parametrize(
    ("wish", "offers", "said"),
    [
        (TrialRequest(), [], "no prices are known yet"),
        (
            TrialRequest(region="mars-1"),
            [offer(1)],
            "nothing is offered in mars-1; there are aws/us-east",
        ),
        (TrialRequest(region="us-east-1", infra="aws/us-east-1"), [offer(1)], "leave --region out"),
        (TrialRequest(gpu="L44"), [offer(1)], "did you mean 'L4'"),
        (TrialRequest(gpu="H100"), [offer(1)], "Nothing can start now"),
        (
            TrialRequest(),
            [offer(1, "2031-01-01T00:05:00+00:00")],
            "cools down until 00:05:00 UTC after a refusal",
        ),
    ],
)
def test_what_cannot_be_rented_is_said_before_anything_is_submitted(
    wish: TrialRequest, offers: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(CommandFailed) as failed:
        make_launch_plan(wish, "doctor-1", offers, NOW)
    assert said in " ".join(failed.value.lines())
