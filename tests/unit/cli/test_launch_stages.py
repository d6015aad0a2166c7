"""What a trial launch reads from a job's history: stages, their times, and what failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.cli.server.launch_stages import (
    REMEDIES,
    JobHistory,
    LaunchPhase,
    StageFailure,
    failed_views,
    failure_of,
    failure_of_pools,
    late,
    may_ask_pools,
    refusal_failure,
    refused_everywhere,
    running,
    still_there,
    views,
)

BEGAN = datetime(2031, 1, 1, tzinfo=UTC)
AWS_POOL = "aws/us-east-1/us-east-1a/g4dn.xlarge/spot"
STEPS = (
    "launch_accepted", "agent_registered", "trainer_started", "checkpoint_committed",
    "attempt_succeeded",
)  # fmt: skip


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat()


def event(kind: str, seconds: float, message: str = "said") -> dict[str, Any]:
    return {"kind": kind, "at": at(seconds), "message": message}


def machine(**changes: Any) -> dict[str, Any]:
    return {
        "name": "m1",
        "provider": "aws",
        "provider_instance_id": "i-0abc",
        "pool": AWS_POOL,
        "region": "us-east-1",
        "zone": "us-east-1a",
        "state": "running",
        "launched_at": at(1),
        "registered_at": at(100),
        "release_ordered_at": None,
        "ended_at": None,
        "ended_by": None,
        **changes,
    }


def attempt(**changes: Any) -> dict[str, Any]:
    return {"end_reason": None, "end_message": None, "first_step_at": None, **changes}


def story(
    kinds: int = 0,
    *,
    nodes: int = 1,
    state: str = "starting",
    why: str | None = None,
    events: tuple[dict[str, Any], ...] = (),
    attempts: tuple[dict[str, Any], ...] = (),
    machines: tuple[dict[str, Any], ...] = (),
) -> JobHistory:
    """So many of the steps of a good launch, ten seconds apart, and what else there is."""
    good = tuple(event(kind, 10.0 * (number + 1)) for number, kind in enumerate(STEPS[:kinds]))
    job = {"submitted_at": at(0), "node_count": nodes, "state": state, "why": why}
    return JobHistory(job, (*good, *events), attempts, machines)


def test_each_stage_takes_from_the_end_of_the_one_before() -> None:
    gone = machine(state="terminated", ended_at=at(70), ended_by="us")
    done = story(5, state="succeeded", attempts=(attempt(first_step_at=at(34)),), machines=(gone,))
    took = {one.stage: (one.ok, one.seconds) for one in views(done)}
    assert took == {
        LaunchPhase.RENT: (True, 10.0),
        LaunchPhase.BOOT: (True, 10.0),
        LaunchPhase.REGISTER: (True, 10.0),
        LaunchPhase.TRAIN: (True, 4.0),
        LaunchPhase.CHECKPOINT: (True, 6.0),
        LaunchPhase.GIVE_BACK: (True, 30.0),
    }
    assert failure_of(done) is None
    assert still_there(done) == []
    assert "m1 (i-0abc, aws us-east-1a g4dn.xlarge spot)" in views(done)[0].sentence


@pytest.mark.parametrize(
    ("kinds", "stage"),
    [
        (0, LaunchPhase.RENT),
        (1, LaunchPhase.BOOT),
        (2, LaunchPhase.REGISTER),
        (3, LaunchPhase.TRAIN),
    ],
)
def test_the_stage_that_runs_is_the_first_that_is_not_over(kinds: int, stage: LaunchPhase) -> None:
    assert running(story(kinds)) is stage
    failure = failure_of(story(kinds, state="paused", why="aws refuses the launch (denied): no"))
    assert failure == StageFailure(stage, "aws refuses the launch (denied): no", REMEDIES[stage])


def test_a_gang_is_rented_when_its_last_machine_is() -> None:
    assert running(story(1, nodes=2)) is LaunchPhase.RENT
    both = story(1, nodes=2, events=(event("launch_accepted", 12),))
    assert running(both) is LaunchPhase.BOOT


def test_a_machine_tells_why_it_did_not_boot() -> None:
    told = story(1, events=(event("boot_failed", 60, "its agent could not start: no Python"),))
    failure = failure_of(told)
    assert failure is not None
    assert failure.stage is LaunchPhase.BOOT
    assert "no Python" in failure.reason
    assert "docs/machines.md" in failure.remedy


@pytest.mark.parametrize(
    ("ended_by", "ordered_at", "fails"),
    [
        ("os_shutdown", None, True),
        ("unknown", None, True),
        ("cloud_interruption", None, False),  # spot took it: another one is asked for
        ("cloud_capacity", None, False),
        ("us", at(40), False),
    ],
)
def test_a_machine_that_ends_before_it_calls(
    ended_by: str, ordered_at: str | None, fails: bool
) -> None:
    ended = machine(
        registered_at=None,
        state="terminated",
        ended_at=at(50),
        ended_by=ended_by,
        release_ordered_at=ordered_at,
    )
    failure = failure_of(story(1, machines=(ended,)))
    assert (failure is not None) is fails
    if failure is not None:
        assert failure.stage is LaunchPhase.BOOT
        assert "aws ec2 get-console-output" in failure.remedy
        assert "--region us-east-1 --instance-id i-0abc" in failure.remedy


@pytest.mark.parametrize("reason", ["spot_interrupted", "no_capacity", "finished"])
def test_what_a_market_does_is_no_failure(reason: str) -> None:
    ended = attempt(end_reason=reason, end_message="the cloud took it")
    assert failure_of(story(2, attempts=(ended,))) is None


def test_a_machine_that_never_called_is_named_with_its_console() -> None:
    silent = machine(registered_at=None)
    ended = attempt(end_reason="registration_timeout", end_message="Not registered in 600 s")
    failure = failure_of(story(1, attempts=(ended,), machines=(silent,)))
    assert failure is not None
    assert failure.stage is LaunchPhase.REGISTER
    assert failure.reason.startswith("Not registered in 600 s: nothing was heard from m1 (i-0abc, ")
    assert "LOWTIDE_PUBLIC_URL" in failure.remedy
    google = machine(
        provider="gcp",
        provider_instance_id="us-central1-a/lt-abc",
        zone="us-central1-a",
        registered_at=None,
    )
    over = late(story(1, machines=(google,)), 600)
    assert over.stage is LaunchPhase.REGISTER
    assert "--timeout of 10m is over" in over.reason
    assert "get-serial-port-output lt-abc --zone us-central1-a" in over.remedy


def test_the_bucket_is_what_is_wrong_where_the_store_is() -> None:
    ended = attempt(end_reason="store_unavailable", end_message="AccessDenied")
    failure = failure_of(story(2, attempts=(ended,)))
    assert failure is not None
    assert "the machines' role" in failure.remedy


def test_a_machine_that_the_control_plane_gave_up() -> None:
    """Its attempt goes on with another machine, for ever; the pool's rest tells why."""
    silent = machine(registered_at=None, release_ordered_at=at(600), state="terminated")
    waits = story(1, machines=(silent,))
    assert failure_of(waits) is None
    assert may_ask_pools(waits)
    assert not may_ask_pools(story(1, machines=(machine(),)))
    pools = frozenset({AWS_POOL})
    asked = {AWS_POOL: offer("registration_timeout")}
    failure = failure_of_pools(waits, asked, pools, BEGAN)
    assert failure is not None
    assert failure.stage is LaunchPhase.REGISTER
    assert "nothing was heard from m1 (i-0abc, " in failure.reason
    assert failure_of_pools(waits, {AWS_POOL: offer(None)}, pools, BEGAN) is None
    assert may_ask_pools(story())
    assert failure_of_pools(story(), {AWS_POOL: offer("denied")}, pools, BEGAN) is not None
    refused = story(events=(event("launch_refused", 3),))
    assert failure_of_pools(refused, {AWS_POOL: offer("quota")}, pools, BEGAN) is not None


