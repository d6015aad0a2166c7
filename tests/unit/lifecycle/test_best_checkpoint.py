"""Which checkpoint is the best, and that pruning leaves it alone."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from app.domain.lifecycle.best_checkpoint import Scored, best_of, metric_of
from app.domain.lifecycle.entities import CheckpointRecord
from app.domain.spec.job_spec import parse_spec
from app.orchestration.checkpoints.prune_checkpoints import spare_checkpoints

ID = UUID(int=1)


def saved(step: int, **metrics: float) -> CheckpointRecord:
    """One that stands, of the first attempt."""
    return CheckpointRecord(ID, 1, step, "d", 10, False, datetime(2031, 1, 1, tzinfo=UTC), ID,
                      metrics=metrics)  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "scores", "step"),
    [
        ("validation_accuracy", [0.1, 0.9, 0.9, 0.5], 20),
        ("validation_loss", [0.9, 0.2, 0.2, 0.3], 20),
        ("other", [0.1, 0.9], None),
    ],
)
def test_the_first_with_the_best_score_is_it(
    metric: str, scores: list[float], step: int | None
) -> None:
    name = "validation_accuracy" if metric == "other" else metric
    points = [Scored(1, 10 * (n + 1), {name: score}) for n, score in enumerate(scores)]
    found = best_of([*points, Scored(2, 5, {})], metric)
    assert (None if found is None else found.step) == step


def test_pruning_keeps_the_newest_and_the_best() -> None:
    points = [saved(10, validation_accuracy=0.9), saved(20, validation_accuracy=0.9)]
    points += [saved(step, validation_accuracy=0.5) for step in (30, 40, 50)]
    assert spare_checkpoints(points, [], 2, "validation_accuracy") == ((1, 30), (1, 20))
    assert spare_checkpoints(points, [], 2, "loss") == ((1, 30), (1, 20), (1, 10))


def test_the_score_is_the_one_that_the_run_aims_at() -> None:
    trainer = {"model": "mlp", "data": "digits", "epochs": 2}
    aimed = {**trainer, "target_metric": "validation_loss", "target_value": 0.1}
    assert metric_of(parse_spec({"trainer": aimed})) == "validation_loss"
    assert metric_of(parse_spec({"trainer": trainer})) == "validation_accuracy"
    assert metric_of(parse_spec({"run": "true"})) == "validation_accuracy"
