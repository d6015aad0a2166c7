"""What a freeze stops, what is said of it, and what a deadline makes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.domain.deadline.deadline_policy import (
    DeadlineAction,
    DeadlineDecision,
    without_launches,
)
from app.domain.launch_limits.freeze import (
    EVERYTHING,
    Freeze,
    FreezePlace,
    FreezeScope,
    read_reason,
)
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.units.errors import InvalidValue

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINE, OTHER = UUID(int=1), UUID(int=2)
ANN = Actor(ActorKind.PERSON, "Ann")
PROJECT = FreezePlace(FreezeScope.PROJECT, None, MINE, "vision")


@pytest.mark.parametrize(
    ("place", "stopped", "sentence", "command"),
    [
        (EVERYTHING, {"mine", "other", "gcp"}, "all launches are frozen", "--everything"),
        (
            FreezePlace.of_cloud("aws"),
            {"mine", "other"},
            "launches at aws are frozen",
            "--cloud aws",
        ),
        (PROJECT, {"mine", "gcp"}, "launches of the project 'vision' are frozen", "vision"),
    ],
)
def test_a_freeze_stops_its_place_alone(
    place: FreezePlace, stopped: set[str], sentence: str, command: str
) -> None:
    freeze = Freeze(place, NOW, ANN, "storm")
    asked = {"mine": (MINE, "aws"), "other": (OTHER, "aws"), "gcp": (MINE, "gcp")}
    assert {name for name, (one, cloud) in asked.items() if freeze.stops(one, cloud)} == stopped
    assert freeze.sentence == f"{sentence} since 2026-03-01 12:00:00 UTC by Ann: storm"
    assert freeze.remedy.startswith(f"`lowtide thaw {command}` by ")
    assert freeze.headline == f"{freeze.sentence[0].upper()}{freeze.sentence[1:]}."


def test_places_are_told_apart_by_their_keys() -> None:
    places = [EVERYTHING, FreezePlace.of_cloud("aws"), FreezePlace.of_cloud("gcp"), PROJECT]
    assert [place.key for place in places] == [
        "everything",
        "cloud:aws",
        "cloud:gcp",
        f"project:{MINE}",
    ]


def test_a_reason_is_one_line() -> None:
    assert read_reason(" storm in us-west-2. ") == "storm in us-west-2"
    for written in ("two\nlines", "x" * 201, "\x1b[2J"):
        with pytest.raises(InvalidValue, match="one line of at most 200 characters"):
            read_reason(written)
    with pytest.raises(InvalidValue, match="'awz' is not known; use aws, gcp, local; did you"):
        FreezePlace.of_cloud("awz")


def test_a_deadline_is_unsafe_while_nothing_can_be_requested() -> None:
    last = NOW + timedelta(hours=3)
    safe = DeadlineDecision(DeadlineAction.SPOT, "Spot is safe for another 3h.", last)
    acquiring = DeadlineDecision(DeadlineAction.ACQUIRE_ON_DEMAND, "Now.", last, NOW)
    for decision in (safe, acquiring):
        frozen = without_launches(decision, "all launches are frozen", NOW + timedelta(hours=1))
        assert frozen.action is DeadlineAction.SPOT
        assert frozen.unsafe_since_at == (decision.unsafe_since_at or NOW + timedelta(hours=1))
        assert "no on-demand machines can be requested, as all launches are" in frozen.sentence
    for decision in (
        DeadlineDecision(DeadlineAction.SPOT, "No deadline."),
        DeadlineDecision(DeadlineAction.STAY_ON_DEMAND, "The job runs on-demand."),
        DeadlineDecision(DeadlineAction.YIELD_TO_ON_DEMAND, "They are registered.", last),
    ):
        assert without_launches(decision, "all launches are frozen", NOW) is decision
