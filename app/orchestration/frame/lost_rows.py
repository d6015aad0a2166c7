"""What rows may have forgotten when the control plane was away, and what waits until it is known.

A database that was restored from a backup knows neither the machines nor the attempts of the time
since, and looks like one that was only away: agents could not be heard. So after every such gap no
machine is asked for before each region was listed, numbers are left out that lost rows may have
given, and directives are told above all that agents have heard. Not here: what unknown machines
mean (`sweep_deployment`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.domain.deployment.sweep_rules import FENCES_SKIPPED, UNLISTED_SECONDS_MAX, version_floor
from app.domain.lifecycle.entities import Attempt, Job
from app.orchestration.frame.runtime import Limits
from app.ports.object_store import ObjectStore, ObjectStoreError
from app.storage.instances.sweep_repository import SweptRegion
from app.storage.unit_of_work import UnitOfWork
from trainer.protocol.checkpoint_manifest import FenceRecord, fence_key, parse_fence_key
from trainer.protocol.wire import WireError, decode

log = logging.getLogger(__name__)

SWEEP_CONTROLLER = "sweep_deployment"
_UNLISTED_MAX = timedelta(seconds=UNLISTED_SECONDS_MAX)


@dataclass(frozen=True)
class AwaitedLists:
    """Machines may run that no row knows. until: when no list is waited for any more; None while
    nobody hears agents.
    """

    until: datetime | None


def record_listening(uow: UnitOfWork, gap_seconds: float) -> None:
    """An api process hears agents now. After a gap every region is listed at once."""
    if uow.contacts.record_listening(uow.now, gap_seconds):
        _begin_anew(uow)


def record_rows_missing(uow: UnitOfWork) -> None:
    """Rows are lost, as a list shows: what follows from a gap follows now, if none was noticed."""
    uow.contacts.hear_anew(uow.now)
    _begin_anew(uow)


def _begin_anew(uow: UnitOfWork) -> None:
    # Agents ignore a version below the highest that they have heard, which no row may know.
    for job_id in uow.sweeps.skip_versions(version_floor(uow.now)):
        log.error(
            "job %s has counted as many changes as can be stored; its machines may ignore orders: "
            "submit it again with `lowtide submit --from`, then cancel it",
            job_id,
        )
    uow.notify_after_commit(SWEEP_CONTROLLER)


def heard_since(uow: UnitOfWork) -> datetime | None:
    """Since when agents could be heard without a gap, as far as rows tell; None: never as yet."""
    return uow.operations.hearing().hearing_since_at


def awaited_lists(
    uow: UnitOfWork, now: datetime, limits: Limits, regions: Iterable[tuple[str, str]] = ()
) -> AwaitedLists | None:
    """What is waited for before machines are asked for; None when nothing is.

    regions: (provider, region) of all that are configured, where the caller knows them. A database
    in which no region was ever listed is new: it has forgotten nothing.
    """
    hearing = uow.operations.hearing()
    since, listening_at = hearing.hearing_since_at, hearing.listening_at
    if since is None or listening_at is None:
        return None
    swept = uow.sweeps.regions()
    if not swept:
        return None
    if now - listening_at > timedelta(seconds=limits.listening_gap_seconds):
        return AwaitedLists(None)
    until = since + _UNLISTED_MAX
    return None if now >= until or _all_listed(swept, since, regions) else AwaitedLists(until)


def lists_are_awaited(uow: UnitOfWork, now: datetime) -> bool:
    """Whether a region was not listed since the last gap, for who is told something by an agent or
    a cloud, and so hears.
    """
    since = heard_since(uow)
    if since is None or now >= since + _UNLISTED_MAX:
        return False
    return not _all_listed(uow.sweeps.regions(), since)


def _all_listed(
    swept: Collection[SweptRegion],
    gap_ended_at: datetime,
    regions: Iterable[tuple[str, str]] = (),
) -> bool:
    """Whether every region that ever was listed, and each of `regions`, was since, to its end."""
    new = {
        (one.provider, one.region) for one in swept if one.complete and one.swept_at >= gap_ended_at
    }
    return new.issuperset({*((one.provider, one.region) for one in swept), *regions})


def highest_fence(open_store: Callable[[], ObjectStore]) -> int | None:
    """The highest fence that has a record in a job's store, 0 without any; None when it cannot be
    read now.
    """
    try:
        keys = open_store().list_keys("fences/")
        return max((fence for key in keys if (fence := parse_fence_key(key))), default=0)
    except ObjectStoreError:
        return None


def number_beyond(job: Job, highest: int | None) -> None:
    """Number the next attempt after all that the store knows of, and far after those in the rows.

    A lost attempt may have had its number, and its machines, and no record in the store as yet.
    People read the ordinal, which leaves none out (`app.domain.wording.attempt_words`).
    """
    job.next_fence = max(job.next_fence + FENCES_SKIPPED, (highest or 0) + 1)


def numbered_before_gap(uow: UnitOfWork, attempt: Attempt) -> bool:
    """Whether lost rows may have given this attempt's number to other machines than it has now.

    Never while the clock is behind the gap: every attempt would seem to be older than it.
    """
    since = heard_since(uow)
    return since is not None and attempt.created_at < since <= uow.now


def fences_with_parents(attempts: Iterable[Attempt]) -> frozenset[int]:
    """Fences whose parents the rows know."""
    return frozenset(one.fence for one in attempts if one.parent_fence is not None)


def forgotten_parents(store: ObjectStore, known: Collection[int]) -> set[tuple[int, int]]:
    """(fence, step) of the parents that only the store has recorded.

    Raises ObjectStoreError when a record cannot be read: nothing is known then.
    """
    parents = set()
    for key in store.list_keys("fences/"):
        fence = parse_fence_key(key)
        if fence is None or fence in known:
            continue
        try:
            record = decode(FenceRecord, json.loads(store.get(fence_key(fence))))
        except (WireError, ValueError) as error:
            raise ObjectStoreError(f"{key} cannot be read: {error}") from error
        if record.parent is not None:
            parents.add((record.parent.fence, record.parent.step))
    return parents
