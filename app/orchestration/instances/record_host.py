"""On which computer of the cloud a machine runs, and what follows when that one has failed before.

Lives here: the fact, and giving back a replacement that came to the computer of the machine it
replaces. Not here: pools that rest after a fault (`end_attempt`), or which offer comes next
(`lose_instances`): no cloud lets us name a computer, or leave one out.
"""

from __future__ import annotations

from typing import Final

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Instance
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.transitions.lose_instances import record_broken_host

RETURNED: Final = "it is on the same host as a faulty machine"
_COMPARED_MAX: Final = 100


def record_host(aggregate: JobAggregate, instance: Instance, host: str, limits: Limits) -> None:
    """The cloud's word on where a machine runs; one that came to a broken place goes back once.

    Once for each computer: a cloud that gives it again has nothing else, and the job goes on.
    Only before the attempt begins: what works there is not taken away.
    """
    if instance.host == host:
        return
    instance.host = host
    attempt = aggregate.attempt
    if attempt is None or attempt.state is not AttemptState.PROVISIONING:
        return
    if aggregate.member_of(instance.id) is None:
        return
    found = aggregate.uow.instances.on_host(aggregate.job.id, host, _COMPARED_MAX)
    others = [one for one in found if one.id != instance.id]
    if any(_is_broken(one, instance) for one in others) and not any(
        one.release_reason == RETURNED for one in others
    ):
        record_broken_host(aggregate, instance, RETURNED, limits)


def _is_broken(earlier: Instance, instance: Instance) -> bool:
    """Whether a fault was seen there on a machine that was there first; survivors came with it."""
    registered_at = earlier.registered_at
    return earlier.suspect and registered_at is not None and registered_at < instance.requested_at
