"""Sentences of the pages: what a command to many jobs does, a bad search, code in a sentence."""

from __future__ import annotations

from uuid import uuid4

import pytest

from app.domain.lifecycle.job import JobState
from app.domain.lifecycle.job_command import JobCommand
from app.storage.reports.job_search import ChosenJob
from app.web.jobs.job_query import read_query
from app.web.jobs.job_selection import Confirmation
from app.web.sentence_markup import with_code, without_code


def consequences(command: JobCommand, *states: JobState) -> list[str]:
    jobs = tuple(ChosenJob(uuid4(), "digits", state, 0) for state in states)
    return Confirmation(command, jobs, False, "/jobs").consequences


def test_a_pause_promises_nothing_to_a_job_without_a_checkpoint() -> None:
    assert consequences(JobCommand.PAUSE, JobState.RUNNING, JobState.STARTING) == [
        "1 job is running: a program that can save a checkpoint does so first, then the machines "
        "are released and cost nothing more.",
        "1 job is starting: the machines are released and cost nothing more.",
        "Resumed jobs continue from their last checkpoint. Those without one start from the "
        "beginning.",
    ]


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.QUEUED, JobState.PAUSED])
def test_no_checkpoint_is_promised_to_a_job_that_does_not_train(state: JobState) -> None:
    said = consequences(JobCommand.CANCEL, state)
    assert not any("checkpoint" in sentence for sentence in said)
    assert said[-1] == (
        "A cancelled job cannot be resumed. To run it again, submit it under another name."
    )


@pytest.mark.parametrize("command", [JobCommand.CANCEL, JobCommand.PAUSE])
def test_a_job_that_is_stopping_is_not_counted_as_running(command: JobCommand) -> None:
    said = consequences(command, JobState.RUNNING, JobState.STOPPING, JobState.STOPPING)
    assert said[0].startswith("1 job is running: ")
    assert said[-1] == (
        "2 jobs are stopping already: the machines are released as soon as a program that can save "
        "has done so."
    )


def test_a_label_has_one_value() -> None:
    same = read_query([("label", "team=nlp"), ("label", "team = nlp"), ("label", "tier=a")])
    assert same.problem is None
    assert same.labels == (("team", "nlp"), ("tier", "a"))
    both = read_query([("label", "team=nlp"), ("label", "team=vision")])
    assert both.problem == (
        "The label “team” is searched with two values, “nlp” and “vision”, and a job has only one "
        "of them. Leave one out."
    )


@pytest.mark.parametrize(
    ("sentence", "markup", "plain"),
    [
        ("Leave `image` out.", "Leave <code>image</code> out.", "Leave image out."),
        ("`a` or `b`", "<code>a</code> or <code>b</code>", "a or b"),
        ("`<b>` & co", "<code>&lt;b&gt;</code> &amp; co", "<b> & co"),
        ("a ` alone", "a ` alone", "a ` alone"),
        ("`` is nothing", "`` is nothing", "`` is nothing"),
    ],
)
def test_what_stands_between_backticks_is_code(sentence: str, markup: str, plain: str) -> None:
    assert with_code(sentence) == markup
    assert without_code(sentence) == plain
