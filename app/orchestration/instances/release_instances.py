"""Give machines back: call the cloud, again and again until it says that they are gone.

Lives here: the controller of terminations. Not here: who decides that a machine goes
(`release_order`), or the word that it is gone (`reconcile_instances`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import InstanceState
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.gang.release_order import RELEASE_CONTROLLER
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.storage.unit_of_work import UnitOfWork

_RETRY_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Termination:
    """One leased instance to be released."""

    instance_id: UUID
    job_id: UUID | None
    provider_instance_id: str


@dataclass(frozen=True)
class TerminationBatch:
    """Machines of one region of a provider, given back in one call.

    alone: the one machine, where there is no other; failures are remembered by it.
    """

    provider: str
    region: str
    machines: tuple[Termination, ...]
    lease_token: str
    lease_until: datetime
    alone: UUID | None = field(init=False)

    def __post_init__(self) -> None:
        only = self.machines[0].instance_id if len(self.machines) == 1 else None
        object.__setattr__(self, "alone", only)


class ReleaseInstances(RuntimeController):
    """The controller that talks to clouds to end machines."""

    name = RELEASE_CONTROLLER
    limit = 100

    def select(self, uow: UnitOfWork, limit: int) -> list[TerminationBatch]:
        """Take due terminations under a lease, grouped by region: a call takes many machines."""
        now = uow.now
        timeouts = [p.call_timeout_seconds for p in self._runtime.providers.values()]
        until = now + timedelta(seconds=3 * max(timeouts, default=60.0))
        token = self._runtime.entropy.new_token()
        by_region: dict[tuple[str, str], list[Termination]] = {}
        due = uow.instances.due_terminations(now, limit)
        for instance_id, job_id in due:
            with self._instance(uow, instance_id, job_id, skip_locked=True) as instance:
                if instance is None or instance.provider_instance_id is None:
                    continue
                if instance.state is not InstanceState.TERMINATING:
                    instance.terminate_at = None
                    continue
                instance.lease_token, instance.lease_until_at = token, until
                instance.terminate_calls += 1
                region = "" if instance.pool is None else instance.pool.region
                by_region.setdefault((instance.provider, region), []).append(
                    Termination(instance_id, job_id, instance.provider_instance_id)
                )
        if len(due) >= limit:
            uow.notify_after_commit(self.name)
        return [
            TerminationBatch(*where, tuple(by_region[where]), token, until)
            for where in sorted(by_region)
        ]

    def effect(self, work: TerminationBatch) -> ProviderError | None:
        """Ask the cloud; an id that is gone is no error."""
        provider = self._runtime.providers.get(work.provider)
        if provider is None:
            text = f"provider {work.provider} is not configured in this process"
            return ProviderError(RefusalKind.UNAVAILABLE, text)
        latest = work.lease_until - timedelta(seconds=provider.call_timeout_seconds)
        if self._runtime.clock.now() > latest:
            text = "the lease has too little time left for a call"
            return ProviderError(RefusalKind.UNAVAILABLE, text)
        try:
            ids = tuple(one.provider_instance_id for one in work.machines)
            provider.terminate(ids, work.region or None)
        except ProviderError as error:
            return error
        return None

    def apply(self, uow: UnitOfWork, work: TerminationBatch, result: ProviderError | None) -> None:
        """Set the next look, or the next try with growing waits; it is never given up.

        Jobs are locked in the order of their ids, as by everybody who locks several.
        """
        for one in sorted(work.machines, key=lambda each: (str(each.job_id), each.instance_id)):
            with self._instance(uow, one.instance_id, one.job_id) as instance:
                if instance is not None and instance.lease_token == work.lease_token:
                    self._answered(uow, instance, result)

    def parts(self, work: TerminationBatch) -> list[TerminationBatch]:
        """Each machine alone."""
        return [replace(work, machines=(one,)) for one in work.machines]

    def joined(self, parts: Sequence[TerminationBatch]) -> TerminationBatch:
        """Machines of one region again in one call."""
        return replace(parts[0], machines=tuple(one for part in parts for one in part.machines))

    def _answered(self, uow: UnitOfWork, instance: Instance, result: ProviderError | None) -> None:
        instance.lease_token = instance.lease_until_at = None
        if instance.state is not InstanceState.TERMINATING:
            return
        now, limits = uow.now, self._runtime.limits
        wait = min(_RETRY_SECONDS_MAX, 2.0 ** min(instance.terminate_calls, 10))
        if result is None:
            soon = now + timedelta(seconds=min(limits.describe_soon_seconds, wait))
            instance.describe_at = soon
            wait = max(wait, 4 * limits.describe_soon_seconds)
        instance.terminate_at = now + timedelta(seconds=wait)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first termination is due."""
        return uow.instances.next_termination_at()

    @contextmanager
    def _instance(
        self,
        uow: UnitOfWork,
        instance_id: UUID,
        job_id: UUID | None,
        *,
        skip_locked: bool = False,
    ) -> Iterator[Instance | None]:
        """The instance under its job's lock; an orphan without a job has only this controller."""
        if job_id is None:
            yield uow.instances.get(instance_id)
            return
        with self.locked(uow, job_id, skip_locked=skip_locked) as aggregate:
            yield None if aggregate is None else uow.instances.get(instance_id)
