"""Answers with HTTP 200 that cannot be read: cut short, or a page of a proxy between."""

from __future__ import annotations

import pytest

from app.ports.cloud_provider import LaunchOutcomeUnknown, ProviderError, RefusalKind
from tests.providers.gcp.gcp_under_test import a_pool, an_order, open_provider
from tests.support.gce.gce_fake import CUT, LOGIN_PAGE, FakeGce, LineFault

BODIES = pytest.mark.parametrize(
    "body", [CUT, LOGIN_PAGE, "{}", "[]", ""], ids=["half a document", "HTML", "{}", "[]", "empty"]
)


def unreadable(
    gce: FakeGce, expression: str, body: str, *, after: bool = True, skip: int = 0
) -> None:
    """The next answer that matches, but for `skip`. No body at all is sent as a blank."""
    gce.faults.append(LineFault(expression, body=body or " ", after=after, skip=skip))


@BODIES
@pytest.mark.parametrize("count", [1, 2])
def test_a_launch_whose_answer_cannot_be_read_is_unknown_and_starts_once(
    gce: FakeGce, body: str, count: int
) -> None:
    unreadable(gce, r"POST .*/(instances|bulkInsert)$", body)
    wanted = an_order(count=count)
    with pytest.raises(LaunchOutcomeUnknown):
        open_provider(gce).launch(wanted)
    assert len(gce.engine.all) == count
    assert len(open_provider(gce).launch(wanted).accepted) == count
    assert len(gce.engine.all) == count


@BODIES
def test_an_operation_that_cannot_be_read_leaves_the_launch_pending(
    gce: FakeGce, body: str
) -> None:
    unreadable(gce, r"GET .*/operations/", body)
    result = open_provider(gce).launch(an_order())
    assert result.accepted == ()
    assert result.pending_operation is not None
    unreadable(gce, r"GET .*/operations/", body)
    with pytest.raises(ProviderError) as failed:
        open_provider(gce).poll_launch(result.pending_operation)
    assert failed.value.kind is RefusalKind.UNAVAILABLE
    assert len(open_provider(gce).poll_launch(result.pending_operation).accepted) == 1


@BODIES
def test_a_list_with_a_page_that_cannot_be_read_is_not_complete(gce: FakeGce, body: str) -> None:
    provider = open_provider(gce)
    provider.launch(an_order(count=3))
    gce.page_size = 2
    unreadable(gce, r"GET .*/aggregated/instances", body)
    listed = provider.list_deployment("us-central1")
    assert (listed.machines, listed.complete) == ((), False)
    whole = provider.list_deployment("us-central1")
    assert (len(whole.machines), whole.complete) == (3, True)
    unreadable(gce, r"GET .*/aggregated/instances", body, after=True, skip=1)
    half = provider.list_deployment("us-central1")
    assert (len(half.machines), half.complete) == (2, False)


@BODIES
def test_nothing_is_concluded_of_machines_from_a_list_that_cannot_be_read(
    gce: FakeGce, body: str
) -> None:
    provider = open_provider(gce)
    (machine,) = provider.launch(an_order()).accepted
    for expression in (r"GET .*/aggregated/instances", r"GET .*/aggregated/operations"):
        if "operations" in expression:
            gce.engine.live.clear()
        unreadable(gce, expression, body)
        with pytest.raises(ProviderError) as failed:
            provider.describe((machine.provider_instance_id,))
        assert failed.value.kind is RefusalKind.UNAVAILABLE
    unreadable(gce, r"GET .*/aggregated/instances", body)
    with pytest.raises(ProviderError) as failed:
        provider.find_by_token("lowtide-1")
    assert failed.value.kind is RefusalKind.UNAVAILABLE


@BODIES
def test_an_unreadable_list_before_a_launch_starts_nothing(gce: FakeGce, body: str) -> None:
    unreadable(gce, r"GET .*/aggregated/instances", body)
    with pytest.raises(ProviderError):
        open_provider(gce).launch(an_order())
    assert gce.engine.all == []


@BODIES
def test_deleting_goes_on_past_an_answer_that_cannot_be_read(gce: FakeGce, body: str) -> None:
    provider = open_provider(gce)
    names = tuple(one.provider_instance_id for one in provider.launch(an_order(count=3)).accepted)
    # The first is not deleted: the page came from somebody between.
    unreadable(gce, r"DELETE .*/instances/", body, after=body == CUT)
    with pytest.raises(ProviderError) as failed:
        provider.terminate(names)
    assert failed.value.kind is RefusalKind.UNAVAILABLE
    gce.engine.advance(1)
    assert len(gce.engine.live) == (0 if body == CUT else 1)
    provider.terminate(names)
    gce.engine.advance(1)
    assert gce.engine.live == {}


@BODIES
def test_a_policy_that_nobody_can_say_was_made_does_not_stop_a_gang(
    gce: FakeGce, body: str
) -> None:
    unreadable(gce, r"POST .*/resourcePolicies", body, after=False)
    assert len(open_provider(gce).launch(an_order(a_pool(), count=2)).accepted) == 2
