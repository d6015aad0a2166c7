"""Order machines back: mark them for termination, or leave them to the cloud where that is free.

Lives here: the mark. Not here: the call that gives them back (`release_instances`).
"""

from __future__ import annotations

from collections.abc import Iterable

from app.domain.billing.billing_rules import rules_for
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import InstanceEvent, InstanceState
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.silence import GivenUpBy

RELEASE_CONTROLLER = "release_instances"
ADOPTED = "adopted"
"""Origin of a row that a sweep made for a machine."""


def order_release(
    aggregate: JobAggregate,
    instances: Iterable[Instance],
    reason: str,
    *,
    even_if_free: bool = False,
    given_up_by: GivenUpBy | None = None,
) -> list[Instance]:
    """Mark instances for termination; returns those that were newly marked.

    A noticed machine that its cloud will not charge for, if the cloud itself ends it, is left to
    the cloud: giving it back would turn a free hour into a paid one. So is one that a sweep keeps
    until a person confirms. even_if_free: neither is spared. given_up_by: of a silent machine.
    """
    marked = []
    silence = {} if given_up_by is None else {"given_up_by": given_up_by}
    for instance in sorted(instances, key=lambda item: item.id):
        if instance.state is InstanceState.TERMINATING:
            continue
        if not even_if_free and (free_if_taken(instance) or _is_kept(aggregate, instance)):
            continue
        told = f"Released: {reason}."
        aggregate.move_instance(
            instance, InstanceEvent.RELEASE_ORDERED, told, reason=reason, **silence
        )
        mark_for_termination(aggregate, instance, reason)
        marked.append(instance)
    return marked


def mark_for_termination(aggregate: JobAggregate, instance: Instance, reason: str) -> None:
    """Write down that the machine must go; the cloud is called by a controller."""
    instance.release_ordered_at = instance.release_ordered_at or aggregate.now
    instance.release_reason = instance.release_reason or reason
    instance.terminate_at = aggregate.now
    instance.describe_at = instance.describe_at or aggregate.now
    aggregate.uow.notify_after_commit(RELEASE_CONTROLLER)


def _is_kept(aggregate: JobAggregate, instance: Instance) -> bool:
    """Whether it was found while rows are missing, and nobody has heard of it or decided yet."""
    unheard = instance.origin == ADOPTED and instance.registered_at is None
    return unheard and aggregate.uow.sweeps.orders().adopting


def free_if_taken(instance: Instance) -> bool:
    """Whether the cloud's own ending, at the announced instant, makes the machine free."""
    if instance.state is not InstanceState.INTERRUPTING:
        return False
    if instance.notice_deadline_at is None or instance.launched_at is None:
        return False
    if instance.cloud is None:
        return False
    rules = rules_for(instance.cloud)
    age = (instance.notice_deadline_at - instance.launched_at).total_seconds()
    return age * instance.billing_speed < rules.free_if_interrupted_within_seconds
