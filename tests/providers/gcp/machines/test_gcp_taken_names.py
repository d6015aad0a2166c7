"""Names that are taken when a gang is asked for again: its own machines, part of it, or others'.

Google has forgotten the request id by then, so that nothing but names and labels tells.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.adapters.providers.gcp.machines.pending_launch import PendingLaunch
from app.ports.cloud_provider import LaunchOrder, LaunchOutcomeUnknown, RefusalKind
from tests.providers.gcp.gcp_under_test import an_order, open_provider
from tests.support.gce.gce_fake import FakeGce

GANG = an_order(count=2)
OTHERS = "0190f000-0000-7000-8000-00000000beef"


@pytest.fixture(params=[False, True], ids=["at once", "by the operation"])
def taken(gce: FakeGce, request: pytest.FixtureRequest) -> FakeGce:
    """An account that tells of taken names in either way."""
    gce.engine.world.late_name_check = request.param
    return gce


def launched_before(gce: FakeGce, order: LaunchOrder = GANG) -> list[str]:
    names = [one.provider_instance_id for one in open_provider(gce).launch(order).accepted]
    gce.engine._requests.clear()
    return names


def test_a_whole_gang_of_ours_is_found_and_no_second_is_started(taken: FakeGce) -> None:
    names = launched_before(taken)
    result = open_provider(taken).launch(GANG)
    assert [one.provider_instance_id for one in result.accepted] == names
    assert result.refused == ()
    assert sorted(vm.name for vm in taken.engine.all) == sorted(names)


def test_machines_of_another_deployment_are_neither_taken_nor_deleted(taken: FakeGce) -> None:
    """Also not where the names are all that a list shows of them."""
    names = launched_before(taken)
    for vm in taken.engine.live.values():
        vm.body["labels"]["lowtide_deployment"] = OTHERS
    result = open_provider(taken).launch(GANG)
    assert result.accepted == ()
    assert {one.kind for one in result.refused} == {RefusalKind.REJECTED}
    assert "another deployment" in result.refused[0].message
    assert sorted(vm.name for vm in taken.engine.live.values()) == sorted(names)


def test_machines_of_another_launch_under_our_names_are_not_adopted(taken: FakeGce) -> None:
    launched_before(taken)
    for vm in taken.engine.live.values():
        vm.body["labels"]["lowtide_token"] = "lowtide-other"
    with pytest.raises(LaunchOutcomeUnknown, match="no list shows"):
        open_provider(taken).launch(GANG)
    assert len(taken.engine.live) == 2


def test_what_is_left_of_a_gang_is_given_back(taken: FakeGce) -> None:
    first, second = launched_before(taken)
    taken.engine.preempt(first, notice=False)
    # One name is free again: the other alone is in the way.
    result = open_provider(taken).launch(GANG)
    assert result.accepted == ()
    assert [one.kind for one in result.refused] == [RefusalKind.NO_CAPACITY]
    assert "1 of at least 2 machines" in result.refused[0].message
    taken.engine.advance(1)
    assert second not in {vm.name for vm in taken.engine.live.values()}


def test_what_is_left_of_an_elastic_gang_is_its_gang(taken: FakeGce) -> None:
    elastic = replace(GANG, min_count=1)
    first, second = launched_before(taken, elastic)
    taken.engine.preempt(first, notice=False)
    result = open_provider(taken).launch(elastic)
    assert [one.provider_instance_id for one in result.accepted] == [second]


def test_a_gang_of_which_one_is_not_shown_yet_stays_open(taken: FakeGce) -> None:
    names = launched_before(taken)
    (hidden,) = [vm for vm in taken.engine.live.values() if vm.name == names[0]]
    hidden.hidden_looks = 8
    with pytest.raises(LaunchOutcomeUnknown, match="1 of at least 2"):
        open_provider(taken).launch(GANG)
    assert len(taken.engine.live) == 2
    hidden.hidden_looks = 0
    assert len(open_provider(taken).launch(GANG).accepted) == 2


def test_a_pending_launch_of_an_earlier_release_has_no_token(gce: FakeGce) -> None:
    text = "regions/us-central1/operations/o-1?names=a%2Cb&min=2&type=t&market=spot&zones=z-a"
    assert PendingLaunch.parse(text).token == ""
    assert PendingLaunch.parse(f"{text}&token=lowtide-1").to_text() == f"{text}&token=lowtide-1"
