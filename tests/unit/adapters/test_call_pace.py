"""The pace of calls that start machines: learnt from refusals, one for each place."""

from __future__ import annotations

import pytest

from app.adapters.call_pace import CallPace
from app.ports.cloud_provider import ProviderError, RefusalKind


def refused(pace: CallPace, place: str, kind: RefusalKind) -> None:
    with pytest.raises(ProviderError) as error, pace.turn(place):
        raise ProviderError(kind, "no")
    assert error.value.kind is kind


def test_a_throttled_call_slows_its_own_place_alone() -> None:
    pace = CallPace()
    before = pace.per_second("us-east-1")
    refused(pace, "us-east-1", RefusalKind.THROTTLED)
    slow = pace.per_second("us-east-1")
    assert slow < before
    assert pace.per_second("us-west-2") == before
    with pace.turn("us-east-1"):
        pass
    assert slow < pace.per_second("us-east-1") < before


@pytest.mark.parametrize("kind", [RefusalKind.NO_CAPACITY, RefusalKind.QUOTA])
def test_other_refusals_say_nothing_against_the_pace(kind: RefusalKind) -> None:
    pace = CallPace()
    before = pace.per_second("us-east-1")
    refused(pace, "us-east-1", kind)
    assert pace.per_second("us-east-1") > before


def test_a_turn_that_is_too_far_away_is_refused_without_a_call() -> None:
    pace = CallPace()

    def all_at_once() -> None:
        """Turns are reserved here without waiting for them."""
        for _ in range(1_000):
            pace._reserve("us-east-1")

    with pytest.raises(ProviderError) as error:
        all_at_once()
    assert error.value.kind is RefusalKind.THROTTLED
    assert "its turn later" in str(error.value)
    assert pace._reserve("us-west-2") == 0.0
