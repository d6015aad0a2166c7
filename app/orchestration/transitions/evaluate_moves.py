"""Weigh now and then whether spot jobs had better train elsewhere, and see their moves through.

Lives here: who is looked at and when, and what is known of the gang and of those it could be. A job
is left alone for a while after it began to train (after an interruption, a move or a change of its
size) and after a move that came to nothing; it must have saved something newer than it began with,
so that moves alone can never fill its time. A rebalance recommendation is a reason to look at once.
Not here: what repays (`app.domain.placement.migration`), or how a gang moves (`move_gang`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.availability.gang_hazard import MachineLife
from app.domain.billing.egress import restore_microusd
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Instance, Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market, Offer
from app.domain.placement.decide import GangState, MoveState, RunningTransition, decide
from app.domain.placement.decision import MoveDecision, Transition
from app.domain.placement.methods.offer_book import Quoted, Shortlist, shortlist
from app.domain.placement.migration import Candidate, CurrentPlacement, MoveTerms, pool_name
from app.domain.placement.placement import PlacementDomain, need_of, work_alike, work_speed
from app.domain.spec.spec_document import SpecDocument
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput, gpu_shape_of
from app.orchestration.estimates.attempt_measures import own_limits, read_measured
from app.orchestration.estimates.work_by_gpu import left_of, told_for
from app.orchestration.frame.aggregate import JobAggregate, parsed_spec
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.evidence_basis import EvidenceBasis, offers_are_old, read_basis
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.move_gang import machines_of_move
from app.orchestration.gang.reserve_budget import read_headroom
from app.orchestration.placement.decision_log import Reasons
from app.orchestration.placement.price_restores import restore_of
from app.orchestration.placement.read_offers import RECENT_INTERRUPTION, candidates, offers_for
from app.orchestration.placement.refresh_hazards import (
    MOVE_CONTROLLER,
    ByPool,
    experience_of,
    life_of,
)
from app.orchestration.transitions.apply_decision import apply_decision
from app.storage.unit_of_work import UnitOfWork

OTHERS_MAX = 20


@dataclass(frozen=True)
class MovableJob:
    """A job to be looked at, with what its place depends on, as it stood unlocked."""

    job_id: UUID
    spec: SpecDocument = field(repr=False)
    node_count: int = field(repr=False)
    speeds: GpuThroughput = field(repr=False)
    offers: Quoted = field(repr=False)
    read_at: datetime = field(repr=False)
    experience: ByPool = field(repr=False)
    basis: EvidenceBasis = field(repr=False)


class EvaluateMoves(RuntimeController):
    """The controller of `jobs.move_look_at`."""

    name = MOVE_CONTROLLER
    limit = 20

    def select(self, uow: UnitOfWork, limit: int) -> list[MovableJob]:
        """Jobs due to be looked at, with the offers of now."""
        due = uow.jobs.movable_ids(uow.now, self._latest(uow), limit)
        offers, at = (uow.offers.all() if due else []), self._runtime.clock.now()
        found = []
        for job_id in due:
            job = uow.jobs.get(job_id)
            if job is not None:
                lived = experience_of(uow, uow.instances.of_job(job_id))
                speeds = _speeds(uow, job)
                basis = read_basis(uow, job)
                found.append(
                    MovableJob(job_id, job.spec, job.node_count, speeds, offers, at, lived, basis)
                )
        return found

    def effect(self, work: MovableJob) -> Shortlist:
        """Sort out the offers, which may be thousands, while nothing is locked."""
        return _sort_out(work, work.offers, self._runtime.clock.now())

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first such job is to be looked at."""
        return uow.jobs.next_move_at(self._latest(uow))

    def _latest(self, uow: UnitOfWork) -> datetime:
        """No look is set for later than that by a clock that has not gone back since."""
        return uow.now + timedelta(seconds=_longest(self._runtime.limits))

    def apply(self, uow: UnitOfWork, work: MovableJob, result: Shortlist) -> None:
        """Look at one job: follow its move, or see whether one repays."""
        limits, now = self._runtime.limits, self._runtime.clock.now()
        if offers_are_old(work.read_at, now):
            result = _sort_out(work, uow.offers.all(), now)
        with self.locked(uow, work.job_id, looking=True) as aggregate:
            if aggregate is None:
                return
            job = aggregate.job
            job.move_look_at = aggregate.look_in(limits.migration_look_seconds)
            if job.moving_launch_id is not None:
                _follow(aggregate, limits)
            elif not work.basis.holds_for(aggregate):
                job.move_look_at = None  # it has changed since its offers were sorted out
                uow.notify_after_commit(MOVE_CONTROLLER)
            elif job.state is JobState.RUNNING and job.market_mode is Market.SPOT:
                _evaluate(aggregate, work, result, limits)


