"""The page of jobs that `job_list_statement` reads, each with the reason of its state in words.

Not here: the sentence itself (`why_words`), which a job's own page has in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.job import JobState, StopCause
from app.domain.market.offer import Pool
from app.domain.wording.why_words import JobStanding, LastEnd, LiveAttempt, why


def listed_jobs(text: str, now: datetime) -> dict[str, Any]:
    """`items` and `next`, as the API lists them.

    Args:
        text: what the statement has returned.
        now: the instant from which times are told.
    """
    page: dict[str, Any] = orjson.loads(text)
    for item in page["items"]:
        item["why"] = why(_standing(item, item.pop("standing")), now)
    return page


def _standing(item: Mapping[str, Any], stored: Mapping[str, Any]) -> JobStanding:
    last, attempt, cause = stored["last_end"], stored["attempt"], item["stop_cause"]
    return JobStanding(
        state=JobState(item["state"]),
        submitted_at=datetime.fromisoformat(item["submitted_at"]),
        node_count=item["node_count"],
        nodes=item["nodes"],
        committed_step=stored["committed_step"],
        wait_reason=stored["wait_reason"],
        end_message=stored["end_message"],
        ended_at=_instant(item["ended_at"]),
        stop_cause=None if cause is None else StopCause(cause),
        stop_ordered_at=_instant(stored["stop_ordered_at"]),
        last_end=None if last is None else LastEnd(*last),
        attempt=None if attempt is None else _live(*attempt),
        registered=tuple(None if key is None else Pool.parse(key) for key in stored["registered"]),
        interrupted=stored["interrupted"],
        disk_full=stored["disk_full"],
        has_checkpoint=stored["has_checkpoint"],
    )


def _live(state: str, node_count: int, cause: str | None, until: str | None) -> LiveAttempt:
    drains = None if cause is None else DrainCause(cause)
    return LiveAttempt(AttemptState(state), node_count, drains, _instant(until))


def _instant(written: str | None) -> datetime | None:
    return None if written is None else datetime.fromisoformat(written)
