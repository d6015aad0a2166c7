"""What the curves of a long job are drawn of: few points, and of each metric from its beginning."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Engine, insert

from app.storage.reports.page_read_models import PageReports
from app.storage.schema import tables
from tests.support.stories.orchestration_story import Story

AT = datetime(2026, 3, 1, tzinfo=UTC)


def keep(engine: Engine, job_id: UUID, points: dict[int, dict[str, float]]) -> None:
    rows = [
        {"job_id": job_id, "fence": 1, "step": step, "at": AT, "metrics": metrics}
        for step, metrics in points.items()
    ]
    with engine.begin() as connection:
        connection.execute(insert(tables.metric_points), rows)


def test_what_is_reported_seldom_keeps_its_beginning(story: Story, engine: Engine):
    job_id = story.submit(nodes=1)
    points = {step: {"loss": 1 / step} for step in range(1, 1_001)}
    for step in range(90, 1_000, 91):
        points[step]["test_loss"] = 0.5
    keep(engine, job_id, points)
    found = PageReports(engine).recent_metrics(job_id, 20)
    assert [row["step"] for row in found] == sorted(row["step"] for row in found)
    tested = [row["step"] for row in found if "test_loss" in row["metrics"]]
    assert tested == list(range(90, 1_000, 91))
    trained = [row["step"] for row in found if "test_loss" not in row["metrics"]]
    assert (trained[0], trained[-1]) == (1, 1_000)
    assert len(trained) <= 21


def test_points_that_are_all_of_other_names_stay_few(story: Story, engine: Engine):
    job_id = story.submit(nodes=1)
    keep(engine, job_id, {step: {f"of_{step}": 1.0} for step in range(1, 401)})
    found = PageReports(engine).recent_metrics(job_id, 20)
    assert found
    assert len(found) <= 6 * 21
