"""Answers that are sent for long: how often their reader's right is asked for again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.units.errors import Forbidden
from app.orchestration.access.while_allowed import while_allowed


class Story:
    """Parts that take a time each, and a reader who may have them until it may not."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 28, tzinfo=UTC)
        self.asked: list[int] = []
        self.sent = 0
        self.allowed = True

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    def ask(self) -> None:
        self.asked.append(self.sent)
        if not self.allowed:
            raise Forbidden("no more")

    def parts(self, *seconds: float) -> Iterator[int]:
        for took in seconds:
            self.sleep(took)
            self.sent += 1
            yield self.sent


def test_the_right_is_asked_for_every_two_seconds_and_not_for_every_part():
    story = Story()
    found = list(while_allowed(story.parts(0, 1, 0.9, 0.1, 1, 1, 0.5), story.ask, story))
    assert found == [1, 2, 3, 4, 5, 6, 7]
    assert story.asked == [4, 6]


def test_the_right_is_asked_for_when_the_clock_was_set_back():
    story = Story()
    assert list(while_allowed(story.parts(0, -60, 1), story.ask, story)) == [1, 2, 3]
    assert story.asked == [2]


def test_what_was_not_allowed_any_more_is_not_sent():
    story = Story()
    sending = while_allowed(story.parts(0, 3), story.ask, story)
    assert next(sending) == 1
    story.allowed = False
    with pytest.raises(Forbidden):
        next(sending)
