"""What limits count, what they leave, and what is said where they leave nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from app.cli.fleet.limit_commands import _changed
from app.domain.launch_limits.launch_limits import parse_limits
from app.domain.launch_limits.limit_use import HeldMachines, LimitUse, uses_of
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.launch_room import LaunchRoom, obstacle_of, within_room
from app.domain.placement.placement import RankedOffer
from app.domain.units.errors import SpecError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
A100 = Offer(
    Pool("aws", "us-east-1", "us-east-1a", "p4d.24xlarge", Market.SPOT),
    Hardware("A100", 8, 40, 96, 1_152),
    8_000_000, 32_000_000, "ec2", NOW, "test",
)  # fmt: skip
L4 = replace(
    A100,
    pool=replace(A100.pool, instance_type="g6.xlarge"),
    hardware=Hardware("L4", 1, 24, 4, 16),
    price_microusd_per_hour=300_000,
)


def uses(held: list[HeldMachines] | None = None, **limits: Any) -> dict[str, LimitUse]:
    return {one.field: one for one in uses_of(parse_limits(limits), held or [], "vision")}


def test_machines_gpus_and_dollars_are_counted_by_their_own_fields() -> None:
    held = [HeldMachines(2, (A100,)), HeldMachines(3, (L4,)), HeldMachines(1)]
    limits = {"A100": 20, "A100:80GB": 5, "L4": 5, "all": 50}
    found = uses(held, machines=9, gpus=limits, max_hourly_spend_usd=20)
    assert {field: one.used for field, one in found.items()} == {
        "machines": 6,  # one of a pool that nobody knows any more is a machine still
        "gpus.A100": 16,
        "gpus.A100:80GB": 0,
        "gpus.L4": 3,
        "gpus.all": 19,
        "max_hourly_spend_usd": 16_900_000,
    }
    assert [one.per_machine(A100) for one in found.values()] == [1, 8, 0, 0, 8, 8_000_000]


def test_a_machine_whose_cloud_has_not_answered_is_whichever_holds_most() -> None:
    found = uses([HeldMachines(2, (A100, L4))], gpus={"A100": 20, "L4": 5}, max_hourly_spend_usd=20)
    assert [one.used for one in found.values()] == [16, 2, 16_000_000]


def room(*limits: LimitUse) -> LaunchRoom:
    return LaunchRoom(UUID(int=1), (), limits)


def fitting(offer: Offer) -> RankedOffer:
    return RankedOffer(offer, FitVerdict.FITS, "fits")


def test_offers_beyond_the_room_do_not_fit_and_others_have_no_more_than_it() -> None:
    found = uses([HeldMachines(1, (A100,))], machines=4, gpus={"A100": 15, "L4": 9})
    judged = within_room([fitting(A100), fitting(L4)], 2, room(*found.values()))
    [fits, over] = judged
    assert (fits.offer.pool, fits.offer.available) == (L4.pool, 3)
    assert (over.offer.pool, over.verdict) == (A100.pool, FitVerdict.OVER_LIMIT)
    assert over.why == (
        "the limit of 15 A100 of the project 'vision' has no room: its machines have 8 A100, and "
        "this needs 16 A100"
    )
    obstacle = obstacle_of(judged)
    assert obstacle is not None
    assert obstacle.remedy == (
        "a limit of at least 16 A100, which a maintainer of the project sets as "
        "`limits.gpus.A100` in its rules"
    )
    assert room(*found.values()).most(A100) == 0
    scarce = within_room([fitting(replace(L4, available=2))], 2, room(*found.values()))
    assert scarce[0].offer.available == 2


def test_what_would_free_it_is_told_and_whose_it_is() -> None:
    [mine] = uses([HeldMachines(4, (L4,))], machines=4).values()
    shared = replace(mine, project=None)
    for limit, told in (
        (mine, "the end of 2 machines of the project 'vision', or a limit of at least 6 machines"),
        (shared, "the end of 2 machines of this deployment, or a limit of at least 6 machines"),
    ):
        obstacle = room(limit).obstacle(L4, 2)
        assert obstacle is not None
        assert obstacle.remedy.startswith(told)
        assert obstacle.of_deployment is (limit.project is None)
    assert "an admin sets by `lowtide limits --set machines=…`" in shared.remedy(2)


def test_a_price_list_that_doubles_leaves_less_and_stops_nothing() -> None:
    dear = replace(L4, price_microusd_per_hour=2 * L4.price_microusd_per_hour)
    [before] = uses([HeldMachines(3, (L4,))], max_hourly_spend_usd=1).values()
    [after] = uses([HeldMachines(3, (dear,))], max_hourly_spend_usd=1).values()
    assert before.excess is None
    assert after.excess == (
        "The project 'vision' has $1.80/h, over its limit of $1.00/h: nothing is stopped, and "
        "nothing more is requested until it is within the limit."
    )
    assert room(after).most(dear) == 0


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"machines": -1}, "machines: must be at least 0, not -1"),
        ({"machine": 1}, "did you mean 'machines'?"),
        ({"gpus": {"V10": 3}}, "is not a known GPU"),
        ({"gpus": {"V100:2": 3}}, "'V100:2' is not a model; write V100, A100:80GB or all"),
        ({"gpus": {"V100": True}}, "'V100' must be a number of GPUs"),
        ({"gpus": "many"}, "must be a number of GPUs or a mapping like {V100: 8}"),
        ({"gpus": {}}, "must name 1 to 16 models"),
        ({"gpus": {"V100": 1, "v100": 2}}, "names the same model twice"),
        ([], "limits must be a mapping of fields"),
    ],
)
def test_limits_that_cannot_be_read_say_why(written: Any, told: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_limits(written)
    assert told in refused.value.message


def test_limits_are_read_back_as_they_are_stored() -> None:
    limits = parse_limits({"gpus": 32, "machines": 4, "max_hourly_spend_usd": "12.5"})
    assert limits.to_json() == {
        "machines": 4,
        "gpus": {"all": 32},
        "max_hourly_spend_usd": "12.50",
    }
    assert parse_limits(limits.to_json()) == limits


def test_a_number_of_gpus_means_all_models_also_where_there_are_limits_of_models():
    document = {"machines": 4, "gpus": {"V100": 8, "all": 32}}
    assert _changed(document, ["gpus=40"], []) == {"machines": 4, "gpus": {"V100": 8, "all": 40}}
    assert _changed(document, [], ["gpus"]) == {"machines": 4, "gpus": {"V100": 8}}
    assert _changed({}, ["gpus=2"], []) == {"gpus": {"all": 2}}
