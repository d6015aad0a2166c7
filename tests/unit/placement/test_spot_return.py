"""When going back to spot saves enough: a tenth of the rest and ten cents, after both were paid."""

from __future__ import annotations

import math

import pytest

from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PlacementAction
from app.domain.placement.methods.spot_return import OnDemandStay, return_repays
from app.orchestration.frame.limits import Limits
from app.orchestration.placement.market_and_size import return_terms

TERMS = return_terms(Limits(boot_p95_seconds=300.0, drain_seconds=60.0))


@pytest.mark.parametrize(
    ("hours", "spot_usd", "trains", "repays"),
    [
        (1.0, 2.69, False, True),
        (1.0, 2.71, False, False),  # less than a tenth
        (0.1, 0.19, False, True),
        (0.1, 0.21, False, False),  # less than ten cents
        (1.0, 2.39, True, True),
        (1.0, 2.41, True, False),  # six minutes of rent for the gang that is left
        (1.0, 3.10, False, False),
    ],
)
def test_a_return_is_worth_it_for_a_tenth_and_ten_cents(
    hours: float, spot_usd: float, trains: bool, repays: bool
) -> None:
    stay = OnDemandStay(on_demand_usd=1.5, gang=2, work_seconds=hours * 3_600, trains=trains)
    choice = LiveChoice(PlacementAction.SPOT, None, math.inf, spot_usd / 2, math.inf, (), ())
    assert return_repays(choice, stay, TERMS) is repays
