"""Call the cloud for what has been ordered, and write down what it answered.

Lives here: the controller of launches. A launch's token and parameters never change, so any
worker may repeat the call of a dead one and gets the same machines. Not here: the order
(`order_instances`), the choice of pools (`app.domain.placement.placement`) or what an answer means
(`settle_launch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.deployment.credentials import launch_token
from app.domain.lifecycle.entities import Instance, Launch
from app.domain.lifecycle.instance import InstanceEvent, InstanceState
from app.domain.lifecycle.launch import (
    LAUNCH_CALLS_MAX,
    OPEN_LAUNCH_OUTCOMES,
    LaunchOutcome,
    LaunchStep,
    launch_step,
)
from app.domain.lifecycle.launch_errors import NextStep, rule_of
from app.domain.market.offer import Pool
from app.domain.spec.job_spec import JobSpec
from app.domain.wording.machine_words import cloud_words, machines_in_words
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.order_instances import LAUNCH_CONTROLLER
from app.orchestration.instances.publish_agent import publish_agent
from app.orchestration.instances.settle_launch import settle_launch
from app.ports.cloud_provider import (
    CloudMachine,
    CloudProvider,
    LaunchOrder,
    LaunchOutcomeUnknown,
    LaunchResult,
    MachineState,
    PoolBid,
    PoolRefusal,
    ProviderError,
    RefusalKind,
)
from app.storage.unit_of_work import UnitOfWork

_ASK_SECONDS_MIN, _ASK_SECONDS_MAX = 2.0, 30.0
_CALL_AGAIN_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class LaunchWork:
    """One leased launch and how it goes on.

    may_exist: machines may have been started by an earlier call whose answer never came.
    """

    launch_id: UUID
    job_id: UUID
    provider: str
    lease_token: str
    lease_until: datetime
    order: LaunchOrder
    operation: str | None
    step: LaunchStep
    may_exist: bool


@dataclass(frozen=True)
class LaunchAnswer:
    """What came back: machines and refusals, or an error of the call as a whole."""

    result: LaunchResult | None = None
    error: ProviderError | None = None
    unknown: bool = False


class LaunchInstances(RuntimeController):
    """The controller that talks to clouds to start machines."""

    name = LAUNCH_CONTROLLER
    limit = 8

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._poll_for = timedelta(seconds=runtime.limits.launch_operation_seconds)
        self._unpublished = dict(runtime.machine_files)

    def select(self, uow: UnitOfWork, limit: int) -> list[LaunchWork]:
        """Take due launches; their instances become `launching` before any call is made."""
        runtime, now = self._runtime, uow.now
        timeouts = [p.call_timeout_seconds for p in runtime.providers.values()]
        until = now + timedelta(seconds=3 * max(timeouts, default=60.0))
        token = runtime.entropy.new_token()
        work = []
        for launch_id, job_id in uow.launches.due(now, limit):
            # The job's lock comes first, as everywhere; a busy job has its turn next time.
            with self.locked(uow, job_id) as aggregate:
                launch = None if aggregate is None else uow.launches.get(launch_id)
                if aggregate is not None and launch is not None and _leasable(launch, now):
                    launch.lease_token, launch.lease_until_at = token, until
                    work.append(self._prepare(aggregate, launch, token, until))
        if len(work) >= limit:
            # Now, not after these calls: one that hangs must hold up none that waits behind it.
            uow.notify_after_commit(self.name)
        return work

    def _prepare(
        self, aggregate: JobAggregate, launch: Launch, token: str, until: datetime
    ) -> LaunchWork:
        instances = aggregate.uow.instances.of_launch(launch.id)
        wanted = any(
            i.state in (InstanceState.REQUESTED, InstanceState.LAUNCHING) for i in instances
        )
        may_exist = launch.outcome is LaunchOutcome.UNKNOWN or launch.operation_name is not None
        step = launch_step(
            wanted=wanted,
            may_exist=may_exist,
            operation=launch.operation_name,
            called_at=launch.called_at,
            calls_made=launch.calls_made,
            poll_for=self._poll_for,
            now=aggregate.now,
        )
        if step is LaunchStep.CALL:
            self._about_to_call(aggregate, launch, instances)
        return LaunchWork(
            launch.id,
            launch.job_id,
            launch.provider,
            token,
            until,
            self._order(aggregate, launch),
            launch.operation_name,
            step,
            may_exist,
        )

    def _about_to_call(
        self, aggregate: JobAggregate, launch: Launch, instances: list[Instance]
    ) -> None:
        """Until the answer is written down, nobody knows what this call has started."""
        launch.calls_made += 1
        launch.called_at, launch.outcome = aggregate.now, LaunchOutcome.UNKNOWN
        launch.submitted_at = launch.submitted_at or aggregate.now
        for instance in instances:
            if instance.state is InstanceState.REQUESTED:
                aggregate.move_instance(
                    aggregate.instances.get(instance.id, instance),
                    InstanceEvent.LAUNCH_SUBMITTED,
                    f"Requesting {machines_in_words(launch.count)} from "
                    f"{cloud_words(launch.provider)}.",
                )

    def _order(self, aggregate: JobAggregate, launch: Launch) -> LaunchOrder:
        operations = aggregate.uow.operations
        return LaunchOrder(
            client_token=launch.client_token,
            count=launch.count,
            min_count=launch.min_count,
            market=launch.market,
            bids=tuple(
                PoolBid(Pool.parse(bid["pool"]), bid["max_price_microusd_per_hour"])
                for bid in launch.bids
            ),
            user_data={
                **self._runtime.machine_variables,
                **_wishes_of_boot(aggregate.spec),
                "LOWTIDE_CONTROL_URL": self._runtime.control_url,
                "LOWTIDE_LAUNCH_TOKEN": launch_token(
                    operations.deployment_secret(), str(launch.id)
                ),
            },
            tags={
                "lowtide:deployment": str(operations.deployment_id()),
                "lowtide:job": str(launch.job_id),
                "lowtide:launch": str(launch.id),
            },
            disk_gb=aggregate.spec.resources.disk_gb,
            in_gang=aggregate.spec.nodes.most > 1,
        )

    def effect(self, work: LaunchWork) -> LaunchAnswer:
        """Call or ask the cloud; nothing where nobody wants machines and none can exist."""
        if work.step is LaunchStep.NOTHING:
            return LaunchAnswer(LaunchResult())
        provider = self._runtime.providers.get(work.provider)
        asked_at = self._runtime.clock.now()
        if provider is None:
            text = f"provider {work.provider} is not configured in this process"
            return LaunchAnswer(error=ProviderError(RefusalKind.UNAVAILABLE, text))
        if asked_at + timedelta(seconds=provider.call_timeout_seconds) > work.lease_until:
            text = "the lease has too little time left for a call"
            return LaunchAnswer(error=ProviderError(RefusalKind.UNAVAILABLE, text))
        self._publish()
        try:
            return LaunchAnswer(_ask(provider, work))
        except LaunchOutcomeUnknown as error:
            return LaunchAnswer(error=error, unknown=True)
        except ProviderError as error:
            return LaunchAnswer(error=error)

    def _publish(self) -> None:
        """Once in this process, before any of its machines can ask for it."""
        for key, content in list(self._unpublished.items()):
            if publish_agent(self._runtime.object_store, key, content):
                self._unpublished.pop(key, None)

    def apply(self, uow: UnitOfWork, work: LaunchWork, result: LaunchAnswer) -> None:
        """Record machines and refusals under the job's lock, if the lease is still ours."""
        with self.locked(uow, work.job_id, skip_locked=False) as aggregate:
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
                self._answered(aggregate, launch, work, result.result)
            elif result.error is not None:
                self._failed(aggregate, launch, work, result.error, result.unknown)

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

    def _answered(
        self, aggregate: JobAggregate, launch: Launch, work: LaunchWork, result: LaunchResult
    ) -> None:
        if result.pending_operation is not None:
            launch.operation_name = result.pending_operation
            self._ask_again(aggregate, launch)
            return
        too_few = len(result.accepted) < launch.count
        if work.step is LaunchStep.FIND and too_few and self._is_fresh(aggregate, launch):
            # A cloud shows its machines some time after it began to start them.
            self._ask_again(aggregate, launch)
            return
        settle_launch(aggregate, launch, result.accepted, result.refused, self._runtime.limits)

    def _failed(
        self,
        aggregate: JobAggregate,
        launch: Launch,
        work: LaunchWork,
        error: ProviderError,
        unknown: bool,
    ) -> None:
        launch.error = f"{error.kind.value}: {error}"
        passing = unknown or rule_of(error.kind).step is NextStep.SAME_AGAIN
        if work.step is LaunchStep.CALL:
            self._call_failed(aggregate, launch, work, error, passing, unknown)
        elif passing or work.step is LaunchStep.POLL:
            if not passing:
                # The operation is not known any more: what exists under the token decides.
                launch.operation_name, launch.calls_made = None, LAUNCH_CALLS_MAX
                launch.outcome = LaunchOutcome.UNKNOWN
            if self._may_still_ask(aggregate, launch):
                self._ask_again(aggregate, launch)
            else:
                self._give_up(aggregate, launch, error)
        else:
            self._give_up(aggregate, launch, error)

    def _call_failed(
        self,
        aggregate: JobAggregate,
        launch: Launch,
        work: LaunchWork,
        error: ProviderError,
        passing: bool,
        unknown: bool,
    ) -> None:
        may_exist = unknown or work.may_exist
        if not may_exist:
            launch.outcome = LaunchOutcome.PENDING
        if passing and launch.calls_made < LAUNCH_CALLS_MAX:
            wait = min(_CALL_AGAIN_SECONDS_MAX, 2.0 ** min(launch.calls_made, 6))
            wait *= 0.5 + aggregate.entropy.uniform() / 2
            launch.next_call_at = aggregate.now + timedelta(seconds=wait)
        elif may_exist:
            launch.calls_made = LAUNCH_CALLS_MAX
            self._ask_again(aggregate, launch)
        else:
            refusal = PoolRefusal(None, error.kind, str(error), error.scope)
            settle_launch(aggregate, launch, (), (refusal,), self._runtime.limits)

    def _give_up(self, aggregate: JobAggregate, launch: Launch, error: ProviderError) -> None:
        """Machines may exist under this token: the sweep finds and ends them by their tag."""
        aggregate.uow.operations.add_stale_result(
            aggregate.entropy.new_id(),
            aggregate.now,
            self.name,
            launch.provider,
            [],
            f"launch {launch.id}: no answer says what it has started",
        )
        refusal = PoolRefusal(None, error.kind, str(error), error.scope)
        settle_launch(aggregate, launch, (), (refusal,), self._runtime.limits)

    def _ask_again(self, aggregate: JobAggregate, launch: Launch) -> None:
        """Ask soon, and less often as time goes by."""
        age = (aggregate.now - (launch.called_at or aggregate.now)).total_seconds()
        wait = min(_ASK_SECONDS_MAX, max(_ASK_SECONDS_MIN, age / 10))
        launch.next_call_at = aggregate.now + timedelta(seconds=wait)

    def _is_fresh(self, aggregate: JobAggregate, launch: Launch) -> bool:
        seen_after = timedelta(seconds=self._runtime.limits.absence_age_seconds)
        return launch.called_at is not None and aggregate.now < launch.called_at + seen_after

    def _may_still_ask(self, aggregate: JobAggregate, launch: Launch) -> bool:
        return launch.called_at is not None and (
            aggregate.now < launch.called_at + 2 * self._poll_for
        )


