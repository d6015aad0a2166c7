"""Foresee what a training gang costs, and how often it is lost, and have its trainer told.

Lives here: looking at attempts that prepare or train, and what a rebalance recommendation means.
Both figures are kept on the attempt; a directive carries them from there. They are written, and the
job's version raised with them, only when they have moved far enough: steady reports go on being
answered from memory. Not here: the hazards (`availability.gang_hazard`), or what the trainer makes
of them (`trainer.training.saving.save_schedule`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.availability.gang_hazard import (
    PRICE_TOLD_AGAIN_RATIO,
    TOLD_AGAIN_RATIO,
    MachineLife,
    gang_hazard_per_hour,
    seconds_to_next_age,
    worth_telling,
)
from app.domain.availability.hazard_by_age import (
    EXPERIENCE_KEPT,
    NO_EXPERIENCE,
    Experience,
)
from app.domain.availability.hazard_models import posterior
from app.domain.lifecycle.attempt import TRAINING_ATTEMPT_STATES
from app.domain.lifecycle.entities import Attempt, Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.market.offer import Market, Pool
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.controller_frame import RowController
from app.storage.unit_of_work import UnitOfWork

HAZARD_CONTROLLER = "foresee_losses"
MOVE_CONTROLLER = "weigh_moves"

ByPool = Mapping[Pool, Experience]


@dataclass(frozen=True)
class TrainingJob:
    """A job to be looked at, with what was lived through in the pools of its machines."""

    job_id: UUID
    experience: ByPool = field(repr=False)


class RefreshHazards(RowController[TrainingJob]):
    """The controller of `attempts.outlook_at`."""

    name = HAZARD_CONTROLLER
    limit = 100

    def select(self, uow: UnitOfWork, limit: int) -> list[TrainingJob]:
        """Jobs due to be looked at; what was lived through is counted here, with nothing locked."""
        due = uow.attempts.outlook_due(uow.now, self._latest(uow), limit)
        experience = experience_of(uow, [i for job_id in due for i in uow.instances.of_job(job_id)])
        return [TrainingJob(job_id, experience) for job_id in due]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first attempt is to be looked at."""
        return uow.attempts.next_outlook_at(self._latest(uow))

    def _latest(self, uow: UnitOfWork) -> datetime:
        """No look is set for later than that by a clock that has not gone back since."""
        return uow.now + timedelta(seconds=max(1.0, self._runtime.limits.outlook_seconds))

    def apply(self, uow: UnitOfWork, work: TrainingJob, result: None) -> None:
        """Look at one job's gang, and note what has moved."""
        with self.locked(uow, work.job_id, looking=True) as aggregate:
            attempt = None if aggregate is None else aggregate.attempt
            if aggregate is None or attempt is None:
                return
            if attempt.state in TRAINING_ATTEMPT_STATES:
                self._look(aggregate, attempt, work.experience)

    def _look(self, aggregate: JobAggregate, attempt: Attempt, experience: ByPool) -> None:
        machines = [aggregate.instances[member.instance_id] for member in aggregate.members]
        lives = [life_of(machine, experience, aggregate.now) for machine in machines]
        hazard, price = gang_hazard_per_hour(lives), gang_price(aggregate.uow, machines)
        if worth_telling(attempt.hazard_per_hour, hazard, TOLD_AGAIN_RATIO):
            attempt.hazard_per_hour = hazard
            aggregate.record_change()
        if worth_telling(attempt.price_microusd_per_hour, price, PRICE_TOLD_AGAIN_RATIO):
            attempt.price_microusd_per_hour = price
            aggregate.record_change()
        seconds = self._runtime.limits.outlook_seconds
        edge = seconds_to_next_age(lives)
        if edge is not None:
            seconds = min(seconds, max(1.0, edge))
        attempt.outlook_at = aggregate.look_in(seconds)


def record_warning(aggregate: JobAggregate, instance: Instance) -> None:
    """The cloud recommends to leave this machine: what trains on it saves more often from now on.

    Other pools are looked at (`evaluate_moves`), and moved to where that repays. The machine is not
    counted as lost: nothing is decided yet.
    """
    instance.warned_at = instance.warned_at or aggregate.now
    saves, attempt = "", aggregate.attempt
    if attempt is not None and aggregate.member_of(instance.id) is not None:
        attempt.outlook_at = None
        aggregate.uow.notify_after_commit(HAZARD_CONTROLLER)
        if instance.market is Market.SPOT and aggregate.job.moving_launch_id is None:
            aggregate.job.move_look_at = None
            aggregate.uow.notify_after_commit(MOVE_CONTROLLER)
        saves = ": checkpoints are now saved more often"
    aggregate.record(
        JobEventKind.REBALANCE_RECOMMENDED,
        f"The cloud reports a higher risk of interruption for this machine{saves}.",
        about=instance,
    )


def experience_of(uow: UnitOfWork, machines: list[Instance]) -> ByPool:
    """What was lived through in the spot pools of these machines, over all projects."""
    pools = {machine.pool for machine in machines if machine.market is Market.SPOT}
    known = sorted(pool for pool in pools if pool is not None)
    if not known:
        return {}
    return uow.pool_experience.of(known, uow.now - EXPERIENCE_KEPT, uow.now)


def life_of(machine: Instance, experience: ByPool, now: datetime) -> MachineLife:
    """The machine as its hazard depends on it; one whose pool is not known counts as usual."""
    since, factor = machine.launched_at or now, None
    if machine.market is Market.SPOT:
        lived = None if machine.pool is None else experience.get(machine.pool)
        factor = posterior(lived or NO_EXPERIENCE).hazard_factor
    return MachineLife((now - since).total_seconds(), factor, machine.warned_at is not None)


def gang_price(uow: UnitOfWork, machines: list[Instance]) -> int | None:
    """Micro-dollars per hour of all of them at the price of now; None where one has none."""
    total = 0
    for machine in machines:
        offer = None if machine.pool is None else uow.offers.get(machine.pool)
        if offer is None:
            return None
        total += offer.cost_microusd_per_hour
    return total
