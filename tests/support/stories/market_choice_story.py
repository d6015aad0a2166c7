"""A story (`orchestration_story`) that weighs deadlines, too, and what it decided.

Not here: what is expected of a decision (tests/integration).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Engine

from app.orchestration.frame.runtime import Limits
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.storage.jobs.placement_decision_rows import KeptDecision
from tests.support.stories.orchestration_story import Story

ESTIMATE: Final[dict[str, Any]] = {"hours": 5.0, "gpu": "V100:1"}


QUICK_RETURNS: Final = Limits(return_rest_seconds=60.0, return_room_share=0.0)
"""A story's jobs have five hours of work and an hour to spare: they may go back to spot soon."""


def market_choice_story(engine: Engine, folder: Path, limits: Limits = QUICK_RETURNS) -> Story:
    """With the controller of deadlines among its controllers."""
    made = Story(engine, folder, limits)
    made.controllers = (*made.controllers, WatchDeadlines(made.runtime))
    return made


def decisions(story: Story, job_id: UUID) -> list[KeptDecision]:
    """All that were kept of a job, the newest last."""
    with story.runtime.begin() as uow:
        return uow.decisions.of_job(job_id, 100)[::-1]
