"""Deployments whose audit rows are sealed."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.stories.seal_story import SealStory


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> SealStory:
    return SealStory(engine, tmp_path)


@pytest.fixture
def sealed(story: SealStory) -> SealStory:
    """Rows 1 to 4 under two seals."""
    story.act("a", "b")
    story.seal()
    story.act("c", "d")
    story.seal()
    return story
