"""What a step is told of, in one line or several: all of it is kept. Not here: the curves of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from app.storage.schema import tables
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return Story(engine, tmp_path / "store")


def _points(engine: Engine) -> list[tuple[int, int, dict[str, float]]]:
    points = tables.metric_points
    with engine.connect() as connection:
        found = connection.execute(
            select(points.c.fence, points.c.step, points.c.metrics).order_by(
                points.c.fence, points.c.step
            )
        )
        return [(row[0], row[1], row[2]) for row in found]


def test_an_evaluation_joins_the_loss_of_its_step(story: Story, engine: Engine) -> None:
    job_id = story.submit()
    story.train(job_id)
    [machine] = story.members(job_id)
    lines = [
        {"step": 9.0, "loss": 0.6},
        {"step": 10.0, "loss": 0.5},
        {"step": 10.0, "accuracy": 0.9},
    ]
    story.tell(machine, FactKind.METRICS, 1, points=lines)
    story.tell(machine, FactKind.METRICS, 1, points=[{"step": 10.0, "eval_loss": 0.7}])
    assert _points(engine) == [
        (1, 9, {"loss": 0.6}),
        (1, 10, {"loss": 0.5, "accuracy": 0.9, "eval_loss": 0.7}),
    ]
