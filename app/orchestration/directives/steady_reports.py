"""Reports that carry no news, and the rule by which memory may answer them.

Not here: the memory (`agent_report_cache`), the reading of a request (`read_steady_report`), or
what a report with news does (`receive_agent_report`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from app.storage.instances.contact_statements import AnsweredReport
from trainer.protocol.agent_report import Pace
from trainer.protocol.directive import Directive, DirectiveKind


@dataclass(frozen=True, slots=True)
class SteadyReport:
    """A report without facts. step, total_steps: None without progress; pace: None where the agent
    measured none.
    """

    instance_id: UUID
    session_id: str
    seq: int
    fence: int | None
    phase: str
    step: int | None
    total_steps: int | None
    metrics: dict[str, float]
    pace: Pace | None = None


class RememberedAgent(Protocol):
    """What the rule needs to know of an agent: what its newest report through a transaction said,
    the number of its newest report, and what it was directed to do last.
    """

    instance_id: UUID
    session_id: str
    seq: int
    fence: int | None
    total_steps: int | None
    disk_full: bool
    directive: Directive


def is_steady(known: RememberedAgent, report: SteadyReport) -> bool:
    """Whether the report brings nothing that only a transaction may take in."""
    return (
        report.instance_id == known.instance_id
        and report.session_id == known.session_id
        and report.seq >= known.seq
        and report.fence == known.fence
        and not known.disk_full  # that it has room again is news
        and (report.total_steps is None or report.total_steps == known.total_steps)
        # It was told to train and works for no attempt: rows that are lost may know why.
        and not (report.fence is None and known.directive.kind is DirectiveKind.TRAIN)
    )


def answered(report: SteadyReport, seconds_ago: float) -> AnsweredReport:
    """What is written of a report that was answered so many seconds ago."""
    return AnsweredReport(
        instance_id=report.instance_id,
        session_id=report.session_id,
        seq=report.seq,
        answered_seconds_ago=seconds_ago,
        phase=report.phase,
        step=report.step,
        total_steps=report.total_steps,
        metrics=report.metrics,
        pace=report.pace,
    )
