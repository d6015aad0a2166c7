"""Several regions: trouble in one of them stops nothing in the others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.aws.prices.price_source import AwsPriceSource
from app.adapters.providers.machine_catalog import shipped_catalog
from app.ports.cloud_provider import (
    LaunchOutcomeUnknown,
    MachineState,
    ProviderError,
    RefusalKind,
    RefusalScope,
)
from app.storage.schema import tables
from tests.providers.aws.test_aws_story import AwsStory
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import (
    DEPLOYMENT,
    a_script,
    aws_order,
    aws_pool,
    provider_for,
    settings_for,
    shared_session,
)
from tests.support.aws.aws_world import now

EAST, WEST = "us-east-1", "us-west-2"


def not_opted_in(fake: AwsFake) -> None:
    fake.world.region_faults[WEST] = ("OptInRequired", 403, 0.0)


def keys_refused(fake: AwsFake) -> None:
    """What EC2 says to the keys of an account in a region that is not enabled."""
    fake.world.region_faults[WEST] = ("AuthFailure", 401, 0.0)


def silent(fake: AwsFake) -> None:
    fake.world.region_faults[WEST] = ("", 0, 0.1)


TROUBLES = [not_opted_in, keys_refused, silent]
FEW_TROUBLES = pytest.mark.parametrize(
    "trouble",
    [not_opted_in, *(pytest.param(one, marks=pytest.mark.full) for one in (keys_refused, silent))],
)


def prices_for(fake: AwsFake) -> AwsPriceSource:
    _, prices = open_aws(
        settings_for(fake),
        shipped_catalog("aws"),
        deployment_id=lambda: DEPLOYMENT,
        render=a_script,
        session=shared_session(),
    )
    return prices


@pytest.mark.parametrize("trouble", TROUBLES)
def test_prices_of_the_other_regions_are_told(
    fake: AwsFake, trouble: Callable[[AwsFake], None]
) -> None:
    trouble(fake)
    prices = prices_for(fake)
    assert {offer.pool.region for offer in prices.offers()} == {EAST}
    assert {change.pool.region for change in prices.changes_since(now())} == {EAST}


def test_prices_are_an_error_where_no_region_answers(fake: AwsFake) -> None:
    not_opted_in(fake)
    fake.world.region_faults[EAST] = fake.world.region_faults[WEST]
    with pytest.raises(ProviderError) as refused:
        prices_for(fake).offers()
    assert (refused.value.kind, refused.value.scope) == (RefusalKind.DENIED, RefusalScope.REGION)


def test_a_region_that_was_silent_is_asked_from_its_own_last_answer_on(fake: AwsFake) -> None:
    prices, at = prices_for(fake), now()
    prices.changes_since(at)
    not_opted_in(fake)
    prices.changes_since(at)
    fake.price_steps("g5.xlarge", f"{WEST}a", (0.0, 777_700))
    fake.world.region_faults.clear()
    later = prices.changes_since(now() + timedelta(seconds=1))  # the others were asked meanwhile
    assert 777_700 in {one.microusd_per_hour for one in later if one.pool.region == WEST}


def test_offers_are_worth_nothing_without_the_changes_that_led_to_them(fake: AwsFake) -> None:
    """A bill is closed once prices of after its end are quoted."""
    prices = prices_for(fake)
    prices.offers()
    not_opted_in(fake)
    with pytest.raises(ProviderError):
        prices.changes_since(now())
    assert {offer.pool.region for offer in prices.offers()} == {EAST}
    assert {change.pool.region for change in prices.changes_since(now())} == {EAST}


@FEW_TROUBLES
def test_a_bucket_is_found_through_any_region(
    fake: AwsFake, trouble: Callable[[AwsFake], None]
) -> None:
    provider = provider_for(fake)
    place = {"LocationConstraint": WEST}
    provider.clients.change(
        "s3", WEST, "create_bucket", Bucket="lowtide", CreateBucketConfiguration=place
    )
    trouble(fake)
    fake.world.region_faults = {EAST: fake.world.region_faults[WEST]}
    assert provider.locate_bucket("lowtide") == WEST


@FEW_TROUBLES
def test_crash_recovery_asks_the_launchs_own_region(
    fake: AwsFake, trouble: Callable[[AwsFake], None]
) -> None:
    fake.world.lost["CreateFleet"] += 1
    with pytest.raises(LaunchOutcomeUnknown):
        provider_for(fake).launch(aws_order())
    trouble(fake)
    (found,) = provider_for(fake).find_by_token("token-1", EAST)
    assert found.pool.region == EAST
    with pytest.raises(ProviderError):
        provider_for(fake).find_by_token("token-1")  # nobody knows what the other region holds


@FEW_TROUBLES
def test_machines_elsewhere_are_seen_and_given_back(
    fake: AwsFake, trouble: Callable[[AwsFake], None]
) -> None:
    here, there = (
        provider_for(fake).launch(aws_order(aws_pool(zone), token=zone)).accepted[0]
        for zone in (f"{EAST}a", f"{WEST}a")
    )
    trouble(fake)
    other = provider_for(fake)  # remembers no machine's region
    ids = (here.provider_instance_id, there.provider_instance_id)
    assert len(other.describe(ids[:1])) == 1
    with pytest.raises(ProviderError):
        other.describe(ids)
    assert provider_for(fake).list_deployment(EAST).complete
    with pytest.raises(ProviderError):
        provider_for(fake).terminate(ids)
    (ended,) = other.describe(ids[:1])
    assert ended.state is MachineState.TERMINATED


@FEW_TROUBLES
def test_machines_of_a_region_are_seen_and_given_back_after_a_restart(
    fake: AwsFake, trouble: Callable[[AwsFake], None]
) -> None:
    """One of them is shown no more, so that nobody remembers where it was."""
    (here,) = provider_for(fake).launch(aws_order(aws_pool(f"{EAST}a"))).accepted
    trouble(fake)
    ids = (here.provider_instance_id, "i-00000000000000000")
    (shown,) = provider_for(fake).describe(ids, EAST)
    assert shown.provider_instance_id == here.provider_instance_id
    provider_for(fake).terminate(ids, EAST)
    (ended,) = provider_for(fake).describe(ids, EAST)
    assert ended.state is MachineState.TERMINATED


def test_a_termination_with_its_region_asks_no_other_one(fake: AwsFake) -> None:
    """After a restart, when the rows alone tell where a machine is."""
    (there,) = provider_for(fake).launch(aws_order(aws_pool(f"{WEST}a"))).accepted
    fake.world.calls.clear()
    provider_for(fake).terminate((there.provider_instance_id,), WEST)
    assert dict(fake.world.calls) == {"TerminateInstances": 1}
    assert not fake.world.machines[there.provider_instance_id].lives


def test_jobs_run_and_are_paid_for_while_a_region_is_not_enabled(
    engine: Engine, tmp_path: Path, fake: AwsFake
) -> None:
    not_opted_in(fake)
    story = AwsStory(engine, tmp_path / "store", fake)
    fake.world.lost["CreateFleet"] += 1
    job_id = story.submit(resources={"gpu": "A10G:1"})
    (only,) = story.await_training(job_id, 1)
    story.finish(job_id, [only], 1)
    story.await_final_costs(job_id)
    pool = story.instance(only).pool
    assert pool is not None
    assert pool.region == EAST
    with engine.connect() as connection:
        assert connection.scalars(select(tables.instances.c.state)).all() == ["terminated"]
    assert set(fake.world.launches.values()) == {1}
