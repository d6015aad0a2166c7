"""Answers from an api's memory, held against the rows.

What was answered is in the agent's contact soon, and what an answer directs is no older than its
promise. Uses none of the product's own figures. Not here: the memory
(`app.orchestration.directives.agent_report_cache`).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Engine, text

from app.orchestration.directives.steady_reports import SteadyReport
from app.simulation.engine.invariant_error import InvariantError
from app.simulation.engine.virtual_clock import VirtualClock, microseconds
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession
from trainer.protocol.directive import Directive

_PROMISE_US = microseconds(12.0)
_ROWS = Ready(
    text(
        "SELECT jobs.version, contacts.session_id, contacts.seq FROM jobs "
        "LEFT JOIN contacts ON contacts.instance_id = :instance_id WHERE jobs.id = :job_id"
    )
)


@dataclass(frozen=True)
class _Answer:
    """An answer from memory, and the job's version in the rows at that time."""

    at_us: int
    session_id: str
    seq: int
    version: int


class AnswerWatch:
    """What one api process has answered from memory."""

    def __init__(self, engine: Engine, clock: VirtualClock) -> None:
        self._engine = engine
        self._clock = clock
        self._answers: dict[UUID, _Answer] = {}

    def forget(self) -> None:
        """The rows are older ones now: nothing follows from them for what was answered before."""
        self._answers.clear()

    def answered(self, report: SteadyReport, job_id: UUID, directive: Directive) -> None:
        """A report was answered from memory. Raises InvariantError."""
        before, now_us = self._answers.get(report.instance_id), self._clock.true_us
        if before is not None and now_us - before.at_us < _PROMISE_US:
            return
        reader = RecordSession(self._engine, autocommit=True)
        rows = reader.rows(_ROWS, {"instance_id": report.instance_id, "job_id": job_id})
        reader.close()
        if not rows:
            if before is not None:
                raise InvariantError("memory answers nobody whose job is gone", f"{report}")
            return
        version, session_id, seq = rows[0]
        if before is not None:
            if before.session_id == session_id and seq < before.seq:
                raise InvariantError(
                    "what memory has answered is written down soon",
                    f"instance {report.instance_id}: report {before.seq} was answered, "
                    f"{seq} is the newest in its contact",
                )
            if directive.version < before.version:
                raise InvariantError(
                    "what memory directs is no older than its promise",
                    f"instance {report.instance_id}: version {directive.version} was sent, "
                    f"{before.version} was in the rows an answer before",
                )
        self._answers[report.instance_id] = _Answer(now_us, report.session_id, report.seq, version)
