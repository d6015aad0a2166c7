"""Order a look: have a machine's cloud asked about it now.

Lives here: the mark and the ring. Not here: the asking and what it means (`reconcile_instances`).
"""

from __future__ import annotations

from app.domain.lifecycle.entities import Instance
from app.orchestration.frame.aggregate import JobAggregate

RECONCILE_CONTROLLER = "reconcile_instances"


def order_look(aggregate: JobAggregate, instance: Instance) -> None:
    """The cloud's word on this machine is needed at once."""
    instance.describe_at = aggregate.now
    aggregate.uow.notify_after_commit(RECONCILE_CONTROLLER)
