"""Ninety days of prices at first sight and scores, seldom: through the real client, into rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from app.adapters.providers.aws.prices.price_source import AwsPriceSource
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.price_history import STEPS_MAX
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.market.read_pool_pasts import FAILED_REST, ReadPoolPasts
from app.orchestration.market.refresh_prices import RefreshPrices
from app.ports.pool_past import PlacementScoreSource, PoolPastSource
from app.storage.reports.deployment_read_models import DeploymentReports
from app.storage.schema.money_tables import pool_pasts, prices
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import aws_pool, provider_for, settings_for
from tests.support.aws.aws_world import TYPES, now
from tests.support.stories.orchestration_story import Story


class Priced(Story):
    """A deployment that reads the fake account's prices; time is the test's."""

    def __init__(
        self, engine: Engine, folder: Path, fake: AwsFake, regions: tuple[str, ...]
    ) -> None:
        super().__init__(engine, folder)
        where = {"regions": regions}
        provider = provider_for(fake, **where)
        self.source = AwsPriceSource(
            settings_for(fake, **where), provider.clients, provider.facts, shipped_catalog("aws")
        )
        self.time = now()
        self.runtime = replace(self.runtime, price_sources={"aws": self.source})
        self.fake = fake
        self.refreshing, self.reading = RefreshPrices(self.runtime), ReadPoolPasts(self.runtime)

    def read(self, times: int = 1) -> int:
        return sum(run_controller(self.runtime, self.reading) for _ in range(times))

    def count(self, table: object) -> int:
        with self.engine.connect() as connection:
            return int(connection.scalar(select(func.count()).select_from(table)) or 0)  # type: ignore[arg-type]


@pytest.fixture
def story(engine: Engine, tmp_path: Path, fake: AwsFake) -> Priced:
    return Priced(engine, tmp_path / "store", fake, ("us-east-1",))


def test_the_past_is_asked_once_after_the_prices_of_now(story: Priced, fake: AwsFake) -> None:
    assert isinstance(story.source, PoolPastSource)
    assert isinstance(story.source, PlacementScoreSource)
    fake.price_steps(
        "g5.xlarge", "us-east-1a", *((day * 86_400, 300_000 + day) for day in range(119, 0, -1))
    )
    assert story.read() == 0, "no pool is known yet"
    run_controller(story.runtime, story.refreshing)
    hot = story.count(prices)
    asked = fake.world.calls["DescribeSpotPriceHistory"]
    while story.read():
        pass
    assert fake.world.calls["DescribeSpotPriceHistory"] - asked <= 3, "one question for each batch"
    assert story.count(prices) == hot, "the rows that bills rest on are as few as before"
    assert story.count(pool_pasts) == len(TYPES) * 3
    told = DeploymentReports(story.engine).price_histories(
        story.time - timedelta(days=90), story.time, pool=aws_pool(), gpu=None
    )
    (one,) = told
    assert one["summary"] == {"least": 300_001, "median": 300_045, "most": 300_090}
    assert len(one["steps"]) == 90
    assert one["known_since_at"] < story.time - timedelta(days=90)
    story.time += timedelta(days=3)
    before = fake.world.calls["DescribeSpotPriceHistory"]
    story.read(3)
    assert fake.world.calls["DescribeSpotPriceHistory"] == before, "later steps come by themselves"


def test_a_long_past_is_kept_thinned(story: Priced, fake: AwsFake) -> None:
    steps = ((hour * 3_600, 300_000 + hour % 50) for hour in range(80 * 24, 0, -1))
    fake.price_steps("g5.xlarge", "us-east-1a", *steps)
    run_controller(story.runtime, story.refreshing)
    while story.read():
        pass
    with story.runtime.begin() as uow:
        kept = uow.pool_pasts.past(aws_pool())
    assert kept is not None
    assert len(kept["steps"]) <= STEPS_MAX
    assert {300_000, 300_049} <= {price for _, price in kept["steps"]}


def test_scores_are_shown_with_their_age_and_seldom_asked_for(story: Priced, fake: AwsFake) -> None:
    run_controller(story.runtime, story.refreshing)
    while story.read():
        pass
    gpus = {offer.hardware.gpu_name for offer in story.source.offers()}
    assert fake.world.calls["GetSpotPlacementScores"] == len(gpus)
    reports = DeploymentReports(story.engine)
    (row,) = (one for one in reports.offers(None) if one["pool"] == aws_pool())
    assert row["placement_score"] in range(1, 11)
    assert row["placement_scored_at"] == story.time
    assert row["preemption_rate"] is None
    story.time += timedelta(hours=11)
    story.read(3)
    assert fake.world.calls["GetSpotPlacementScores"] == len(gpus)
    story.time += timedelta(hours=2)
    while story.read():
        pass
    assert fake.world.calls["GetSpotPlacementScores"] == 2 * len(gpus)


def test_what_cannot_be_asked_rests_and_delays_nothing(story: Priced, fake: AwsFake) -> None:
    run_controller(story.runtime, story.refreshing)
    fake.fail("DescribeSpotPriceHistory", "RequestLimitExceeded", 503, times=2)
    fake.fail("GetSpotPlacementScores", "MaxConfigLimitExceeded", 400)
    story.read()
    assert story.count(pool_pasts) == 0
    assert story.read(3) == 0
    run_controller(story.runtime, story.refreshing)
    story.time += FAILED_REST + timedelta(seconds=1)
    while story.read():
        pass
    assert story.count(pool_pasts) == len(TYPES) * 3


def test_a_region_that_fails_keeps_no_other_from_being_asked(
    engine: Engine, tmp_path: Path, fake: AwsFake
) -> None:
    story = Priced(engine, tmp_path / "store", fake, ("us-east-1", "us-west-2"))
    run_controller(story.runtime, story.refreshing)
    fake.fail("DescribeSpotPriceHistory", "RequestLimitExceeded", 503, times=2)
    story.read(20)
    with story.runtime.begin() as uow:
        unasked = uow.pool_pasts.without_past("aws", None, 100)
    assert {pool.region for pool in unasked} == {"us-east-1"}
    run_controller(story.runtime, story.refreshing)
    story.time += FAILED_REST + timedelta(seconds=1)
    story.read(20)
    with story.runtime.begin() as uow:
        assert uow.pool_pasts.without_past("aws", None, 100) == []


def test_a_price_that_is_none_is_left_out_with_a_sentence(
    story: Priced, fake: AwsFake, caplog: pytest.LogCaptureFixture
) -> None:
    fake.world.set_price("g5.xlarge", "us-east-1a", -5, now() - timedelta(seconds=30))
    offers = {offer.pool: offer for offer in story.source.offers()}
    assert aws_pool() not in offers
    assert aws_pool("us-east-1b") in offers
    assert "aws/us-east-1/us-east-1a/g5.xlarge/spot is '-0.000005', which cannot be a price" in (
        caplog.text
    )
