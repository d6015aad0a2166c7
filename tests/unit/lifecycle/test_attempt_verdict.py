"""The verdict over a gang's ends: one test per rule, and the ways in which rules meet."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.attempt_verdict import (
    AttemptVerdict,
    MemberEnd,
    MemberOutcome,
    Stall,
    settle,
)
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.instance import EndedBy

START = datetime(2026, 3, 1, tzinfo=UTC)


def ended(rank: int, outcome: str, **known: Any) -> MemberEnd:
    return MemberEnd(rank, MemberOutcome(outcome), **known)


def peer_error(rank: int) -> MemberEnd:
    return ended(rank, "failed", peer_communication=True, exit_code=1, failed_at=START)


def decide(*members: MemberEnd, **known: Any) -> AttemptVerdict | None:
    given: dict[str, Any] = {"final_manifest": False, "deadline_passed": False} | known
    return settle(members, **given)


def outcome(*members: MemberEnd, **known: Any) -> tuple[str, str]:
    verdict = decide(*members, **known)
    assert verdict is not None
    return verdict.state.value, verdict.end_reason.value


STALL = Stall(900, 412)
STOP = {"our_order": DrainCause.STOP, "order_reason": EndReason.USER_CANCELLED}
YIELD = {"our_order": DrainCause.YIELD, "order_reason": EndReason.MIGRATED}


def test_a_final_manifest_wins_over_everything_and_at_once():
    taken = MemberEnd(0, noticed=True, ended_by=EndedBy.CLOUD_INTERRUPTION)
    result = outcome(taken, MemberEnd(1), peer_error(2), final_manifest=True, **STOP)
    assert result == ("succeeded", "finished")


def test_a_stop_that_all_who_can_speak_have_followed():
    gone = MemberEnd(1, gone_with_two_witnesses=True)
    taken = MemberEnd(2, ended_by=EndedBy.CLOUD_INTERRUPTION)
    assert outcome(ended(0, "drained"), gone, taken, **STOP) == ("stopped", "user_cancelled")
    assert outcome(ended(0, "stopped"), **STOP) == ("stopped", "user_cancelled")
    assert outcome(gone, taken, **STOP) == ("stopped", "user_cancelled")


def test_a_yield_needs_somebody_who_followed_it():
    assert outcome(ended(0, "drained"), ended(1, "drained"), **YIELD) == ("yielded", "migrated")
    gone = MemberEnd(0, gone_with_two_witnesses=True)
    assert outcome(gone, **YIELD) == ("lost", "contact_lost")


def test_a_rank_that_failed_during_our_stop_is_not_hidden_by_it():
    failed = ended(1, "failed", exit_code=3)
    assert outcome(ended(0, "drained"), failed, **STOP) == ("failed", "user_error")


def test_an_order_needs_its_reason():
    with pytest.raises(ValueError, match="reason"):
        decide(ended(0, "drained"), our_order=DrainCause.STOP)
    with pytest.raises(ValueError, match="member"):
        decide()


def test_survivors_that_lost_their_peer_wait_for_its_notice():
    assert decide(peer_error(0), MemberEnd(1)) is None
    verdict = decide(peer_error(0), MemberEnd(1, noticed=True))
    assert verdict is not None
    assert (verdict.state, verdict.end_reason) == ("interrupted", "spot_interrupted")
    assert verdict.node_rank == 1


@pytest.mark.parametrize(
    ("ended_by", "reason"),
    [
        (EndedBy.CLOUD_INTERRUPTION, "spot_interrupted"),
        (EndedBy.CLOUD_CAPACITY, "no_capacity"),
        (EndedBy.CLOUD_FAILURE, "machine_failed"),
    ],
)
def test_what_the_cloud_ended_is_interrupted(ended_by: EndedBy, reason: str):
    taken = MemberEnd(1, ended_by=ended_by, gone_with_two_witnesses=True)
    own_failure = ended(0, "failed", exit_code=1)
    assert outcome(own_failure, taken) == ("interrupted", reason)


def test_a_drain_for_a_notice_is_an_interruption_whoever_was_noticed():
    result = outcome(ended(0, "stopped"), peer_error(1), our_order=DrainCause.INTERRUPTION)
    assert result == ("interrupted", "spot_interrupted")


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (MemberEnd(1, gone_with_two_witnesses=True), "contact_lost"),
        (MemberEnd(1, ended_by=EndedBy.US), "contact_lost"),
        (MemberEnd(1, ended_by=EndedBy.OS_SHUTDOWN), "machine_failed"),
        (MemberEnd(1, ended_by=EndedBy.OUTSIDER), "machine_failed"),
    ],
)
def test_a_member_gone_with_two_witnesses_is_lost(member: MemberEnd, reason: str):
    assert outcome(peer_error(0), member) == ("lost", reason)


def test_a_machine_that_ended_after_its_own_report_is_not_lost():
    reported = ended(0, "failed", exit_code=2, ended_by=EndedBy.OS_SHUTDOWN)
    assert outcome(reported) == ("failed", "user_error")


def test_the_earliest_rank_with_a_cause_of_its_own_decides():
    late = ended(0, "failed", exit_code=9, failed_at=START + timedelta(seconds=5))
    first = ended(
        2,
        "failed",
        exit_code=4,
        failed_at=START + timedelta(seconds=2),
        error_type="ValueError",
        message="bad label 11",
    )
    untimed = ended(3, "failed", exit_code=8)
    verdict = decide(late, peer_error(1), first, untimed)
    assert verdict == AttemptVerdict(
        AttemptState.FAILED,
        EndReason.USER_ERROR,
        "Node 2 failed with exit code 4: ValueError: bad label 11.",
        2,
        4,
        "ValueError: bad label 11",
    )


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"out_of_memory": True}, "out_of_memory"),
        ({"reason": EndReason.PREPARATION_FAILED}, "preparation_failed"),
        ({"reason": EndReason.GPU_FAULT}, "gpu_fault"),
        ({"exit_code": 1}, "user_error"),
    ],
)
def test_a_failing_rank_brings_its_reason(known: dict[str, Any], reason: str):
    assert outcome(ended(0, "failed", **known), peer_error(1)) == ("failed", reason)


def test_a_stall_outranks_the_exit_codes_of_the_ranks_it_killed():
    killed = [ended(0, "failed", exit_code=-9), ended(1, "stopped")]
    assert outcome(*killed, stall=STALL) == ("failed", "stalled")
    gone = MemberEnd(1, gone_with_two_witnesses=True)
    assert outcome(killed[0], gone, stall=STALL) == ("lost", "contact_lost")


@pytest.mark.parametrize(
    ("stall", "told"),
    [
        (Stall(900, 1_412), "a step after step 1,412 within the `stall_timeout` of 15m"),
        (Stall(5_400, 0), "its first step within the `stall_timeout` of 1h 30m"),
        (Stall(60, None), "its first step within the `stall_timeout` of 1m"),
    ],
)
def test_a_stall_names_its_timeout_and_its_step(stall: Stall, told: str):
    verdict = decide(ended(0, "stopped"), stall=stall)
    assert verdict is not None
    assert verdict.message == f"No rank finished {told}: the stacks of all are in the logs."


def test_a_cause_waits_too_while_a_member_is_unexplained():
    failed = ended(0, "failed", exit_code=1)
    assert decide(failed, MemberEnd(1)) is None
    assert outcome(failed, MemberEnd(1), deadline_passed=True) == ("failed", "user_error")


def test_at_the_deadline_a_peer_error_still_decides_nothing():
    verdict = decide(peer_error(0), MemberEnd(1), deadline_passed=True)
    assert verdict is not None
    assert (verdict.state, verdict.end_reason) == ("failed", "unknown")
    assert "node 1" in verdict.message
    assert outcome(peer_error(0), peer_error(1)) == ("failed", "unknown")


def test_ends_that_nobody_ordered():
    assert outcome(ended(0, "finished"), ended(1, "finished")) == ("failed", "user_error")
    assert outcome(ended(0, "drained"), ended(1, "drained")) == ("failed", "contact_lost")


def test_the_order_of_the_members_does_not_matter():
    members = [peer_error(2), MemberEnd(0, noticed=True), MemberEnd(1, noticed=True)]
    assert decide(*members) == decide(*reversed(members))


def test_an_agent_that_came_back_explains_the_failure_of_the_others():
    restarted = ended(1, "stopped", reason=EndReason.AGENT_FAILED)
    died_of_it = ended(0, "failed", exit_code=1, failed_at=START)
    assert outcome(died_of_it, restarted) == ("failed", "agent_failed")
    assert outcome(restarted) == ("failed", "agent_failed")
    gone = MemberEnd(2, gone_with_two_witnesses=True)
    assert outcome(restarted, gone) == ("lost", "contact_lost")
