"""The state of a gang that lacks machines, read under the job's lock.

Lives here: open places of a forming gang, what the next attempt will lack, the places of a claimed
gang, and where more machines may come from. Not here: the methods (`placement.methods`), or a
change of market (`gather_market`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PlacementAction
from app.domain.lifecycle.attempt import TRAINING_ATTEMPT_STATES, AttemptState
from app.domain.lifecycle.entities import Budget
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobState
from app.domain.market.offer import Market
from app.domain.placement.decision import Abandon, CutOver
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.methods.fill_places import FormingState
from app.domain.placement.methods.gang_machines import (
    end_of_move,
    is_place_open,
    machines_for,
    place_of,
)
from app.domain.placement.methods.offer_book import Shortlist
from app.domain.placement.methods.place_claimed import ClaimState
from app.domain.placement.methods.replace_lost import LackingState
from app.domain.placement.methods.supply import Supply
from app.domain.placement.placement import PlacementDomain, work_alike
from app.orchestration.estimates.work_by_gpu import speeds_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.lost_rows import lists_are_awaited, numbered_before_gap
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.reserve_budget import read_headroom
from app.orchestration.placement.market_and_size import has_left_spot, size_terms, ways_back
from app.orchestration.placement.read_offers import candidates, offer_book

# A lost machine may have been the last thing a job waited for: what has ended needs no other one.
_GOING_ON = CLAIMABLE_JOB_STATES | {JobState.STARTING, JobState.RUNNING}


def lacking_state(
    aggregate: JobAggregate,
    gang: GangNeed,
    limits: Limits,
    *,
    can_do_without: bool = False,
    both_affordable: bool = False,
) -> LackingState | None:
    """What the next attempt, of this gang, will lack; None where nothing may be requested.

    can_do_without, both_affordable: as of `LackingState`.
    """
    job, attempt, uow = aggregate.job, aggregate.attempt, aggregate.uow
    if job.stop_cause is not None or job.state not in _GOING_ON:
        return None
    if lists_are_awaited(uow, aggregate.now):
        return None  # machines of this job may run that no row knows
    move, usable = aggregate.move, aggregate.usable()
    healthy = [one for one in usable if not one.suspect and one.unreachable_at is None]
    trains = attempt is not None and attempt.state in TRAINING_ATTEMPT_STATES
    end = end_of_move(healthy, gang, move, trains=trains)
    if move is not None and isinstance(end, CutOver):
        move = replace(move, is_on=True)
    elif move is not None and isinstance(end, Abandon):
        usable, move = [one for one in usable if one.launch_id != move.launch_id], None
    members = {member.instance_id for member in aggregate.members}
    machines = machines_for(usable, gang, move, members)
    supply = None
    if len(machines) < gang.node_count and not is_place_open(machines):
        supply = supply_for(aggregate, gang, limits, place_of(machines))
    return LackingState(gang, len(machines), end, supply, can_do_without, both_affordable)


def forming_state(aggregate: JobAggregate, limits: Limits) -> FormingState | None:
    """The open places of the gang that forms; None where none does."""
    attempt, gang = aggregate.attempt, aggregate.gang_need
    if attempt is None or attempt.state is not AttemptState.PROVISIONING:
        return None
    taken = {member.instance_id for member in aggregate.members}
    machines = candidates(aggregate, gang)
    idle = tuple(one.id for one in machines if one.id not in taken)
    missing = attempt.node_count - len(taken) - len(idle)
    is_open = is_place_open(machines)
    fenced_off, launches_left, supply = False, True, None
    if missing > 0 and not is_open:
        fenced_off = numbered_before_gap(aggregate.uow, attempt)
        launches_left = attempt.launches_made < limits.launches_per_attempt_max
        if launches_left and not fenced_off:
            supply = supply_for(aggregate, gang, limits, place_of(machines))
    return FormingState(
        node_count=attempt.node_count,
        least=aggregate.spec.nodes.least,
        members=len(taken),
        idle=idle,
        is_place_open=is_open,
        fenced_off=fenced_off,
        launches_left=launches_left,
        supply=supply,
    )


def claim_state(
    aggregate: JobAggregate,
    by_market: Mapping[Market, Shortlist],
    budgets: Sequence[Budget],
    limits: Limits,
    choice: LiveChoice | None,
    claimed_with: int,
) -> ClaimState:
    """A job that is claimed, its market settled.

    by_market: offers that were read before. choice: what its deadline makes of them. claimed_with:
    as of `ClaimState`.
    """
    gang, spec = aggregate.gang_need, aggregate.spec
    machines, among = candidates(aggregate, gang), by_market[gang.market]
    offers = offer_book(aggregate, gang, limits, place_of(machines), among=among)
    terms = size_terms(aggregate, gang, limits, budgets, speeds=among.speeds)
    spot = None
    if has_left_spot(aggregate, gang):
        on_spot, known = GangNeed(Market.SPOT, gang.node_count), by_market.get(Market.SPOT)
        spot = offer_book(aggregate, on_spot, limits, None, among=known)
    return ClaimState(
        gang=gang,
        survivors=tuple(one.id for one in machines),
        supply=Supply(gang.node_count, offers, read_headroom(aggregate, limits, budgets), terms),
        may_go_back=ways_back(aggregate, gang, limits),
        is_one_coming=any(one.pool is None for one in machines),
        claimed_with=claimed_with,
        waiting_costs_less=choice is not None and choice.verdict is PlacementAction.WAIT,
        spot_offers=spot,
        late_is_better=spec.on_deadline == "finish" and not work_alike(spec),
    )


def supply_for(
    aggregate: JobAggregate, gang: GangNeed, limits: Limits, domain: PlacementDomain | None
) -> Supply:
    """Where more machines may come from between two claims.

    domain: where the gang's machines are; None where it has none.
    """
    return Supply(
        gang.node_count,
        offer_book(aggregate, gang, limits, domain),
        read_headroom(aggregate, limits),
        size_terms(aggregate, gang, limits, speeds=speeds_of(aggregate)),
        ways_back(aggregate, gang, limits)(gang.node_count),
    )
