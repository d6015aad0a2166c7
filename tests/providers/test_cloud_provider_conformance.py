"""What every provider must do. A new provider joins by one line in `PROVIDERS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import (
    AcceptedMachine,
    CloudMachine,
    LaunchOrder,
    LaunchOutcomeUnknown,
    LaunchResult,
    MachineState,
    PoolBid,
    ProviderError,
    RefusalKind,
)
from tests.providers.aws.aws_under_test import open_aws
from tests.providers.gcp.gcp_under_test import open_gcp
from tests.providers.local.local_under_test import open_local
from tests.providers.provider_under_test import CloudAtHand, ProviderUnderTest
from tests.providers.simulated_under_test import open_simulated

PROVIDERS: dict[str, Callable[[], AbstractContextManager[CloudAtHand]]] = {
    "aws-on-fakes": open_aws,
    "gcp-on-fakes": open_gcp,
    "local": open_local,
    "simulated-ec2": open_simulated("aws", "ec2"),
    "simulated-gce": open_simulated("gcp", "gce"),
}


@pytest.fixture(params=sorted(PROVIDERS))
def under_test(request: pytest.FixtureRequest) -> Iterator[CloudAtHand]:
    """Each provider in turn, on an unused cloud."""
    with PROVIDERS[request.param]() as found:
        yield found


def order(*pools: Pool, count: int = 1, token: str = "token-1") -> LaunchOrder:
    return LaunchOrder(
        client_token=token,
        count=count,
        min_count=count,
        market=pools[0].market,
        bids=tuple(PoolBid(pool, None) for pool in pools),
        user_data={"LOWTIDE_LAUNCH_TOKEN": "one-time"},
        tags={"lowtide-job": "j-1"},
    )


def launch(under_test: ProviderUnderTest, wanted: LaunchOrder) -> LaunchResult:
    """The final answer of a launch."""
    result = [under_test.provider.launch(wanted)]

    def is_final() -> bool:
        operation = result[0].pending_operation
        if operation is not None:
            result[0] = under_test.provider.poll_launch(operation)
        return result[0].pending_operation is None

    under_test.eventually(is_final)
    return result[0]


def shown_under(under_test: ProviderUnderTest, token: str, count: int) -> tuple[CloudMachine, ...]:
    """What a token finds once the cloud shows it all; clouds show new machines late."""
    provider = under_test.provider
    under_test.eventually(lambda: len(provider.find_by_token(token)) >= count)
    found = provider.find_by_token(token)
    for region in {machine.pool.region for machine in found}:
        assert ids(provider.find_by_token(token, region)) == ids(found)
    return found


def ids(machines: tuple[AcceptedMachine, ...] | tuple[CloudMachine, ...]) -> list[str]:
    return sorted(machine.provider_instance_id for machine in machines)


def look(under_test: ProviderUnderTest, machine_id: str) -> CloudMachine:
    under_test.eventually(lambda: bool(under_test.provider.describe((machine_id,))))
    (found,) = under_test.provider.describe((machine_id,))
    return found


def test_names_itself_and_its_regions(under_test: ProviderUnderTest) -> None:
    provider = under_test.provider
    pools = under_test.pools(Market.SPOT)
    assert {pool.provider for pool in pools} == {provider.name}
    assert list(provider.regions()) == sorted(set(provider.regions()))
    assert pools[0].region in provider.regions()
    assert 0 < provider.call_timeout_seconds <= 600


def test_a_launch_gives_its_count_in_one_pool_and_says_when(under_test: ProviderUnderTest) -> None:
    pools = under_test.pools(Market.SPOT)
    result = launch(under_test, order(*pools, count=2))
    assert len(set(ids(result.accepted))) == 2
    (pool,) = {machine.pool for machine in result.accepted}
    assert pool in pools
    shown = shown_under(under_test, "token-1", 2)
    assert ids(shown) == ids(result.accepted)
    for machine in shown:
        assert machine.state in (MachineState.PENDING, MachineState.RUNNING)
        assert machine.client_token == "token-1"
        assert machine.pool == pool
        assert machine.tags["lowtide-job"] == "j-1"
        assert (machine.ended_by, machine.ended_at) == (None, None)
    machine_id = shown[0].provider_instance_id
    under_test.eventually(lambda: look(under_test, machine_id).state is MachineState.RUNNING)
    running = look(under_test, machine_id)
    assert running.launched_at is not None
    assert running.launched_at.tzinfo is not None
    assert running.launched_source


def test_the_same_token_and_order_never_give_more_machines(under_test: ProviderUnderTest) -> None:
    wanted = order(*under_test.pools(Market.SPOT), count=2)
    first = launch(under_test, wanted)
    again = launch(under_test, wanted)
    assert ids(again.accepted) == ids(first.accepted)
    assert ids(shown_under(under_test, "token-1", 2)) == ids(first.accepted)


def test_the_same_token_with_another_order_is_rejected(under_test: ProviderUnderTest) -> None:
    wanted = order(*under_test.pools(Market.SPOT))
    launch(under_test, wanted)
    with pytest.raises(ProviderError) as refused:
        launch(under_test, replace(wanted, count=2, min_count=2))
    assert refused.value.kind is RefusalKind.REJECTED
    assert len(shown_under(under_test, "token-1", 1)) == 1


def test_a_lost_reply_leaves_machines_that_the_token_finds(under_test: CloudAtHand) -> None:
    wanted = order(*under_test.pools(Market.SPOT))
    under_test.lose_next_reply()
    with pytest.raises(LaunchOutcomeUnknown) as unknown:
        under_test.provider.launch(wanted)
    assert unknown.value.kind is RefusalKind.UNAVAILABLE
    found = shown_under(under_test, "token-1", 1)
    assert len(found) == 1
    assert ids(launch(under_test, wanted).accepted) == ids(found)


def test_an_unknown_token_finds_nothing(under_test: ProviderUnderTest) -> None:
    assert under_test.provider.find_by_token("never-used") == ()


def test_a_full_pool_is_passed_over(under_test: ProviderUnderTest) -> None:
    first, second = under_test.pools(Market.SPOT)[:2]
    launch(under_test, order(first, count=under_test.room, token="filler"))
    result = launch(under_test, order(first, second))
    assert [machine.pool for machine in result.accepted] == [second]


def test_no_room_anywhere_starts_nothing_and_says_so(under_test: ProviderUnderTest) -> None:
    pool = under_test.pools(Market.SPOT)[0]
    launch(under_test, order(pool, count=under_test.room, token="filler"))
    result = launch(under_test, order(pool))
    assert result.accepted == ()
    assert [(one.pool, one.kind) for one in result.refused] == [(pool, RefusalKind.NO_CAPACITY)]
    assert result.refused[0].message
    assert under_test.provider.find_by_token("token-1") == ()


def test_fewer_than_count_start_only_down_to_min_count(under_test: ProviderUnderTest) -> None:
    pool = under_test.pools(Market.SPOT)[0]
    launch(under_test, order(pool, token="filler"))
    room = under_test.room - 1
    none = launch(under_test, order(pool, count=room + 1, token="all-or-none"))
    assert none.accepted == ()
    elastic = replace(order(pool, count=room + 1, token="elastic"), min_count=1)
    some = launch(under_test, elastic)
    assert len(some.accepted) == room
    assert RefusalKind.NO_CAPACITY in {one.kind for one in some.refused}


def test_on_demand_is_rented_by_the_same_call(under_test: ProviderUnderTest) -> None:
    pool = under_test.pools(Market.ON_DEMAND)[0]
    result = launch(under_test, order(pool))
    assert [machine.pool for machine in result.accepted] == [pool]


def test_a_price_above_the_highest_accepted_is_refused(under_test: ProviderUnderTest) -> None:
    pool = under_test.pools(Market.SPOT)[0]
    low = PoolBid(pool, under_test.price_microusd_per_hour(pool) - 1)
    result = launch(under_test, replace(order(pool), bids=(low,)))
    assert result.accepted == ()
    assert [one.kind for one in result.refused] == [RefusalKind.PRICE_TOO_LOW]


def test_a_pool_that_is_not_offered_is_unsupported(under_test: ProviderUnderTest) -> None:
    known = under_test.pools(Market.SPOT)[0]
    result = launch(under_test, order(replace(known, instance_type="x9.none"), known))
    assert [machine.pool for machine in result.accepted] == [known]
    alone = launch(under_test, order(replace(known, instance_type="x9.none"), token="token-2"))
    assert alone.accepted == ()
    assert {one.kind for one in alone.refused} == {RefusalKind.UNSUPPORTED}


def test_describe_tells_only_of_machines_that_exist(under_test: ProviderUnderTest) -> None:
    result = launch(under_test, order(*under_test.pools(Market.SPOT), count=2))
    wanted = ids(result.accepted)
    shown_under(under_test, "token-1", 2)
    found = under_test.provider.describe((*reversed(wanted), "i-00000000000000000"))
    assert [machine.provider_instance_id for machine in found] == wanted
    assert under_test.provider.describe(()) == ()


def test_what_is_given_back_ends_by_us_once(under_test: ProviderUnderTest) -> None:
    result = launch(under_test, order(*under_test.pools(Market.SPOT), count=2))
    gone, kept = ids(result.accepted)
    shown_under(under_test, "token-1", 2)  # a cloud may not know a machine that it does not show
    under_test.provider.terminate((gone, "i-00000000000000000"))
    under_test.eventually(lambda: look(under_test, gone).state is MachineState.TERMINATED)
    ended = look(under_test, gone)
    under_test.provider.terminate((gone,))
    assert look(under_test, gone) == ended
    assert ended.ended_by is EndedBy.US
    assert ended.launched_at is not None
    assert ended.ended_at is not None
    assert ended.ended_at >= ended.launched_at
    assert ended.ended_source
    assert look(under_test, kept).state in (MachineState.PENDING, MachineState.RUNNING)
    under_test.provider.terminate(())


def test_what_the_cloud_takes_ends_by_interruption(under_test: CloudAtHand) -> None:
    (machine_id,) = ids(launch(under_test, order(*under_test.pools(Market.SPOT))).accepted)
    under_test.eventually(lambda: look(under_test, machine_id).state is MachineState.RUNNING)
    under_test.take(machine_id)
    under_test.eventually(lambda: look(under_test, machine_id).state is MachineState.TERMINATED)
    assert look(under_test, machine_id).ended_by is EndedBy.CLOUD_INTERRUPTION


def test_capacity_comes_back_when_a_machine_ends(under_test: ProviderUnderTest) -> None:
    pool = under_test.pools(Market.SPOT)[0]
    full = launch(under_test, order(pool, count=under_test.room, token="filler"))
    shown_under(under_test, "filler", under_test.room)
    under_test.provider.terminate(tuple(ids(full.accepted)))
    under_test.eventually(
        lambda: all(
            machine.state is MachineState.TERMINATED
            for machine in under_test.provider.find_by_token("filler")
        )
    )
    assert len(launch(under_test, order(pool)).accepted) == 1


def test_the_list_of_a_region_is_complete_and_sorted(under_test: ProviderUnderTest) -> None:
    first, second = under_test.pools(Market.SPOT)[:2]
    here = launch(under_test, order(first, count=2, token="a")).accepted
    here += launch(under_test, order(second, token="b")).accepted
    shown_under(under_test, "a", 2)
    shown_under(under_test, "b", 1)
    found = under_test.provider.list_deployment(first.region)
    assert found.complete
    assert [machine.provider_instance_id for machine in found.machines] == ids(here)
    elsewhere = [region for region in under_test.provider.regions() if region != first.region]
    for region in elsewhere[:1]:
        assert under_test.provider.list_deployment(region).machines == ()