def _sort_out(work: MovableJob, offers: Quoted, now: datetime) -> Shortlist:
    need = need_of(parsed_spec(work.spec), Market.SPOT, work.node_count)
    return replace(shortlist(offers, need, now), speeds=work.speeds)


def _longest(limits: Limits) -> float:
    """Seconds from one look to the next, at most."""
    followed = 2 * limits.report_interval_seconds
    return max(followed, limits.migration_look_seconds, limits.migration_rest_seconds)


def _follow(aggregate: JobAggregate, limits: Limits) -> None:
    """See what became of a move; once the gang has cut over, the next claim ends it."""
    job, attempt = aggregate.job, aggregate.attempt
    if job.moving_until_at is None:
        return
    new = machines_of_move(aggregate)
    trains = attempt is not None and attempt.state is AttemptState.RUNNING
    here = sum(one.state is InstanceState.REGISTERED for one in new)
    move = RunningTransition(
        Transition.MOVE,
        wanted=job.node_count,
        coming=len(new),
        here=here,
        least=job.node_count,
        attempt_ended=(
            not trains or job.stop_cause is not None or job.market_mode is not Market.SPOT
        ),
        too_late=here < len(new) and aggregate.now >= job.moving_until_at,
        affordable=read_headroom(aggregate, limits).covers_both(),
    )
    decision = decide(GangState(transition=move))
    if decision is None:
        job.move_look_at = aggregate.look_in(2 * limits.report_interval_seconds)
    apply_decision(aggregate, decision, limits)


def _evaluate(aggregate: JobAggregate, work: MovableJob, among: Shortlist, limits: Limits) -> None:
    job, attempt = aggregate.job, aggregate.attempt
    if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.trained_at is None:
        return
    machines = [aggregate.instances[member.instance_id] for member in aggregate.members]
    rests_until = attempt.trained_at + timedelta(seconds=limits.migration_rest_seconds)
    warned = any(machine.warned_at is not None for machine in machines)
    if aggregate.now < rests_until and not warned:
        job.move_look_at = min(rests_until, aggregate.look_in(_longest(limits)))
        return
    if attempt.committed_step <= (attempt.parent_step or 0) or not _undisturbed(
        aggregate, machines, limits
    ):
        return
    count = len(machines)
    here = _here(aggregate, machines, work.experience, among.speeds)
    if here is None:
        return
    lately = aggregate.uow.instances.interrupted_pools(job.id, aggregate.now - RECENT_INTERRUPTION)
    home = {PlacementDomain.of(one.pool) for one in machines if one.pool is not None}
    considered = offers_for(
        aggregate, aggregate.gang_need, count, limits, anywhere=True, among=among
    )
    others = [
        item.offer
        for item in considered
        if item.fits
        and item.offer.pool not in lately
        and PlacementDomain.of(item.offer.pool) not in home
    ]
    # By what an hour of progress costs: one far down the list does not win by its speed.
    theres = _theres(aggregate, others[:OTHERS_MAX], machines[0], count, among.speeds)
    move = MoveState(here, theres, move_terms(own_limits(aggregate, limits)), considered)
    decision = decide(GangState(move=move))
    if isinstance(decision, MoveDecision) and decision.to is not None:
        move = replace(move, headroom=read_headroom(aggregate, limits))
        decision = decide(GangState(move=move))
    reasons = Reasons(considered, count, speeds=among.speeds)
    apply_decision(aggregate, decision, limits, reasons)


