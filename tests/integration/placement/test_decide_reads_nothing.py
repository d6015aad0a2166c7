"""What is decided about a job's machines rests on values: `decide` reads no row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import Engine, event

from app.domain.lifecycle.instance import EndedBy
from app.domain.placement.decide import decide
from app.orchestration.frame.limits import Limits
from app.orchestration.transitions.evaluate_moves import EvaluateMoves
from tests.support.stories.market_choice_story import (
    ESTIMATE,
    QUICK_RETURNS,
    market_choice_story,
)
from tests.support.stories.orchestration_story import ON_DEMAND_A, PRICES, ZONE_B, Story
from trainer.protocol.agent_report import FactKind

ROOM = {"market": "auto", "deadline": "20h", "estimate": ESTIMATE}


@contextmanager
def _statements_of_decide(engine: Engine) -> Iterator[list[str]]:
    """Those that run while `decide` does."""
    found: list[str] = []

    def look(_c: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not decide.__code__:
            frame = frame.f_back
        if frame is not None:
            found.append(statement)

    event.listen(engine, "before_cursor_execute", look)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", look)


def test_no_row_is_read_while_it_is_decided(engine: Engine, tmp_path: Path) -> None:
    """A claim, a loss, a fleet that does not come, a departure from spot and growth."""
    story = market_choice_story(engine, tmp_path / "store", QUICK_RETURNS)
    story.controllers = (*story.controllers, EvaluateMoves(story.runtime))
    with _statements_of_decide(engine) as statements:
        job_id, (first, _) = story.training(nodes=2, budget_usd=1_000, **ROOM)
        story.tell(first, FactKind.NOTICE, seconds_left=120.0, action="terminate")
        story.cloud.end(story.instance(first).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
        story.pass_time(300)
        story.quote({**PRICES, ON_DEMAND_A: 500_000})
        story.pass_time(1_200, every=60)
        sizes: Any = "1..3"
        elastic, _ = story.training(sizes, name="elastic")
        story.resize()
        story.cloud.room = dict.fromkeys(PRICES, 0)
        story.submit(name="late", nodes=2)
        story.pass_time(120)
    assert statements == []
    assert len(story.launches(job_id)) > 1
    assert story.launches(elastic)


def test_a_move_that_repays_reads_no_row_either(engine: Engine, tmp_path: Path) -> None:
    """Its budgets are locked when they are read, so they are read for such a move alone."""
    story = Story(engine, tmp_path / "store")
    story.controllers = (*story.controllers, EvaluateMoves(story.runtime))
    estimate = {"hours": 26, "gpu": "V100:1", "nodes": 2}
    job_id = story.submit(nodes=2, budget_usd=1_000, estimate=estimate)
    story.train(job_id)
    story.tell(story.members(job_id)[0], at_step=1)
    story.sleep(60)
    story.checkpoint(story.members(job_id)[0], 1, 2)
    for instance_id in story.members(job_id):
        story.tell(instance_id, at_step=20)
    story.sleep(Limits().migration_rest_seconds)
    with _statements_of_decide(engine) as statements:
        story.quote({**PRICES, ZONE_B: 200_000})
        story.run()
    assert statements == []
    assert story.job(job_id).moving_launch_id is not None
