"""What messages say, in each form; when a delivery is tried; and which lines of a history tell."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson
import pytest

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.events import HistoryKind, JobEventKind
from app.domain.lifecycle.instance import InstanceEvent
from app.domain.lifecycle.job import JobEvent, JobState
from app.domain.notifications.delivery_rules import wait_after
from app.domain.notifications.message import (
    SUBJECT_MAX,
    NotificationText,
    ToldJob,
    digest_text,
    mail_subject,
    mail_text,
    signed_headers,
    slack_body,
    text_of_job,
    webhook_body,
)
from app.domain.notifications.triggers import Trigger, trigger_of

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = ToldJob(UUID(int=7), "bert", 1_234_567)
LOWTIDE = "https://lowtide.example.com"
FAILED = text_of_job(Trigger.FAILED, JOB, "vision", "Out of <memory> & time.", AT)


def test_a_chat_is_told_what_why_the_cost_and_where():
    told = slack_body(FAILED, LOWTIDE)["text"]
    assert told.splitlines() == [
        "*Job bert has failed*",
        "Out of &lt;memory&gt; &amp; time.",
        "Project: vision",
        "Cost so far: $1.23",
        "Time: 2026-03-01 12:00:00 UTC",
        f"<{LOWTIDE}/jobs/{JOB.id}|Open in Lowtide>",
    ]


def test_a_chat_mentions_nobody_whatever_the_text_holds():
    told = text_of_job(Trigger.FAILED, JOB, "vision", "ask @channel, <!here> & a@b.c", AT)
    text = slack_body(told, LOWTIDE)["text"]
    assert "ask @\u200bchannel, &lt;!here&gt; &amp; a@\u200bb.c" in text


def test_a_program_is_told_the_same_as_values():
    assert webhook_body(FAILED, UUID(int=1), LOWTIDE) == {
        "id": str(UUID(int=1)),
        "kind": "failed",
        "title": "Job bert has failed",
        "text": "Out of <memory> & time.",
        "occurred_at": "2026-03-01T12:00:00+00:00",
        "project": "vision",
        "job_id": str(JOB.id),
        "job_name": "bert",
        "spent_microusd": 1_234_567,
        "url": f"{LOWTIDE}/jobs/{JOB.id}",
    }
    assert NotificationText(**orjson.loads(orjson.dumps(FAILED.to_json()))) == FAILED


def test_a_subject_is_one_line_whatever_the_title_holds():
    broken = NotificationText("test", "a\r\nBcc: eve@example.com\x00", "", AT.isoformat(), "", "/")
    assert mail_subject(broken) == "[Lowtide] a Bcc: eve@example.com"
    long = NotificationText("test", "x" * 500, "", AT.isoformat(), "", "/")
    assert len(mail_subject(long)) == SUBJECT_MAX
    assert "Cost so far: $1.23\n" in mail_text(FAILED, LOWTIDE)


def test_a_signature_is_over_timestamp_id_and_body():
    headers = signed_headers("key", UUID(int=1), AT, b'{"a":1}')
    signed = f"{int(AT.timestamp())}.{UUID(int=1)}.".encode() + b'{"a":1}'
    assert headers == {
        "Lowtide-Id": str(UUID(int=1)),
        "Lowtide-Timestamp": str(int(AT.timestamp())),
        "Lowtide-Signature": "v1=" + hmac.new(b"key", signed, hashlib.sha256).hexdigest(),
    }


def test_a_digest_counts_what_it_stands_for():
    other = text_of_job(Trigger.STARTED, ToldJob(UUID(int=8), "gpt", 0), "vision", "", AT)
    digest = digest_text([FAILED, other, FAILED], "vision", AT)
    assert digest.title == "3 more notifications within an hour"
    assert digest.text == "They were about: failed (2), started (1). Jobs: bert, gpt."


def test_eight_tries_take_a_day():
    waits = [wait_after(tries) for tries in range(1, 9)]
    assert waits[-1] is None
    between = [one for one in waits if one is not None]
    assert sum(between, timedelta()) == timedelta(days=1)
    assert sorted(between) == between, "each is longer than the one before"


@pytest.mark.parametrize(
    ("kind", "to_state", "reason", "has_trained", "trigger"),
    [
        (JobEvent.ATTEMPT_STARTED, JobState.RUNNING, None, False, Trigger.STARTED),
        (JobEvent.ATTEMPT_STARTED, JobState.RUNNING, None, True, None),
        (
            JobEvent.ATTEMPT_ENDED_RETRYABLE, JobState.RECOVERING, EndReason.SPOT_INTERRUPTED,
            True, Trigger.INTERRUPTED,
        ),
        (JobEvent.ATTEMPT_ENDED_RETRYABLE, JobState.RECOVERING, EndReason.RESIZED, True, None),
        (JobEvent.ATTEMPT_ENDED_FATAL, JobState.FAILED, None, True, Trigger.FAILED),
        (JobEvent.GIVEN_UP, JobState.FAILED, None, False, Trigger.FAILED),
        (JobEvent.STOPPED_FOR_LIMIT, JobState.FAILED, None, True, Trigger.FAILED),
        (JobEvent.ATTEMPT_SUCCEEDED, JobState.SUCCEEDED, None, True, Trigger.SUCCEEDED),
        (JobEvent.COMPLETION_FOUND, JobState.SUCCEEDED, None, True, Trigger.SUCCEEDED),
        (JobEvent.STOPPED_FOR_BUDGET, JobState.PAUSED, None, True, Trigger.BUDGET),
        (JobEvent.STOPPED_FOR_USER, JobState.CANCELLED, None, True, None),
        (JobEvent.CLAIMED, JobState.STARTING, None, False, None),
        (JobEventKind.DEADLINE_UNSAFE, None, None, True, Trigger.DEADLINE_AT_RISK),
        (JobEventKind.DEADLINE_MISSED, None, None, True, Trigger.DEADLINE_AT_RISK),
        (JobEventKind.CHECKPOINT_COMMITTED, None, None, True, None),
        (InstanceEvent.INTERRUPTION_NOTICED, "interrupting", None, True, None),
    ],
)  # fmt: skip
def test_few_lines_of_a_history_are_told(
    kind: HistoryKind, to_state: str | None, reason: str | None, has_trained: bool,
    trigger: Trigger | None,
):  # fmt: skip
    assert trigger_of(kind, to_state, reason, has_trained=has_trained) is trigger
