"""What must have happened for the demo to count: every check on the api's own answers.

Lives here: the checks and their sentences. Not here: the telling (`demo_story`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.units.percent import percent

Document = Mapping[str, Any]

ACCURACY_MIN = 0.95


@dataclass(frozen=True)
class DemoCheck:
    """One thing that must be true, and whether it is."""

    what: str
    holds: bool


@dataclass(frozen=True)
class DemoEvidence:
    """Everything the checks look at, as the api answered it once the job had ended."""

    job: Document
    attempts: Sequence[Document]
    instances: Sequence[Document]
    verification: Document
    accuracy: float | None
    interrupted_id: str


def checks(evidence: DemoEvidence) -> list[DemoCheck]:
    """All of them, in the order of the story."""
    attempts = list(evidence.attempts)
    first, last = attempts[0], attempts[-1]
    taken = next((i for i in evidence.instances if i["id"] == evidence.interrupted_id), None)
    kept = _ids(first) - {evidence.interrupted_id}
    joined = _ids(last) - _ids(first)
    zones = {i["zone"] for i in evidence.instances if i["id"] in _ids(first) | _ids(last)}
    living = [i for i in evidence.instances if i["state"] not in ("terminated", "launch_failed")]
    accuracy = evidence.accuracy
    return [
        DemoCheck("the job succeeded", evidence.job["state"] == "succeeded"),
        DemoCheck("there were two attempts", len(attempts) == 2),
        DemoCheck("the first attempt was interrupted", first["state"] == "interrupted"),
        DemoCheck(
            "the cloud took the machine it had announced",
            taken is not None and taken["ended_by"] == "cloud_interruption",
        ),
        DemoCheck("the survivor was kept", bool(kept) and kept <= _ids(last)),
        DemoCheck("one replacement joined", len(joined) == 1),
        DemoCheck("all machines were in one zone", len(zones) == 1),
        DemoCheck(
            "training resumed at the step at which it had stopped",
            bool(last["parent_step"]) and last["parent_step"] == first["best_step"],
        ),
        DemoCheck(f"test accuracy above {percent(ACCURACY_MIN)}", (accuracy or 0.0) > ACCURACY_MIN),
        DemoCheck(
            "the ledger equals the local cloud's bill to the micro-dollar",
            bool(evidence.verification["closed"]) and evidence.verification["invoiced"] >= 3,
        ),
        DemoCheck("no machine leaked", not living),
    ]


def _ids(attempt: Document) -> set[str]:
    return {member["instance_id"] for member in attempt["members"]}
