"""What a notification says: for a chat, for a program, and as mail.

A message is made once, when what it tells of happens, so that each of its tries says the same. Not
here: what it is about (`triggers`), or how it is sent (`app.adapters.outgoing`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, NotRequired, TypedDict
from uuid import UUID

from app.domain.launch_limits.monthly_budget import MonthlyBudget
from app.domain.notifications.triggers import Trigger
from app.domain.units.durations import exact_duration
from app.domain.units.instants import format_instant
from app.domain.units.money import format_usd, short_usd

SUBJECT_MAX: Final = 200
_TEXT_MAX: Final = 2_000
_NAMED_MAX: Final = 5
_ZERO_WIDTH_SPACE: Final = "\u200b"
_HEADER_ID: Final = "Lowtide-Id"
_HEADER_TIMESTAMP: Final = "Lowtide-Timestamp"
_HEADER_SIGNATURE: Final = "Lowtide-Signature"

_TITLES: Final[Mapping[Trigger, str]] = {
    Trigger.STARTED: "Job {name} has started",
    Trigger.INTERRUPTED: "Job {name} was interrupted",
    Trigger.WAITING: "Job {name} is waiting",
    Trigger.DEADLINE_AT_RISK: "Job {name} may miss its deadline",
    Trigger.BUDGET: "Job {name} is paused by a budget",
    Trigger.FAILED: "Job {name} has failed",
    Trigger.SUCCEEDED: "Job {name} has succeeded",
    Trigger.MACHINE_LEAKED: "A machine was unknown to Lowtide",
    Trigger.BOOKS_DIFFER: "Reports of costs differ from the ledger",
    Trigger.DEPLOYMENT_BUDGET: "The deployment's budget of this month",
}


@dataclass(frozen=True, slots=True)
class ToldJob:
    """The job that a message is about. spent_microusd: its cost so far, provisional."""

    id: UUID
    name: str
    spent_microusd: int


class MessageDocument(TypedDict):
    """A `NotificationText` in JSON."""

    kind: str
    title: str
    text: str
    occurred_at: str
    project: str
    path: str
    job_id: NotRequired[str | None]
    job_name: NotRequired[str | None]
    spent_microusd: NotRequired[int | None]


@dataclass(frozen=True, slots=True)
class NotificationText:
    """A message as it is stored. kind: a trigger, `digest` or `test`. text: what happened, and why.

    job_id, job_name, spent_microusd: None where it is about no job. occurred_at: ISO 8601. path: of
    the page that shows it.
    """

    kind: str
    title: str
    text: str
    occurred_at: str
    project: str
    path: str
    job_id: str | None = None
    job_name: str | None = None
    spent_microusd: int | None = None

    def to_json(self) -> dict[str, object]:
        """As it is stored."""
        return asdict(self)


def read_text(document: MessageDocument) -> NotificationText:
    """A message as it was stored; what a newer release has told besides is left out.

    Raises KeyError where something is missing.
    """
    return NotificationText(
        document["kind"],
        document["title"],
        document["text"],
        document["occurred_at"],
        document["project"],
        document["path"],
        document.get("job_id"),
        document.get("job_name"),
        document.get("spent_microusd"),
    )


def text_of_job(
    trigger: Trigger, job: ToldJob, project: str, reason: str, at: datetime
) -> NotificationText:
    """What is told of a job. reason: the sentence of its history."""
    return _of_job(trigger, _TITLES[trigger].format(name=job.name), reason, job, project, at)


def text_of_job_budget(
    job: ToldJob, percent: int, cap_microusd: int, project: str, at: datetime
) -> NotificationText:
    """What is told of a job that has come to a threshold of its own budget."""
    title = f"Job {job.name} has spent {percent} % of its budget"
    told = f"{format_usd(job.spent_microusd)} of {format_usd(cap_microusd)} is spent."
    return _of_job(Trigger.BUDGET, title, told, job, project, at)


def text_of_month(
    budget: MonthlyBudget, percent: int, project: str, at: datetime
) -> NotificationText:
    """What is told of a project that has come to a threshold of its month."""
    title = f"Project {project} has spent {percent} % of its budget of this month"
    spent, cap = format_usd(budget.spent_microusd), format_usd(budget.cap_microusd)
    told = f"{spent} of {cap} is spent. {budget.when_full(format_instant(budget.ends_at))}"
    path = f"/projects/{project}"
    return NotificationText(Trigger.BUDGET.value, title, told, at.isoformat(), project, path)


def _of_job(
    trigger: Trigger, title: str, text: str, job: ToldJob, project: str, at: datetime
) -> NotificationText:
    return NotificationText(
        kind=trigger.value,
        title=title,
        text=text[:_TEXT_MAX],
        occurred_at=at.isoformat(),
        project=project,
        path=f"/jobs/{job.id}",
        job_id=str(job.id),
        job_name=job.name,
        spent_microusd=job.spent_microusd,
    )


def text_of_deployment(trigger: Trigger, reason: str, at: datetime) -> NotificationText:
    """What is told of the whole deployment."""
    title = _TITLES[trigger]
    return NotificationText(trigger.value, title, reason[:_TEXT_MAX], at.isoformat(), "", "/jobs")


def text_of_test(channel: str, project: str, who: str, at: datetime) -> NotificationText:
    """What a person sends to see whether a channel works."""
    told = f"{who} has sent this to see whether the channel works. There is nothing to do."
    title = f"Test of the channel {channel}"
    path = f"/projects/{project}/notifications"
    return NotificationText("test", title, told, at.isoformat(), project, path)


def text_of_wait(seconds: int, reason: str | None) -> str:
    """The sentence of a job that has waited for too long. reason: as the job's page says it."""
    told = f"It has waited for machines for {exact_duration(seconds)}."
    return told if reason is None else f"{told} {reason}"


