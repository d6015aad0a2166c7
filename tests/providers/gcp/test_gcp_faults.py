"""Seeded schedules of faults: whatever fails, no launch starts more than it asked for."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from app.adapters.providers.gcp.provider import GcpProvider
from app.domain.market.offer import Market
from app.ports.cloud_provider import LaunchOrder, LaunchResult, ProviderError
from tests.providers.gcp.gcp_under_test import a_pool, an_order, open_provider
from tests.support.gce.gce_fake import CUT, LOGIN_PAGE, FakeGce, LineFault

_FAULTS = (
    LineFault(r"POST .*/instances", after=True),
    LineFault(r"POST .*/instances"),
    LineFault(r"POST .*/instances", status=503),
    LineFault(r"POST .*/instances", status=429, reason="rateLimitExceeded"),
    LineFault(r"GET .*/operations/", times=3, status=500),
    LineFault(r"GET .*/aggregated/instances", times=2, status=503),
    LineFault(r"DELETE ", status=503),
    LineFault(r"DELETE ", after=True),
    LineFault(r"POST .*/instances", body=CUT),
    LineFault(r"POST .*/instances", body=LOGIN_PAGE),
    LineFault(r"GET .*/aggregated/instances", body=CUT),
)
_ERRORS = (
    ("ZONE_RESOURCE_POOL_EXHAUSTED", "none"),
    ("UNSUPPORTED_OPERATION", "preempted while created"),
    ("QUOTA_EXCEEDED", "Quota 'PREEMPTIBLE_NVIDIA_A100_GPUS'"),
)


def settle(gce: FakeGce, provider: GcpProvider, order: LaunchOrder, dice: random.Random) -> None:
    """Launch as the control plane does: repeated under its token until there is an answer."""
    operation: str | None = None
    for _ in range(12):
        if dice.random() < 0.5:
            fault = dice.choice(_FAULTS)
            gce.faults.append(LineFault(**vars(fault)))
        if dice.random() < 0.2:
            gce.engine.creation_errors.append(dice.choice(_ERRORS))
        if dice.random() < 0.3:
            provider = open_provider(gce, request_seconds=1.0, operation_wait_seconds=0.05)
        try:
            answer: LaunchResult = (
                provider.launch(order) if operation is None else provider.poll_launch(operation)
            )
        except ProviderError:
            continue
        operation = answer.pending_operation
        if operation is None:
            return
        gce.engine.advance(1.0)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 12))]
)
def test_no_token_starts_more_than_its_count_and_nothing_stays(gce: FakeGce, seed: int) -> None:
    dice = random.Random(seed)
    gce.engine.world.operation_seconds = dice.choice((0.0, 0.5))
    gce.engine.world.room = 3
    gce.engine.leaves_behind = dice.random() < 0.5
    provider = open_provider(gce, request_seconds=1.0, operation_wait_seconds=0.05)
    wanted: dict[str, int] = {}
    for number in range(6):
        token, count = f"lowtide-{number}", dice.choice((1, 1, 2))
        wanted[token] = count
        zones = dice.sample("abc", dice.choice((1, 2)))
        pools = [a_pool(f"us-central1-{letter}", Market.SPOT) for letter in zones]
        settle(gce, provider, an_order(*pools, count=count, token=token), dice)
        for vm in list(gce.engine.live.values()):
            if vm.status == "RUNNING" and dice.random() < 0.2:
                gce.engine.preempt(vm.name, notice=dice.random() < 0.5)
    ran = Counter(
        vm.body["labels"]["lowtide_token"] for vm in gce.engine.all if vm.started_at is not None
    )
    assert {token: n for token, n in ran.items() if n > wanted[token]} == {}
    gce.faults.clear()
    provider = open_provider(gce)
    gce.engine.advance(200)
    for _ in range(3):
        listed = provider.list_deployment("us-central1")
        provider.terminate(tuple(one.provider_instance_id for one in listed.machines))
        gce.engine.advance(5)
    assert gce.engine.live == {}
    for vm in gce.engine.all:
        if vm.started_at is not None:
            (told,) = provider.describe((vm.name,))
            assert told.ended_at is not None
            assert told.ended_at.timestamp() == pytest.approx(vm.ended_at or 0.0)
