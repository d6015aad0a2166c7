"""Why a job failed, for the top of its page: the error's own line, and the log that it stands in.

Lives here: which node failed first, and the end of its log. Not here: the verdict on the attempt
(`lifecycle.attempt_verdict`), which line of a log names the error (`trainer.protocol.error_line`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from app.domain.lifecycle.attempt_verdict import (
    AGENT_ERROR_TYPES,
    OUT_OF_MEMORY_ADVICE,
    MemberOutcome,
)
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import JobState
from app.domain.lifecycle.retry_policy import may_retry_code, retries_exhausted
from app.domain.spec.job_spec import parse_spec
from app.domain.wording.attempt_words import named_stream
from app.domain.wording.retry_words import code_not_retried, retries_used_up
from app.ports.object_store import ObjectStoreError
from app.storage.reports.page_read_models import JobTimeline
from app.web.job.log_tail import LogTail, log_tail
from app.web.page_frame import PageParts
from trainer.protocol.error_line import error_line

LINES_SHOWN: Final = 24


@dataclass(frozen=True)
class JobFailure:
    """The headline, where it comes from, and the end of the log of that node.

    attempt, node, machine, exit_code: None where no single node failed. tail: None where nothing
    was written, or where the store does not answer. more: what the job's end says beyond that of
    its last attempt, "" for nothing.
    """

    headline: str
    attempt: int | None
    node: int | None
    machine: str | None
    exit_code: int | None
    tail: LogTail | None
    more: str

    @property
    def lines(self) -> str:
        """The last lines of the log."""
        return "" if self.tail is None else _last_lines(self.tail.text)

    @property
    def where(self) -> str:
        """Which node it was: "Node 1 (m3), attempt 2, exit code 1."; empty where none is known."""
        node = "" if self.node is None else f"node {self.node}"
        if node and self.machine:
            node += f" ({self.machine})"
        attempt = "" if self.attempt is None else f"attempt {self.attempt}"
        code = "" if self.exit_code is None else f"exit code {self.exit_code}"
        told = ", ".join(part for part in (node, attempt, code) if part)
        return f"{told[:1].upper()}{told[1:]}." if told else ""


def job_failure(parts: PageParts, job: Job, timeline: JobTimeline) -> JobFailure | None:
    """Why it failed; None for a job that did not."""
    if job.state is not JobState.FAILED:
        return None
    message = job.end_message or "The job failed. Its events say why."
    attempts = parts.jobs.attempts(job.id)
    last = attempts[-1] if attempts else None
    member = None if last is None else _first_failed(last["members"])
    if last is None or member is None:
        return JobFailure(message, None, None, None, None, None, "")
    stream = named_stream(last["fence"], member["node_rank"])
    tail = _tail(parts, job.id, stream)
    headline = _headline(member, tail) or message
    reason = job.end_reason if job.end_reason == last["end_reason"] else None
    spec = parse_spec(job.spec)
    retries, codes = spec.retries, spec.retry_on_exit_codes
    more = ""
    if message != headline and (reason is None or tail is None):
        more = message
    elif reason is EndReason.OUT_OF_MEMORY:
        more = OUT_OF_MEMORY_ADVICE
    elif reason and not may_retry_code(reason, member["exit_code"], codes):
        more = code_not_retried(codes)
    elif reason and retries_exhausted(reason, retries=retries, retries_used=job.retries_used):
        more = retries_used_up(retries)
    labels = {lane.instance.id: lane.label for lane in timeline.lanes}
    return JobFailure(
        headline=headline,
        attempt=last["ordinal"],
        node=member["node_rank"],
        machine=labels.get(member["instance_id"]),
        exit_code=member["exit_code"],
        tail=tail,
        more=more,
    )


def _first_failed(members: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The member that failed first; those that only lost it come after it."""
    failed = [one for one in members if one["outcome"] == MemberOutcome.FAILED]

    def order(member: Mapping[str, Any]) -> tuple[bool, str, int]:
        end = member["end"] or {}
        lost_peer = bool((end.get("error") or {}).get("peer_communication"))
        return lost_peer, end.get("failed_at") or "~", member["node_rank"]

    return min(failed, key=order, default=None)


def _headline(member: Mapping[str, Any], tail: LogTail | None) -> str | None:
    """The exception that the trainer reported; of a command, the line of its log that names one."""
    error = (member["end"] or {}).get("error") or {}
    kind, message = error.get("type"), error.get("message") or ""
    if kind in AGENT_ERROR_TYPES:
        return str(message) or None
    if kind:
        return f"{kind}: {message}" if message else str(kind)
    said = None if tail is None else error_line(tail.text)
    return said or str(message) or None


def _tail(parts: PageParts, job_id: UUID, stream: str) -> LogTail | None:
    try:
        tail = log_tail(parts.runtime, job_id, stream, "")
    except ObjectStoreError:
        return None
    return tail if tail is not None and tail.stream == stream else None


def _last_lines(text: str) -> str:
    lines = text.rstrip().split("\n")
    return "\n".join(lines[-LINES_SHOWN:])
