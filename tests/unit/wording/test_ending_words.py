"""How a stop, an ended machine and a job at rest are told: nothing is said that did not happen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from app.cli.client.job_view import metrics, progress_line, summary
from app.cli.client.terminal import Terminal
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.attempt_verdict import MemberOutcome
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Attempt
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import EndedBy
from app.domain.wording.machine_words import ended_words, node_words
from app.domain.wording.stop_words import drained_words, reason_words
from app.domain.wording.stored_words import stored_words
from app.orchestration.agents.checkpoint_facts import checkpoint_sentence

NOW = datetime(2026, 11, 23, tzinfo=UTC)
SAVED, KILLED = MemberOutcome.DRAINED, MemberOutcome.STOPPED


def attempt(*, saved: bool, parent_fence: int | None = None) -> Attempt:
    return Attempt(
        UUID(int=1), UUID(int=2), 2, AttemptState.DRAINING, 2, NOW, NOW, NOW,
        parent_fence=parent_fence, committed_at=NOW if saved else None,
    )  # fmt: skip


def test_a_killed_trainer_is_not_said_to_have_saved() -> None:
    told = drained_words([SAVED, KILLED], EndReason.USER_CANCELLED, attempt(saved=True), 1079)
    assert told == (
        "Every machine stopped: a person cancelled the job. The newest checkpoint is of step 1,079."
    )


def test_a_gang_that_drained_saved() -> None:
    told = drained_words([SAVED, SAVED], EndReason.USER_PAUSED, attempt(saved=True), 0)
    assert told == "Every machine saved and stopped: a person paused the job."


def test_a_gang_without_a_checkpoint_is_not_said_to_have_saved() -> None:
    told = drained_words([SAVED, SAVED], EndReason.USER_PAUSED, attempt(saved=False), 0)
    assert told == ("Every machine stopped: a person paused the job. No checkpoint has been saved.")
    went_on = attempt(saved=False, parent_fence=1)
    told = drained_words([SAVED, SAVED], EndReason.USER_PAUSED, went_on, 0)
    assert told == "Every machine stopped: a person paused the job."


def test_the_end_of_an_attempt_has_a_reason_in_words() -> None:
    """No stored word, as "spot interrupted": it is a clause that says who or what did it."""
    for reason in EndReason:
        assert reason_words(reason) != stored_words(reason.value)
        assert len(reason_words(reason).split()) > 2, reason
    in_time = drained_words([SAVED], EndReason.BUDGET_EXHAUSTED, attempt(saved=True), 40)
    assert in_time == (
        "Every machine saved and stopped: it was time to stop, so that saving and releasing the "
        "machines stays within the budget. The newest checkpoint is of step 40."
    ), "a part of the budget is left"
    interrupted = drained_words([SAVED, SAVED], EndReason.SPOT_INTERRUPTED, attempt(saved=True), 0)
    assert interrupted == "Every machine saved and stopped: the cloud interrupted a machine."


@pytest.mark.parametrize("by", EndedBy)
def test_an_ended_machine_names_who_ended_it(by: EndedBy) -> None:
    told = ended_words(by.value)
    assert "_" not in told
    assert told != "us"


def test_an_entry_about_one_machine_of_several_says_so() -> None:
    assert node_words(1, 2) == "node 1 (one of 2 machines)"
    assert node_words(0, 1) == "the machine"


def test_words_of_a_later_version_are_kept() -> None:
    assert ended_words("solar_flare") == "solar flare"
    assert ended_words(None) == "unknown"


@pytest.mark.parametrize(
    ("state", "told"),
    [("running", "loss 0.5, 12 steps/s"), ("paused", ""), ("succeeded", ""), ("failed", "")],
)
def test_only_a_job_at_work_has_a_speed_now(state: str, told: str) -> None:
    assert dict(summary(job(state), NOW, Terminal()))["measured"] == told


def test_the_names_of_a_job_s_facts_are_those_of_its_page() -> None:
    told = dict(summary(job("paused"), NOW, Terminal()))
    assert told["attempts"] == "1, 0 interrupted by the cloud"
    assert told["cost"] == "$0.00"
    assert {"tried", "money"}.isdisjoint(told)


def test_a_failed_job_that_made_no_step_shows_no_step_0() -> None:
    failed = job("failed")
    failed["progress"] |= {"step": 0, "total_steps": 2_000, "percent": 0.0}
    told = dict(summary(failed, NOW, Terminal()))
    assert told["progress"] == "no step of 2,000"
    assert told["checkpoint"] == ""
    failed["progress"] |= {"step": 1_412, "percent": 70.6}
    assert dict(summary(failed, NOW, Terminal()))["progress"].endswith("step 1,412/2,000")


@pytest.mark.parametrize("state", ["queued", "starting", "running"])
def test_before_the_first_step_no_bar_stands_at_0_percent(state: str) -> None:
    """As on its page: the state, and what is to be done."""
    new = job(state)
    new["progress"] |= {"step": 0, "total_steps": 4_000, "percent": 0.0, "eta_from": None}
    new["progress"] |= {"loss": None, "steps_per_second": None}
    assert dict(summary(new, NOW, Terminal()))["progress"] == "4,000 steps to do"
    assert progress_line(new, NOW) == f"{state}  4,000 steps to do  $0.00"
    new["progress"] |= {"step": 1, "percent": 0.0}
    assert " 0 %  step 1/4,000  " in progress_line(new, NOW)
    new["progress"] |= {"step": 0, "percent": 100.0}
    assert dict(summary({**new, "state": "succeeded"}, NOW, Terminal()))["progress"][-5:] == "100 %"


@pytest.mark.parametrize(
    ("step", "final", "told"),
    [
        (1_412, False, "Checkpoint 1,412 is saved and verified."),
        (1_412, True, "Final checkpoint 1,412 is saved and verified."),
        (0, True, "The final checkpoint is saved and verified."),
        (0, False, "A checkpoint is saved and verified."),
    ],
)
def test_a_checkpoint_of_a_command_that_counts_no_steps_has_no_number(
    step: int, final: bool, told: str
) -> None:
    assert checkpoint_sentence(step, final, 1) == (JobEventKind.CHECKPOINT_COMMITTED, told)


def test_counts_of_a_job_are_whole_and_small_figures_keep_four_digits() -> None:
    values = {"samples": 94_720.0, "accuracy": 0.9783950617283951, "learning_rate": 1e-5}
    assert metrics(values) == "accuracy 0.9784, learning_rate 1e-05, samples 94,720"


def job(state: str) -> dict[str, Any]:
    progress = dict.fromkeys(
        ("percent", "total_steps", "step", "last_checkpoint_at", "samples_per_second", "eta_at")
    )
    return {
        "id": "1",
        "project": "default",
        "state": state,
        "why": None,
        "next_look_at": None,
        "nodes": 1,
        "labels": {},
        "deadline": None,
        "submitted_at": NOW.isoformat(),
        "ended_at": None,
        "attempts": {"count": 1, "interruptions": 0},
        "money": {"spent_microusd": 0, "budget_microusd": None, "microusd_per_hour": None},
        "progress": {**progress, "loss": 0.5, "steps_per_second": 12.0, "metrics": {}},
    }
