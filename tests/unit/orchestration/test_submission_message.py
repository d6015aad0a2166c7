"""The event of a submission says what was submitted, on how many machines, and its limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from app.adapters.system_entropy import SystemEntropy
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.projects.resolve_spec import as_written
from app.domain.spec.job_spec import parse_spec
from app.orchestration.queue.submit_job import build_submission

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({}, ""),
        ({"budget_usd": 40}, ", budget $40.00"),
        ({"deadline": "6h"}, ", deadline 2026-03-01 18:00:00 UTC"),
        (
            {"budget_usd": 40, "deadline": "2026-03-02T01:00:00+01:00"},
            ", budget $40.00, deadline 2026-03-02 00:00:00 UTC",
        ),
    ],
)
def test_it_names_the_limits_that_were_set(limits: dict[str, Any], told: str):
    spec = parse_spec({"run": "python train.py", "estimate": {"hours": 1, "gpu": "V100"}, **limits})
    submission = build_submission(
        as_written(spec), UUID(int=1), Actor(ActorKind.PERSON, "ada"), NOW, SystemEntropy(), None
    )
    assert submission.message == f"Submitted: a command on 1 machine{told}."
