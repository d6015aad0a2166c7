"""What an account may hold that is not ours, and a machine whose clock is wrong."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from app.adapters.providers.aws.provider import AwsProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.ports.cloud_provider import ProviderError, RefusalKind
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import (
    DEPLOYMENT,
    a_script,
    a_volume,
    aws_order,
    aws_pool,
    provider_for,
    settings_for,
    shared_session,
)

REGION = "us-east-1"
OTHER = f"{DEPLOYMENT[:-1]}9"
"""A deployment made in the same minute: its id begins alike."""


def provider_of(fake: AwsFake, deployment: str) -> AwsProvider:
    return AwsProvider(
        settings_for(fake),
        deployment_id=lambda: deployment,
        render=a_script,
        catalog=shipped_catalog("aws"),
        session=shared_session(),
    )


def a_gang(token: str) -> Any:
    pool = aws_pool(instance_type="p4d.24xlarge")
    return aws_order(pool, count=2, token=token, in_gang=True)


def test_two_deployments_in_an_account_touch_nothing_of_each_other(fake: AwsFake) -> None:
    ours, theirs = provider_of(fake, DEPLOYMENT), provider_of(fake, OTHER)
    mine = {one.provider_instance_id for one in ours.launch(a_gang("token-1")).accepted}
    others = {one.provider_instance_id for one in theirs.launch(a_gang("token-2")).accepted}
    kept = a_volume(fake, OTHER)
    listed = ours.list_deployment(REGION)
    assert {one.provider_instance_id for one in listed.machines} == mine
    assert ours.find_by_token("token-2") == ()
    ours.terminate(tuple(mine))
    before = {(one.kind, one.id) for one in theirs.list_leftovers(REGION)}
    remains = ours.list_leftovers(REGION)
    assert {one.kind for one in remains} == {"launch template", "placement group"}
    assert all(one.idle for one in remains)
    assert ours.remove_leftovers(remains) == ()
    assert {(one.kind, one.id) for one in theirs.list_leftovers(REGION)} == before
    assert len(before) == 3
    assert ("volume", kept) in before
    assert all(fake.world.machines[one].lives for one in others)
    assert len(theirs.launch(a_gang("token-3")).accepted) == 2  # its template and group are there


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_an_hour_off_is_named(fake: AwsFake, hours: int) -> None:
    fake.world.clock_ahead = timedelta(hours=hours)
    provider = provider_for(fake)
    for ask in (
        lambda: provider.launch(aws_order()),
        lambda: provider.list_deployment(REGION),
        provider.receive_announcements,
        lambda: provider.locate_bucket("lowtide-checkpoints"),
        lambda: provider.clients.ask("sts", REGION, "get_caller_identity"),
    ):
        with pytest.raises(ProviderError) as refused:
            ask()
        assert refused.value.kind is RefusalKind.DENIED
        assert "clock" in str(refused.value)
    assert fake.world.machines == {}
    (finding, *_) = provider.diagnose()
    assert (finding.name, finding.ok) == ("clock", False)
    # A cloud tells whole seconds, and one may begin between its look at the clock and ours.
    off = rf"(59m 59s|1h) {'ahead of' if hours > 0 else 'behind'} this machine"
    assert re.search(off, finding.sentence)
