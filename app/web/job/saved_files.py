"""What a job has saved: its checkpoints, its outputs, and how to fetch them.

Lives here: rows ready for the template. Not here: the bytes (`downloads`), or removing old
checkpoints (`app.orchestration.checkpoints.prune_checkpoints`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from app.domain.lifecycle.best_checkpoint import metric_of
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import TERMINAL_JOB_STATES
from app.domain.spec.job_spec import parse_spec
from app.domain.wording.checkpoint_words import why_no_checkpoint
from app.domain.wording.stop_words import reason_words
from app.orchestration.checkpoints.read_checkpoints import best_standing
from app.web import formats
from app.web.page_frame import PageParts

_READ_MAX: Final = 1_000
_SHOWN_MAX: Final = 5
_RENEWED_SECONDS: Final = 10


@dataclass(frozen=True)
class CheckpointRow:
    """One committed checkpoint. `why`: what it was saved for; score: "" without one."""

    fence: int
    step: int
    committed_at: datetime
    size_bytes: int
    why: str
    score: str
    best: bool
    newest: bool


@dataclass(frozen=True)
class SavedFiles:
    """The panel. rows: the newest that can be fetched, and the best one; more: others like them.

    removed: how many were removed since. outputs: (folder, address). nothing: why there is nothing
    to fetch, None where there is something. metric: what scores are of.
    """

    job: Job
    rows: tuple[CheckpointRow, ...]
    more: int
    removed: int
    outputs: tuple[tuple[str, str], ...]
    nothing: str | None
    metric: str
    refresh_seconds: int | None

    @property
    def scored(self) -> bool:
        """Whether one of them came with a score."""
        return any(row.score for row in self.rows)


def saved_files(parts: PageParts, job_id: UUID) -> SavedFiles:
    """Read and put together. Raises NotFound."""
    rows = parts.jobs.checkpoints(job_id, _READ_MAX)
    job = parts.jobs.job(job_id).job
    spec = parse_spec(job.spec)
    ends = _ends(parts, job_id) if rows else {}
    place, metric = best_standing(rows, spec), metric_of(spec)
    found = [row for row in rows if row["pruned_at"] is None]
    gone = [row for row in rows if row["pruned_at"] is not None]
    last = _last_of_attempts(rows)
    standing = [_row(row, place, metric, ends, last, newest=row is found[0]) for row in found]
    shown = [row for number, row in enumerate(standing) if number < _SHOWN_MAX or row.best]
    nothing = why_no_checkpoint("This job", job.state, removed=bool(gone))
    return SavedFiles(
        job=job,
        rows=tuple(shown),
        more=len(standing) - len(shown),
        removed=len(gone),
        outputs=tuple(
            (folder, f"{address.rstrip('/')}/{job.id}/")
            for folder, address in sorted(spec.outputs.items())
        ),
        nothing=None if standing else f"{nothing}.",
        metric=metric,
        refresh_seconds=None if job.state in TERMINAL_JOB_STATES else _RENEWED_SECONDS,
    )


def _ends(parts: PageParts, job_id: UUID) -> dict[int, EndReason]:
    """Why each attempt ended, by its fence."""
    attempts = parts.jobs.attempts(job_id)
    return {one["fence"]: one["end_reason"] for one in attempts if one["end_reason"] is not None}


def _last_of_attempts(rows: Sequence[Mapping[str, Any]]) -> set[tuple[int, int]]:
    """(fence, step) of the newest checkpoint of each attempt; rows: newest first."""
    newest: dict[int, int] = {}
    for row in rows:
        newest.setdefault(row["fence"], row["step"])
    return set(newest.items())


def _row(
    row: Mapping[str, Any],
    best: tuple[int, int] | None,
    metric: str,
    ends: Mapping[int, EndReason],
    last: set[tuple[int, int]],
    *,
    newest: bool,
) -> CheckpointRow:
    place = (row["fence"], row["step"])
    score = row["metrics"].get(metric)
    why = "periodic"
    if row["final"]:
        why = "final"
    elif place in last and row["fence"] in ends:
        why = f"last of attempt {row['ordinal']} ({reason_words(ends[row['fence']])})"
    return CheckpointRow(
        fence=row["fence"],
        step=row["step"],
        committed_at=row["committed_at"],
        size_bytes=row["size_bytes"],
        why=why,
        score="" if score is None else formats.count(score),
        best=place == best,
        newest=newest,
    )
