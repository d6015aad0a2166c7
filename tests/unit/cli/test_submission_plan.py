"""What `lowtide submit` says of a job before it asks, where no pool can take it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.cli.jobs.submission_plan import impossible, make_plan
from app.domain.spec.job_spec import parse_spec

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("deadline", ["1h", (NOW + timedelta(hours=1)).isoformat()])
def test_a_deadline_out_of_reach_is_told_however_it_is_written(deadline: str):
    work = {"run": "python t.py", "estimate": {"hours": 5, "gpu": "V100"}}
    plan = make_plan(parse_spec({**work, "deadline": deadline}), [], NOW)
    assert impossible(plan) == (
        "the deadline is in 1h, the estimate comes to 5h: it will be missed, unless the work is "
        "shorter"
    )