def _wishes_of_boot(spec: JobSpec) -> dict[str, str]:
    """What the job's kind of work asks of the boot itself; docs/machines.md lists the variables."""
    if spec.image is not None:
        return {"LOWTIDE_CONTAINERS": "1"}
    wishes = {"LOWTIDE_AGENT_EXTRAS": "trainer"} if spec.trainer is not None else {}
    if spec.resources.shm_mb is not None:
        wishes["LOWTIDE_SHM_MB"] = str(spec.resources.shm_mb)
    return wishes


def _ask(provider: CloudProvider, work: LaunchWork) -> LaunchResult:
    if work.step is LaunchStep.CALL:
        return provider.launch(work.order)
    if work.step is LaunchStep.POLL and work.operation is not None:
        return provider.poll_launch(work.operation)
    regions = {bid.pool.region for bid in work.order.bids}
    region = regions.pop() if len(regions) == 1 else None
    found = provider.find_by_token(work.order.client_token, region)
    return LaunchResult(tuple(machine.accepted() for machine in sorted(found, key=_runs_first)))


def _runs_first(machine: CloudMachine) -> tuple[bool, str]:
    runs = machine.state in (MachineState.PENDING, MachineState.RUNNING)
    return not runs, machine.provider_instance_id


def _leasable(launch: Launch, now: datetime) -> bool:
    """Still due and unleased, now that the job is locked."""
    due = launch.next_call_at is not None and launch.next_call_at <= now
    return due and (launch.lease_until_at is None or launch.lease_until_at <= now)