def digest_text(held: Sequence[NotificationText], project: str, at: datetime) -> NotificationText:
    """One message in place of the many that were held, the oldest first."""
    kinds = Counter(one.kind for one in held)
    listed = ", ".join(f"{kind.replace('_', ' ')} ({number:,})" for kind, number in kinds.items())
    names = list(dict.fromkeys(one.job_name for one in held if one.job_name is not None))
    jobs = ", ".join(names[:_NAMED_MAX]) + (" and others" if len(names) > _NAMED_MAX else "")
    told = f"They were about: {listed}." + (f" Jobs: {jobs}." if names else "")
    path = f"/projects/{project}/notifications" if project else "/jobs"
    title = f"{len(held):,} more notifications within an hour"
    return NotificationText("digest", title, told, at.isoformat(), project, path)


def slack_body(message: NotificationText, address: str) -> dict[str, str]:
    """The body for a Slack-compatible webhook. address: of Lowtide, as people reach it."""
    lines = [f"*{_escaped(message.title)}*", _escaped(message.text), *_facts(message)]
    return {"text": "\n".join([*lines, f"<{address}{message.path}|Open in Lowtide>"])}


def webhook_body(message: NotificationText, delivery_id: UUID, address: str) -> dict[str, object]:
    """The body for a signed webhook."""
    document = message.to_json()
    path = document.pop("path")
    return {"id": str(delivery_id), **document, "url": f"{address}{path}"}


def mail_subject(message: NotificationText) -> str:
    """One line, whatever the title holds: a line break would begin another header."""
    plain = "".join(one if one.isprintable() else " " for one in message.title)
    return f"[Lowtide] {' '.join(plain.split())}"[:SUBJECT_MAX]


def mail_text(message: NotificationText, address: str) -> str:
    """The body of a mail, as plain text."""
    facts = "".join(f"{line}\n" for line in _facts(message))
    return f"{message.title}\n\n{message.text}\n{facts}\n{address}{message.path}\n"


def signed_headers(key: str, delivery_id: UUID, at: datetime, body: bytes) -> dict[str, str]:
    """Headers by which a receiver knows that a body is ours, new, and which one it is.

    The signature is HMAC-SHA256 over `timestamp.id.body`; at: of this try.
    """
    timestamp = str(int(at.timestamp()))
    signed = f"{timestamp}.{delivery_id}.".encode() + body
    signature = hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()
    return {
        _HEADER_ID: str(delivery_id),
        _HEADER_TIMESTAMP: timestamp,
        _HEADER_SIGNATURE: f"v1={signature}",
    }


def _facts(message: NotificationText) -> list[str]:
    at = format_instant(datetime.fromisoformat(message.occurred_at))
    facts = [f"Project: {message.project}"] if message.project else []
    if message.spent_microusd is not None:
        facts.append(f"Cost so far: {short_usd(message.spent_microusd)}")
    return [*facts, f"Time: {at}"]


def _escaped(text: str) -> str:
    """As Slack asks of text: what is left can neither link nor mention anybody. Mattermost and
    Discord mention by a bare @, so no word follows one.
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", f"@{_ZERO_WIDTH_SPACE}")
