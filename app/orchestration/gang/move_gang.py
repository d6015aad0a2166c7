"""How a gang moves to another pool: the new machines are acquired before the old ones are left.

Lives here: beginning a move, and its two ends. The machines of a move are those of one launch.
Until the move is on they belong to no attempt, and the job counts on its old ones; from then on the
next attempt forms over the new ones alone (`placement.methods.gang_machines`). Not here: whether a
move repays (`evaluate_moves`).
"""

from __future__ import annotations

from datetime import timedelta

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.market.offer import Market
from app.domain.placement.decision import MachineRequest
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.order_instances import LaunchPurpose, order_instances
from app.orchestration.gang.release_order import order_release


def begin_move(
    aggregate: JobAggregate, request: MachineRequest, sentence: str, limits: Limits
) -> None:
    """Request a gang in one pool, beside the one that trains."""
    job, pool = aggregate.job, request.bids[0].pool
    launch, _ = order_instances(
        aggregate, request, market=Market.SPOT, purpose=LaunchPurpose.MIGRATION, limits=limits
    )
    job.moving_launch_id = launch.id
    job.moving_until_at = aggregate.now + timedelta(seconds=limits.provisioning_seconds)
    aggregate.record(
        JobEventKind.MIGRATION_BEGUN,
        f"Requesting machines in {pool.zone} to move there; training continues. {sentence}",
        about=launch,
        pool=pool.key,
    )


def machines_of_move(aggregate: JobAggregate) -> list[Instance]:
    """The usable machines that the job moves to."""
    launch_id = aggregate.job.moving_launch_id
    return [
        one
        for one in aggregate.usable()
        if launch_id is not None
        and one.launch_id == launch_id
        and not one.suspect
        and one.unreachable_at is None
    ]


def turn_to_new_machines(aggregate: JobAggregate) -> None:
    """From now on the job counts on the machines that it moves to, wherever they are by now."""
    aggregate.job.moving_until_at = None


def forget_move(aggregate: JobAggregate, why: str, limits: Limits) -> None:
    """Give the new machines back and go on as if nothing had been, for a while at least."""
    job = aggregate.job
    new = [one for one in aggregate.living() if one.launch_id == job.moving_launch_id]
    order_release(aggregate, new, "the move was cancelled")
    aggregate.record(JobEventKind.MIGRATION_GIVEN_UP, f"The job stays in its pool: {why}.", why=why)
    end_move(aggregate)
    job.move_look_at = aggregate.look_in(limits.migration_rest_seconds)


def end_move(aggregate: JobAggregate) -> None:
    """The move is over: the job has one gang again, or none."""
    job = aggregate.job
    job.moving_launch_id = job.moving_until_at = job.move_look_at = None
