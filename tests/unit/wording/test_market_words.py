"""Costs in sentences about markets say where a second is billed as several."""

from __future__ import annotations

import pytest

from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PlacementAction
from app.domain.market.offer import Market
from app.domain.placement.decision import MarketDecision, MarketRule
from app.domain.wording.market_words import market_sentence, waiting_words

CHOICE = LiveChoice(PlacementAction.WAIT, None, 2.0, 5.0, 9.0, (), ())
BILLED = "each second billed as 1m"


@pytest.mark.parametrize(
    "rule", [MarketRule.ON_DEMAND_COSTS_LESS, MarketRule.SPOT_COSTS_LESS, MarketRule.STAYING]
)
def test_a_faster_bill_is_told_with_the_costs_of_a_market(rule: MarketRule) -> None:
    decision = MarketDecision(rule, Market.SPOT, CHOICE)
    assert BILLED not in market_sentence(decision, 1)
    assert BILLED in market_sentence(decision, 1, billing_speed=60)


def test_a_faster_bill_is_told_with_the_costs_of_not_waiting() -> None:
    assert BILLED not in waiting_words(CHOICE, 1, 600.0)
    assert waiting_words(CHOICE, 1, 600.0, billing_speed=60) == (
        "the pools available now would cost $5.00 to the end, waiting $2.00, each second billed as "
        "1m; waiting is safe for another 10m"
    )
