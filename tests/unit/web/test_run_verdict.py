"""The verdict on the page of a job: from which machine, and what is left out of the curves."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.domain.lifecycle.entities import Contact
from app.web.charts.metric_charts import metric_charts
from app.web.job.run_verdict import run_verdict
from trainer.protocol.bottleneck import Shares

WAITING = Shares(0.43, 0.0, 0.02, 18.0, ranks=2)
BUSY = Shares(0.01, 0.05, 0.0, 95.0, ranks=2)


def contact(number: int, **fields: Any) -> Contact:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return Contact(UUID(int=number), "s", 1, now, "train", **fields)


def test_rank_0_of_the_newest_attempt_is_believed():
    before = contact(1, fence=1, step=900, metrics={"loss": 0.1, **WAITING.metrics()})
    now = contact(2, fence=2, step=700, metrics=BUSY.metrics())
    other = contact(3, fence=2, step=None, metrics={})
    found = run_verdict([before, now, other])
    assert found is not None
    assert (found.shares, found.step, found.verdict.bound) == (BUSY, 700, "compute")
    alone = run_verdict([before])
    assert alone is not None
    assert alone.verdict.is_advice
    assert alone.parts == (
        ("compute", 55.00000000000001),
        ("data wait", 43.0),
        ("all reduce", 0.0),
        ("checkpoint", 2.0),
    )
    paused = run_verdict([contact(1, step=9, metrics=Shares(0.0, 0.0, 0.0, pause=0.75).metrics())])
    assert paused is not None
    assert (paused.parts[0], paused.parts[-1]) == (("compute", 25.0), ("pause", 75.0))


def test_a_trainer_that_tells_no_shares_has_no_verdict():
    assert run_verdict([contact(1, fence=1, step=3, metrics={"loss": 0.5})]) is None
    assert run_verdict([]) is None


def test_shares_are_no_curves_and_utilization_is_an_early_one():
    metrics = {**WAITING.metrics(), "loss": 0.5, "mfu": 0.4, "alpha": 1.0}
    rows = [{"fence": 1, "step": step, "metrics": metrics} for step in (1, 2)]
    names = [chart.name for chart in metric_charts(rows)]
    assert names == ["loss", "gpu_utilization", "mfu", "alpha"]
