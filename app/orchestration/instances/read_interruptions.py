"""Read what clouds announce about machines, and apply it as an agent's own notice is applied.

Lives here: the controller of announcements. A message is forgotten only once its effect is in the
database, so it may come twice; a notice that is known already changes nothing. Not here: what an
interruption means (`lose_instances`), what a late word on an end does (`revise_end`), or where
messages come from (the providers).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import ActorKind
from app.domain.lifecycle.instance import (
    OVERDUE_AFTER_SECONDS,
    TERMINAL_INSTANCE_STATES,
    InstanceState,
)
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.look_order import order_look
from app.orchestration.frame.runtime import Runtime
from app.orchestration.instances.reconcile_instances import observe_machine
from app.orchestration.instances.revise_end import corrects_end, revise_end
from app.orchestration.placement.refresh_hazards import record_warning
from app.orchestration.transitions.lose_instances import record_interruption
from app.ports.cloud_provider import CloudMachine, MachineState, ProviderError
from app.ports.interruption_feed import Announcement, AnnouncementKind, InterruptionFeed
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

INTERRUPTION_CONTROLLER = "read_interruptions"
SOURCE = "cloud_events"
_GONE = (MachineState.TERMINATED, MachineState.STOPPED)
_GOING = (*_GONE, MachineState.SHUTTING_DOWN)
_LAUNCH_RECORDED_BY = timedelta(seconds=300)
_SHOWN_FOR = timedelta(minutes=30)
"""A cloud shows a machine that ended for longer than that, and a new one much sooner."""


@dataclass(frozen=True)
class FeedToRead:
    """One provider's feed, and messages whose effect is written."""

    provider: str
    receipts: tuple[str, ...]


@dataclass(frozen=True)
class FeedMessages:
    """What was received; machines that ended, as their cloud shows them after the message.

    unseen: ids of those whose region could not be asked about them.
    """

    asked_at: datetime
    announcements: tuple[Announcement, ...]
    machines: Mapping[str, CloudMachine]
    unseen: frozenset[str] = frozenset()