def _speeds(uow: UnitOfWork, job: Job) -> GpuThroughput:
    """As measured on the job's work, where its machines may be of several kinds."""
    spec = parsed_spec(job.spec)
    if work_alike(spec):
        return NOTHING_MEASURED
    return read_measured(uow, job.project_id, spec, uow.now).speeds


def move_terms(limits: Limits) -> MoveTerms:
    """When a move is worth its while; limits: those of the job, with its start-up."""
    return MoveTerms(
        limits.boot_p95_seconds,
        limits.restore_seconds + limits.start_up_seconds,
        limits.migration_saving_share,
        limits.migration_saving_microusd,
    )


def _undisturbed(aggregate: JobAggregate, machines: list[Instance], limits: Limits) -> bool:
    """Nothing else is going on: all are here and train, nobody else was asked for, time is left."""
    job, now = aggregate.job, aggregate.now
    if job.stop_cause is not None or limits.migration_saving_share >= 1:
        return False
    gang = aggregate.gang_need
    if len(machines) != gang.node_count or not _are(machines, candidates(aggregate, gang)):
        return False  # it grows, shrinks, changes the market, or waits for a replacement
    if any(machine.state is not InstanceState.REGISTERED for machine in machines):
        return False
    if job.deadline_at is None or job.deadline_missed_at is not None:
        return True
    # A move costs the time of a drain and a restore, and may find its machines taken at once.
    takes = (
        own_limits(aggregate, limits).restart_seconds
        + limits.drain_seconds
        + limits.migration_rest_seconds
    )
    return job.last_safe_at is not None and now + timedelta(seconds=takes) < job.last_safe_at


def _are(machines: list[Instance], others: list[Instance]) -> bool:
    return {one.id for one in machines} == {one.id for one in others}


def _here(
    aggregate: JobAggregate, machines: list[Instance], experience: ByPool, speeds: GpuThroughput
) -> CurrentPlacement | None:
    """The gang as it is; None while its price or what is left to do is not known."""
    uow, pool, left = aggregate.uow, machines[0].pool, left_of(aggregate)
    offer = None if pool is None else uow.offers.get(pool)
    if pool is None or offer is None or left.seconds is None:
        return None
    seconds = float(left.seconds)
    if not work_alike(aggregate.spec):
        seconds = speeds.seconds_on(
            gpu_shape_of(offer.hardware), seconds, told_for(aggregate, left)
        )
    lives = tuple(life_of(machine, experience, aggregate.now) for machine in machines)
    factor = lives[0].factor
    price = offer.cost_microusd_per_hour * len(machines)
    hazard = 1.0 if factor is None else factor
    return CurrentPlacement(pool_name(pool), price, lives, hazard, seconds, offer.billing_speed)


def _theres(
    aggregate: JobAggregate,
    offers: Sequence[Offer],
    machine: Instance,
    count: int,
    speeds: GpuThroughput,
) -> list[Candidate]:
    """Such a gang in each of the pools; none where the speed against ours cannot be told."""
    home = None if machine.pool is None else aggregate.uow.offers.get(machine.pool)
    if home is None or not offers:
        return []
    need, restore = need_of(aggregate.spec, Market.SPOT, count), restore_of(aggregate)
    need = replace(need, speeds=speeds)
    return [
        Candidate(
            name=pool_name(offer.pool),
            microusd_per_hour=offer.cost_microusd_per_hour * count,
            hazard_factor=offer.hazard_factor,
            machines=(MachineLife(0.0, offer.hazard_factor),) * count,
            egress_microusd=restore_microusd(restore, offer.pool) * count,
            speed=work_speed(offer, need) / work_speed(home, need),
            speed_source="" if need.alike else speeds.source(gpu_shape_of(offer.hardware)),
            billing_speed=offer.billing_speed,
        )
        for offer in offers
    ]
