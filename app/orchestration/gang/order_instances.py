"""Write the intent to rent: one launch with its instances, before any cloud is called.

Lives here: the rows of an order, and the money held for it. Not here: the choice of pools
(`placement.placement`), when to order (`claim_jobs`, `lose_instances`, `watch_deadlines`), or the
call (`launch_instances`).
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from enum import StrEnum

from app.domain.deployment.credentials import digest, launch_token
from app.domain.lifecycle.entities import Instance, Launch
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.launch import LaunchOutcome
from app.domain.lifecycle.stored_documents import BidDocument
from app.domain.market.offer import Market, Offer
from app.domain.placement.decision import MachineRequest
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.reserve_budget import reserve_in_passing

LAUNCH_CONTROLLER = "launch_instances"


class LaunchPurpose(StrEnum):
    """Why machines are asked for; shown to people."""

    GANG = "gang"
    REPLACEMENT = "replacement"
    GROWTH = "growth"
    MIGRATION = "migration"


def order_instances(
    aggregate: JobAggregate,
    request: MachineRequest,
    *,
    market: Market,
    purpose: LaunchPurpose,
    limits: Limits,
) -> tuple[Launch, list[Instance]]:
    """Reserve the money and add a launch on any of the bids (not empty, one provider and region).

    Reservation, launch and instances commit with the caller's transaction; the controller that
    calls the cloud is rung after it.
    """
    reserve_in_passing(aggregate, request.reserved_microusd)
    uow, entropy, job, now = aggregate.uow, aggregate.entropy, aggregate.job, aggregate.now
    bids = [_bid(offer, market, aggregate.spec.max_price_ratio) for offer in request.bids]
    provider, count, at_least = request.bids[0].pool.provider, request.count, request.least
    launch_id = entropy.new_id()
    token = launch_token(uow.operations.deployment_secret(), str(launch_id))
    disk_gb = aggregate.spec.resources.disk_gb
    parameters = json.dumps([provider, count, at_least, market, bids, disk_gb], sort_keys=True)
    launch = Launch(
        id=launch_id,
        job_id=job.id,
        provider=provider,
        client_token=f"lowtide-{launch_id}",
        count=count,
        min_count=at_least,
        market=market,
        bids=bids,
        params_digest=hashlib.sha256(parameters.encode()).hexdigest(),
        purpose=purpose.value,
        outcome=LaunchOutcome.PENDING,
        created_at=now,
        token_hash=digest(token),
        token_expires_at=now + timedelta(seconds=limits.launch_token_seconds),
        next_call_at=now,
    )
    uow.launches.add(launch)
    instances = [_instance(aggregate, launch) for _ in range(count)]
    for instance in instances:
        uow.instances.add(instance)
        aggregate.adopt(instance)
    uow.notify_after_commit(LAUNCH_CONTROLLER)
    return launch, instances


def _bid(offer: Offer, market: Market, max_price_ratio: float) -> BidDocument:
    limit = None
    if market is Market.SPOT:
        limit = offer.as_listed(int(offer.on_demand_microusd_per_hour * max_price_ratio))
    return {
        "pool": offer.pool.key,
        "price_microusd_per_hour": offer.price_microusd_per_hour,
        "max_price_microusd_per_hour": limit,
    }


def _instance(aggregate: JobAggregate, launch: Launch) -> Instance:
    return Instance(
        id=aggregate.entropy.new_id(),
        job_id=aggregate.job.id,
        launch_id=launch.id,
        provider=launch.provider,
        market=launch.market,
        state=InstanceState.REQUESTED,
        origin="launch",
        requested_at=aggregate.now,
        updated_at=aggregate.now,
    )