class ReadInterruptions(RuntimeController):
    """The controller of announcements."""

    name = INTERRUPTION_CONTROLLER
    actor_kind = ActorKind.CLOUD
    limit = 16

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        # Applied, perhaps not committed. Lost with the process, at no harm: they come again.
        self._applied: dict[str, list[Announcement]] = {}

    def select(self, uow: UnitOfWork, limit: int) -> list[FeedToRead]:
        """Every feed that is set up, with what may be forgotten now."""
        found = []
        for name, provider in sorted(self._runtime.providers.items()):
            if isinstance(provider, InterruptionFeed) and provider.announces:
                applied = self._applied.pop(name, [])
                done = (one.receipt for one in applied if self._is_written(uow, name, one))
                found.append(FeedToRead(name, tuple(done)))
        return found[:limit]

    def effect(self, work: FeedToRead) -> FeedMessages | None:
        """Forget and receive; look at machines that are said to have ended."""
        provider = self._runtime.providers[work.provider]
        if not isinstance(provider, InterruptionFeed):
            return None
        if work.receipts:
            try:
                provider.forget_announcements(work.receipts)
            except ProviderError as error:
                # They come again and change nothing; the notices that wait are urgent.
                log.warning("events of %s could not be forgotten: %s", work.provider, error)
        try:
            heard = provider.receive_announcements()
            asked_at = self._runtime.clock.now()
        except ProviderError as error:
            log.warning("the events of %s could not be read: %s", work.provider, error)
            return None
        ended: dict[str, set[str]] = {}
        for one in heard:
            if one.state in _GONE:
                ended.setdefault(one.region, set()).add(one.provider_instance_id)
        machines: dict[str, CloudMachine] = {}
        unseen: set[str] = set()
        for region, ids in sorted(ended.items()):
            try:
                found = provider.describe(tuple(sorted(ids)), region or None)
            except ProviderError as error:
                # The notices among them are urgent, and of other machines.
                log.warning(
                    "machines of %s %s could not be asked about: %s", work.provider, region, error
                )
                unseen |= ids
                continue
            machines |= {machine.provider_instance_id: machine for machine in found}
        return FeedMessages(asked_at, heard, machines, frozenset(unseen))

    def apply(self, uow: UnitOfWork, work: FeedToRead, result: FeedMessages | None) -> None:
        """Apply each message under its job's lock, jobs in id order.

        A job that is locked elsewhere, or a machine whose launch is not recorded yet, has its turn
        when the message comes again.
        """
        if result is None:
            return
        applied = self._applied.setdefault(work.provider, [])
        known = []
        for one in result.announcements:
            instance_id, job_id = uow.instances.whose(work.provider, one.provider_instance_id) or (
                None,
                None,
            )
            if instance_id is not None and job_id is not None:
                known.append((job_id, instance_id, one))
            elif instance_id is not None or result.asked_at - one.at > _LAUNCH_RECORDED_BY:
                applied.append(one)  # nobody's machine: the sweep is there for those
        for job_id, instance_id, one in sorted(known, key=lambda item: (item[:2], item[2].at)):
            with self.locked(uow, job_id) as aggregate:
                instance = None if aggregate is None else uow.instances.get(instance_id)
                if aggregate is not None and instance is not None:
                    self._apply_one(aggregate, instance, one, result)
                    applied.append(one)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """Rows do not tell when a cloud speaks."""
        return None

    def _apply_one(
        self, aggregate: JobAggregate, instance: Instance, one: Announcement, heard: FeedMessages
    ) -> None:
        if instance.state in TERMINAL_INSTANCE_STATES:
            if one.state in _GONE:
                revise_end(aggregate, instance, one.at, one.time_source)
            return
        aggregate.adopt(instance)
        limits = self._runtime.limits
        if one.kind is AnnouncementKind.INTERRUPTION and one.deadline is not None:
            if aggregate.now - one.deadline > timedelta(seconds=OVERDUE_AFTER_SECONDS):
                # Read far too late to act on, and yet a word on who took it.
                instance.noticed_at = instance.noticed_at or one.at
                order_look(aggregate, instance)
            else:
                record_interruption(aggregate, instance, one.deadline, SOURCE, limits)
        elif one.kind is AnnouncementKind.REBALANCE:
            # A registered agent hears and reports the same.
            if instance.state is not InstanceState.REGISTERED:
                record_warning(aggregate, instance)
        elif one.state in _GOING:
            machine = heard.machines.get(one.provider_instance_id)
            looked = one.provider_instance_id not in heard.unseen
            if machine is None and looked and heard.asked_at - one.at > _SHOWN_FOR:
                machine = _forgotten(instance, one)
            if machine is not None and machine.state in _GONE:
                # The event's time is the cloud's most exact word on the end.
                ended = replace(machine, ended_at=one.at, ended_source=one.time_source)
                observe_machine(aggregate, instance, ended, heard.asked_at, limits)
            else:
                order_look(aggregate, instance)

    def _is_written(self, uow: UnitOfWork, provider: str, one: Announcement) -> bool:
        """Whether the transaction that applied a message was committed; a notice must be, and a
        better word on an end, which is kept until the row has ended: it may be the only evidence.
        """
        instance = uow.instances.by_provider_id(provider, one.provider_instance_id)
        if one.kind is not AnnouncementKind.INTERRUPTION:
            return (
                instance is None
                or one.state not in _GONE
                or (
                    instance.state in TERMINAL_INSTANCE_STATES
                    and not corrects_end(instance, one.time_source)
                )
            )
        return (
            instance is None
            or instance.state in TERMINAL_INSTANCE_STATES
            or instance.state is InstanceState.TERMINATING
            or instance.noticed_at is not None
            or (one.deadline is not None and one.deadline < uow.now)
        )


def _forgotten(instance: Instance, said: Announcement) -> CloudMachine | None:
    """A machine that its cloud shows no more, by what it announced of its end."""
    if instance.pool is None or said.state is None:
        return None
    return CloudMachine(said.provider_instance_id, "", instance.pool, said.state)
