"""How a gang moves to another pool: the new machines are acquired before the old ones are left.

Lives here: beginning a move, whose machines are whose while both gangs live, and its two ends. The
machines of a move are those of one launch. Until the move is on they belong to no attempt, and the
job counts on its old ones; from then on the next attempt forms over the new ones alone. So never is
an attempt formed over machines of two places. Not here: whether a move repays (`evaluate_moves`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from app.domain.lifecycle.attempt import TRAINING_ATTEMPT_STATES
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.market.offer import Market, Offer
from app.domain.placement.gang_need import GangNeed
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.order_instances import LaunchPurpose, order_instances
from app.orchestration.gang.release_order import order_release
from app.orchestration.gang.reserve_budget import bears_another_window, bids_within_budget


def begin_move(
    aggregate: JobAggregate, offer: Offer, count: int, sentence: str, limits: Limits
) -> bool:
    """Ask for a gang of `count` in one pool, if the budgets bear both gangs for a while."""
    job, now = aggregate.job, aggregate.now
    if not bears_both(aggregate, limits, [offer] * count):
        return False
    if not bids_within_budget(aggregate, [offer], count, limits, can_do_without=True):
        return False
    launch, _ = order_instances(
        aggregate,
        [offer],
        count=count,
        market=Market.SPOT,
        purpose=LaunchPurpose.MIGRATION,
        limits=limits,
    )
    job.moving_launch_id = launch.id
    job.moving_until_at = now + timedelta(seconds=limits.provisioning_seconds)
    aggregate.record(
        JobEventKind.MIGRATION_BEGUN,
        f"Requesting machines in {offer.pool.zone} to move there; training continues. {sentence}",
        noun="launch",
        noun_id=launch.id,
        pool=offer.pool.key,
    )
    return True


def bears_both(aggregate: JobAggregate, limits: Limits, coming: Sequence[Offer] = ()) -> bool:
    """Whether the budgets go on bearing both gangs, or the new one is to be given back in time.

    Asked at every look: what was reserved at the start holds until the next booking alone.
    coming: an offer for each machine of the new gang, while it is not asked for yet.
    """
    job, uow = aggregate.job, aggregate.uow
    budgets, _ = uow.money.budgets_in_passing(job.project_id, job.budget_id)
    return bears_another_window(
        uow, budgets, job.id, aggregate.living(), limits, aggregate.now, coming
    )


def counted_on(aggregate: JobAggregate, machines: list[Instance]) -> list[Instance]:
    """Those of the machines that the job counts on: the old ones, or once a move is on the new."""
    job = aggregate.job
    if job.moving_launch_id is None:
        return machines
    new = [one for one in machines if one.launch_id == job.moving_launch_id]
    if new and job.moving_until_at is None:
        return new
    return [one for one in machines if one not in new]


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


def lose_old_machines(aggregate: JobAggregate, gang: GangNeed, limits: Limits) -> None:
    """One of the old machines is lost in the middle of a move: who was to come is the replacement.

    In another market than the move was begun in, as before a deadline, nobody needs them.
    """
    job = aggregate.job
    if job.moving_launch_id is None:
        return
    if gang.market is not Market.SPOT:
        forget_move(aggregate, "the job leaves the spot market", limits)
    elif aggregate.attempt is not None and aggregate.attempt.state in TRAINING_ATTEMPT_STATES:
        return  # what it lacks is for another reason
    elif len(machines_of_move(aggregate)) >= gang.node_count:
        turn_to_new_machines(aggregate)
    else:
        forget_move(aggregate, "not all machines to move to have started", limits)


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