def test_late_in_the_queue_says_what_it_waits_for() -> None:
    failure = late(story(state="queued", why="no pool has capacity"), 60)
    assert failure.stage is LaunchPhase.RENT
    assert failure.reason == "--timeout of 1m is over: no pool has capacity"


def offer(kind: str | None) -> dict[str, Any]:
    until = None if kind is None else at(600)
    return {"pool": AWS_POOL, "cool_until_at": until, "cool_reason": kind}


@pytest.mark.parametrize(
    ("kind", "told"),
    [("quota", "quota"), ("denied", "denied"), ("rejected", "rejected"), ("no_capacity", None),
     ("unavailable", None), (None, None)],
)  # fmt: skip
def test_waiting_is_given_up_where_only_a_person_can_help(
    kind: str | None, told: str | None
) -> None:
    pools = frozenset({AWS_POOL})
    assert refused_everywhere({AWS_POOL: offer(kind)}, pools, BEGAN) == told
    assert refused_everywhere({AWS_POOL: offer("quota")}, pools | {"other"}, BEGAN) is None
    assert refused_everywhere({}, frozenset(), BEGAN) is None


def test_a_refusal_is_told_in_the_cloud_s_words_with_what_to_do() -> None:
    said = event("launch_refused", 3, "Refused: quota: MaxSpotInstanceCountExceeded")
    failure = refusal_failure(story(events=(said,)), "quota")
    assert failure.reason == "Refused: quota: MaxSpotInstanceCountExceeded"
    assert "GPU quota" in failure.remedy


def test_of_a_failed_launch_the_rest_is_open_and_the_end_is_told() -> None:
    failure = StageFailure(LaunchPhase.BOOT, "no Python", "another image")
    gone = machine(state="terminated", ended_at=at(70), ended_by="os_shutdown")
    shown = failed_views(story(3, machines=(gone,)), failure, 25.0, ("last line",))
    assert [one.ok for one in shown] == [True, False, None, None, None, True]
    assert shown[1].seconds == 15.0
    assert shown[1].log == ("last line",)
    assert "its own shutdown" in shown[-1].sentence
    nothing = failed_views(story(), StageFailure(LaunchPhase.RENT, "no", "ask"), 5.0, ())
    assert nothing[-1].sentence == "nothing was rented"
    there = failed_views(story(1, machines=(machine(),)), failure, 25.0, ())
    assert there[-1].ok is None
    unanswered = machine(provider_instance_id=None, state="launching")
    assert still_there(story(machines=(unanswered,))) == ["one that the cloud has not answered for"]
