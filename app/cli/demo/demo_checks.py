"""What must have happened for the demo to count: every check on the api's own answers.

Lives here: the checks and their sentences. Not here: the telling (`demo_story`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]

ACCURACY_MIN = 0.95


@dataclass(frozen=True)
class Check:
    """One thing that must be true, and whether it is."""

    what: str
    holds: bool


@dataclass(frozen=True)
class Evidence:
    """Everything the checks look at, as the api answered it once the job had ended."""

    job: Document
    attempts: Sequence[Document]
    instances: Sequence[Document]
    verification: Document
    accuracy: float | None
    interrupted_id: str


def checks(evidence: Evidence) -> list[Check]:
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
        Check("the job succeeded", evidence.job["state"] == "succeeded"),
        Check("there were two attempts", len(attempts) == 2),
        Check("the first attempt was interrupted", first["state"] == "interrupted"),
        Check(
            "the cloud took the machine it had announced",
            taken is not None and taken["ended_by"] == "cloud_interruption",
        ),
        Check("the survivor was kept", bool(kept) and kept <= _ids(last)),
        Check("one replacement joined", len(joined) == 1),
        Check("all machines were in one zone", len(zones) == 1),
        Check(
            "training resumed at the step at which it had stopped",
            bool(last["parent_step"]) and last["parent_step"] == first["best_step"],
        ),
        Check(f"test accuracy above {ACCURACY_MIN:.0%}", (accuracy or 0.0) > ACCURACY_MIN),
        Check(
            "the ledger equals the provider's bill to the micro-dollar",
            bool(evidence.verification["closed"]) and evidence.verification["invoiced"] >= 3,
        ),
        Check("no machine leaked", not living),
    ]


def _ids(attempt: Document) -> set[str]:
    return {member["instance_id"] for member in attempt["members"]}
