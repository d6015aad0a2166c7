"""Call the cloud for what has been ordered, and write down what it answered.

Lives here: the controller of launches. A launch's token and parameters never change, so any
worker may repeat the call of a dead one and gets the same machines. Not here: the order
(`order_instances`) or the choice of pools (`app.domain.placement`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.attempt import AttemptState
from app.domain.credentials import launch_token
from app.domain.end_reason import EndReason
from app.domain.entities import Instance, Launch
from app.domain.events import Actor, ActorKind
from app.domain.instance import InstanceEvent, InstanceState
from app.domain.job import StopCause
from app.domain.launch import OPEN_LAUNCH_OUTCOMES, LaunchOutcome, launch_outcome
from app.domain.offer import Pool
from app.domain.retry_policy import pool_cool_down_seconds
from app.orchestration.accept_machines import accept_machine
from app.orchestration.advance_attempt import advance_attempt
from app.orchestration.aggregate import JobAggregate, open_job
from app.orchestration.fill_gang import fill_gang
from app.orchestration.lose_instances import note_never_came
from app.orchestration.order_instances import LAUNCH_CONTROLLER
from app.orchestration.runtime import Runtime
from app.orchestration.stop_job import order_stop
from app.ports.cloud_provider import (
    AcceptedMachine,
    LaunchOrder,
    LaunchOutcomeUnknown,
    LaunchResult,
    PoolBid,
    PoolRefusal,
    ProviderError,
    RefusalKind,
)
from app.ports.unit_of_work import UnitOfWork

_ACTOR = Actor(ActorKind.CONTROLLER, LAUNCH_CONTROLLER)
_CALLS_MAX = 8
_NEEDS_A_PERSON = frozenset({RefusalKind.DENIED, RefusalKind.REJECTED})
_AGAIN = frozenset({RefusalKind.THROTTLED, RefusalKind.UNAVAILABLE})
_POLL_SECONDS = 2.0
_UNSUPPORTED_COOL_DOWN = timedelta(days=1)


@dataclass(frozen=True)
class LaunchWork:
    """One leased launch; `order` is None when nothing may be started any more."""

    launch_id: UUID
    job_id: UUID
    provider: str
    lease_token: str
    lease_until: datetime
    order: LaunchOrder
    operation: str | None
    wanted: bool
    submitted: bool


@dataclass(frozen=True)
class LaunchAnswer:
    """What came back: machines and refusals, or an error of the call as a whole."""

    result: LaunchResult | None = None
    error: ProviderError | None = None
    unknown: bool = False


class LaunchInstances:
    """The controller that talks to clouds to start machines."""

    name = LAUNCH_CONTROLLER
    queue = "cloud"
    limit = 8
    period_seconds = 5.0

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def lease(self, uow: UnitOfWork, limit: int) -> list[LaunchWork]:
        """Take due launches; their instances become `launching` before any call is made."""
        runtime, now = self._runtime, uow.now
        timeouts = [p.call_timeout_seconds for p in runtime.providers.values()]
        until = now + timedelta(seconds=3 * max(timeouts, default=60.0))
        token = runtime.entropy.new_token()
        work = []
        for launch_id, job_id in uow.launches.due(now, limit):
            # The job's lock comes first, as everywhere; a busy job has its turn next time.
            with open_job(uow, runtime.entropy, job_id, _ACTOR, skip_locked=True) as aggregate:
                launch = None if aggregate is None else uow.launches.get(launch_id)
                if aggregate is not None and launch is not None and _leasable(launch, now):
                    launch.lease_token, launch.lease_until_at = token, until
                    work.append(self._prepare(aggregate, launch, token, until))
        return work

    def _prepare(
        self, aggregate: JobAggregate, launch: Launch, token: str, until: datetime
    ) -> LaunchWork:
        uow, runtime = aggregate.uow, self._runtime
        instances = uow.instances.of_launch(launch.id)
        wanted = any(
            i.state in (InstanceState.REQUESTED, InstanceState.LAUNCHING) for i in instances
        )
        submitted = launch.submitted_at is not None
        if wanted and not submitted:
            launch.submitted_at = aggregate.now
            for instance in instances:
                if instance.state is InstanceState.REQUESTED:
                    aggregate.move_instance(
                        aggregate.instances.get(instance.id, instance),
                        InstanceEvent.LAUNCH_SUBMITTED,
                        f"Asking {launch.provider} for {launch.count}.",
                    )
        launch.calls_made += 1
        secret = uow.operations.deployment_secret()
        order = LaunchOrder(
            client_token=launch.client_token,
            count=launch.count,
            min_count=launch.min_count,
            market=launch.market,
            bids=tuple(_pool_bid(bid) for bid in launch.bids),
            user_data={
                "LOWTIDE_CONTROL_URL": runtime.control_url,
                "LOWTIDE_LAUNCH_TOKEN": launch_token(secret, str(launch.id)),
            },
            tags={
                "lowtide:deployment": str(uow.operations.deployment_id()),
                "lowtide:job": str(launch.job_id),
                "lowtide:launch": str(launch.id),
            },
        )
        return LaunchWork(
            launch.id,
            launch.job_id,
            launch.provider,
            token,
            until,
            order,
            launch.operation_name,
            wanted,
            submitted,
        )

    def effect(self, work: LaunchWork) -> LaunchAnswer:
        """Call the cloud, unless nobody wants the machines and none can have been started."""
        if not work.wanted and not work.submitted:
            return LaunchAnswer(LaunchResult())
        provider = self._runtime.providers.get(work.provider)
        asked_at = self._runtime.clock.now()
        if provider is None:
            text = f"provider {work.provider} is not configured in this process"
            return LaunchAnswer(error=ProviderError(RefusalKind.UNAVAILABLE, text))
        if asked_at + timedelta(seconds=provider.call_timeout_seconds) > work.lease_until:
            text = "the lease has too little time left for a call"
            return LaunchAnswer(error=ProviderError(RefusalKind.UNAVAILABLE, text))
        try:
            if work.operation is not None:
                return LaunchAnswer(provider.poll_launch(work.operation))
            return LaunchAnswer(provider.launch(work.order))
        except LaunchOutcomeUnknown as error:
            return LaunchAnswer(error=error, unknown=True)
        except ProviderError as error:
            return LaunchAnswer(error=error)

    def apply(self, uow: UnitOfWork, work: LaunchWork, result: LaunchAnswer) -> None:
        """Record machines and refusals under the job's lock, if the lease is still ours."""
        runtime = self._runtime
        with open_job(uow, runtime.entropy, work.job_id, _ACTOR) as aggregate:
            launch = uow.launches.get(work.launch_id)
            stale = (
                aggregate is None
                or launch is None
                or launch.lease_token != work.lease_token
                or launch.outcome not in OPEN_LAUNCH_OUTCOMES
            )
            if stale or aggregate is None or launch is None:
                self._drop(uow, work, result)
                return
            launch.lease_token = launch.lease_until_at = None
            for instance in uow.instances.of_launch(launch.id):
                aggregate.adopt(instance)
            if result.result is not None:
                self._answered(aggregate, launch, result.result)
            elif result.error is not None:
                self._failed(aggregate, launch, result.error, result.unknown)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first launch is due."""
        return uow.launches.next_due_at()

    def _drop(self, uow: UnitOfWork, work: LaunchWork, answer: LaunchAnswer) -> None:
        machines = [] if answer.result is None else answer.result.accepted
        uow.operations.add_stale_result(
            self._runtime.entropy.new_id(),
            uow.now,
            self.name,
            work.provider,
            [machine.provider_instance_id for machine in machines],
            f"launch {work.launch_id}: its lease had passed on",
        )

    def _answered(self, aggregate: JobAggregate, launch: Launch, result: LaunchResult) -> None:
        if result.pending_operation is not None:
            launch.operation_name = result.pending_operation
            launch.next_call_at = aggregate.now + timedelta(seconds=_POLL_SECONDS)
            return
        open_rows = _unanswered(aggregate, launch)
        for instance, machine in zip(open_rows, result.accepted, strict=False):
            self._accept(aggregate, instance, machine)
        self._cool_down(aggregate, result.refused)
        launch.outcome = launch_outcome(launch.count, min(launch.count, len(result.accepted)))
        launch.settled_at, launch.next_call_at = aggregate.now, None
        refusals = "; ".join(f"{r.kind.value}: {r.message}" for r in result.refused[:5])
        launch.error = refusals or None
        fatal = next((r for r in result.refused if r.kind in _NEEDS_A_PERSON), None)
        self._refuse_rest(aggregate, launch, refusals or "the cloud started fewer", fatal)

    def _failed(
        self, aggregate: JobAggregate, launch: Launch, error: ProviderError, unknown: bool
    ) -> None:
        launch.error = f"{error.kind.value}: {error}"
        known_absent = not unknown and error.kind not in _AGAIN
        if not known_absent and launch.calls_made < _CALLS_MAX:
            launch.outcome = LaunchOutcome.UNKNOWN if unknown else launch.outcome
            wait = min(60.0, 2.0 ** min(launch.calls_made, 6)) * (
                0.5 + aggregate.entropy.uniform() / 2
            )
            launch.next_call_at = aggregate.now + timedelta(seconds=wait)
            return
        if unknown:
            # Machines may exist under this token: the sweep finds and ends them by their tag.
            aggregate.uow.operations.add_stale_result(
                aggregate.entropy.new_id(),
                aggregate.now,
                self.name,
                launch.provider,
                [],
                f"launch {launch.id}: no answer after {launch.calls_made} calls",
            )
        launch.outcome, launch.settled_at = LaunchOutcome.REFUSED, aggregate.now
        launch.next_call_at = None
        refusal = PoolRefusal(None, error.kind, str(error))
        pools = [PoolRefusal(_pool_bid(bid).pool, error.kind, str(error)) for bid in launch.bids]
        self._cool_down(aggregate, tuple(pools))
        fatal = refusal if error.kind in _NEEDS_A_PERSON else None
        self._refuse_rest(aggregate, launch, launch.error, fatal)

    def _accept(
        self, aggregate: JobAggregate, instance: Instance, machine: AcceptedMachine
    ) -> None:
        accept_machine(
            aggregate,
            instance,
            provider_instance_id=machine.provider_instance_id,
            pool=machine.pool,
            launched_at=machine.launched_at,
            launched_source=machine.launched_source,
            limits=self._runtime.limits,
        )

    def _refuse_rest(
        self, aggregate: JobAggregate, launch: Launch, why: str, fatal: PoolRefusal | None
    ) -> None:
        limits = self._runtime.limits
        refused = _unanswered(aggregate, launch)
        for instance in refused:
            instance.terminate_at = instance.describe_at = None
            aggregate.move_instance(instance, InstanceEvent.LAUNCH_REFUSED, f"Refused: {why}.")
        attempt = aggregate.attempt
        if fatal is not None and attempt is not None:
            if attempt.state is AttemptState.PROVISIONING:
                self._needs_a_person(aggregate, fatal)
                return
            if attempt.state in (AttemptState.PREPARING, AttemptState.RUNNING):
                # What trains goes on; what it may move to is asked for again later.
                kind, told = RefusalKind.QUOTA, fatal.message
                bids = [PoolRefusal(_pool_bid(bid).pool, kind, told) for bid in launch.bids]
                self._cool_down(aggregate, tuple(bids))
        for instance in refused:
            note_never_came(aggregate, instance, why)
        # All open places at once, with those that waited for the zone to be known.
        fill_gang(aggregate, limits)
        advance_attempt(aggregate, limits)

    def _needs_a_person(self, aggregate: JobAggregate, refusal: PoolRefusal) -> None:
        """No other pool would answer otherwise: the job is paused until someone has looked."""
        text = f"The cloud refused the launch for good ({refusal.kind.value}): {refusal.message}"
        if aggregate.job.stop_cause is None:
            order_stop(aggregate, StopCause.PAUSE, text, self._runtime.limits)

    def _cool_down(self, aggregate: JobAggregate, refused: tuple[PoolRefusal, ...]) -> None:
        reason = EndReason.NO_CAPACITY
        seconds = pool_cool_down_seconds(reason)
        marked = {
            refusal.pool: refusal
            for refusal in refused
            if refusal.pool is not None and refusal.kind not in _AGAIN | _NEEDS_A_PERSON
        }
        # In their order, as every transaction that marks several pools.
        for pool, refusal in sorted(marked.items(), key=lambda item: item[0]):
            until = aggregate.now + timedelta(seconds=seconds)
            if refusal.kind is RefusalKind.UNSUPPORTED:
                until = aggregate.now + _UNSUPPORTED_COOL_DOWN
            aggregate.uow.offers.cool_down(pool, until, refusal.kind.value)


def _leasable(launch: Launch, now: datetime) -> bool:
    """Still due and unleased, now that the job is locked."""
    due = launch.next_call_at is not None and launch.next_call_at <= now
    return due and (launch.lease_until_at is None or launch.lease_until_at <= now)


def _unanswered(aggregate: JobAggregate, launch: Launch) -> list[Instance]:
    """The launch's rows that no machine has been given yet, by id."""
    rows = [i for i in aggregate.instances.values() if i.launch_id == launch.id]
    waiting = (InstanceState.REQUESTED, InstanceState.LAUNCHING, InstanceState.TERMINATING)
    return sorted(
        (i for i in rows if i.state in waiting and i.provider_instance_id is None),
        key=lambda item: item.id,
    )


def _pool_bid(bid: dict[str, object]) -> PoolBid:
    limit = bid["max_price_microusd_per_hour"]
    return PoolBid(Pool.parse(str(bid["pool"])), None if limit is None else int(str(limit)))
