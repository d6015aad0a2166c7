"""A story of money whose one pool has a price. Not here: machines that a controller rents."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from tests.support.stories.money_story import MoneyStory


@pytest.fixture
def story(engine: Engine) -> MoneyStory:
    made = MoneyStory(engine)
    made.quote()
    return made
