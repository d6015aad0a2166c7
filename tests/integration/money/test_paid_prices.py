"""A contract's prices in offers, price points, bids and the ledger."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.domain.launch_limits.contract_prices import NO_CONTRACT, ContractPrices, parse_contract
from app.domain.market.offer import Offer
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.market.refresh_prices import RefreshPrices
from app.orchestration.money.accrue_costs import AccrueCosts
from app.ports.price_source import PriceChange
from app.storage.schema.money_tables import ledger_entries
from tests.support.stories.orchestration_story import ON_DEMAND_PRICE, PRICES, V100, ZONE_A, Story

HALF = parse_contract({"discounts": {"local": 50}})


@dataclass
class ListedPrices:
    """Implements `PriceSource`: what the story's cloud lists, since an hour before its start."""

    story: Story

    def offers(self) -> tuple[Offer, ...]:
        now = self.story.time
        return tuple(
            Offer(pool, V100, price, ON_DEMAND_PRICE, "ec2", now, "list")
            for pool, price in sorted(PRICES.items())
        )

    def changes_since(self, since: datetime) -> tuple[PriceChange, ...]:
        at = self.story.start - timedelta(hours=1)
        return tuple(PriceChange(pool, at, price, "list") for pool, price in PRICES.items())


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return Story(engine, tmp_path / "store")


def refresh(story: Story, contract: ContractPrices) -> None:
    """A worker that is started with this contract reads prices."""
    story.sleep(story.runtime.limits.price_refresh_seconds + 1)
    prices = {"local": ListedPrices(story)}
    runtime = replace(story.runtime, price_sources=prices, contract=contract)
    assert run_controller(runtime, RefreshPrices(runtime)) == 1


def price_of(story: Story) -> tuple[int, int | None, str | None]:
    with story.runtime.begin() as uow:
        found = uow.offers.get(ZONE_A)
    assert found is not None
    return found.price_microusd_per_hour, found.list_microusd_per_hour, found.price_terms


def test_offers_and_the_ledger_have_what_is_paid_from_the_first_quote_on(story: Story) -> None:
    refresh(story, NO_CONTRACT)
    assert price_of(story) == (1_000_000, None, None)
    _, [machine] = story.training()
    accruing = AccrueCosts(story.runtime)
    began = story.instance(machine).launched_at
    story.sleep(1_800)
    refresh(story, HALF)
    changed_at = story.time
    assert price_of(story) == (500_000, 1_000_000, "50 % off")
    refresh(story, HALF)
    story.time = changed_at + timedelta(seconds=3_600)
    run_controller(story.runtime, accruing)
    entries = story.rows(ledger_entries, ledger_entries.c.component == "compute")
    listed = (changed_at - began).total_seconds()
    paid = 3_600
    expected = (listed * 1_000_000 + paid * 500_000) / 3_600
    assert sum(row.amount_microusd for row in entries) == pytest.approx(expected, abs=1)
    with story.runtime.begin() as uow:
        points = uow.offers.price_points(ZONE_A)
    assert [(point[1], point[0]) for point in points[1:]] == [(500_000, changed_at)]
    refresh(story, NO_CONTRACT)
    assert price_of(story) == (1_000_000, None, None)
    with story.runtime.begin() as uow:
        assert uow.offers.price_points(ZONE_A)[-1][:2] == (story.time, 1_000_000)


def test_a_bid_names_the_list_price_that_its_highest_price_means(story: Story) -> None:
    refresh(story, HALF)
    job_id = story.submit(max_price_ratio=0.8)
    story.controllers = story.controllers[:1]
    story.run()
    bids = {bid["pool"]: bid for bid in story.launches(job_id)[0].bids}
    bid = bids[ZONE_A.key]
    assert bid["price_microusd_per_hour"] == 500_000
    # 0.8 of the on-demand price is $4.00 of what is paid, and $8.00 of what is listed.
    assert bid["max_price_microusd_per_hour"] == 8_000_000
