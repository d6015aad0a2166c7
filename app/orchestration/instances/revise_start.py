"""A later word on when a machine began: where it is the more exact one, it corrects the bill.

Lives here: the correction of a start that is known already. Not here: the first word on it
(`accept_machines`), a late word on an end (`revise_end`), or the adjustment that follows
(`app.domain.billing.ledger`).
"""

from __future__ import annotations

from datetime import datetime

from app.domain.billing.machine_facts import is_better_start
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.units.instants import clock_time
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.gang.assign_instances import move_start
from app.orchestration.transitions.lose_instances import ACCRUE_CONTROLLER


def revise_start(
    aggregate: JobAggregate, instance: Instance, started_at: datetime, source: str
) -> None:
    """Take over a start from a better source; do nothing where it is none.

    Which source is better: `billing.machine_facts.is_better_start`. A word of the same rank
    changes nothing: a look may come as often as it likes.
    """
    known_at = instance.launched_at
    if known_at is None or not is_better_start(source, instance.launched_source):
        return
    instance.launched_at, instance.launched_source = started_at, source
    if started_at == known_at:
        return
    aggregate.record(
        JobEventKind.START_REVISED,
        f"The cloud reports that this machine started at {clock_time(started_at)}, not at "
        f"{clock_time(known_at)}: its bill is recalculated.",
        about=instance,
        source=source,
    )
    instance.billed_until_at = instance.cost_final_at = None
    aggregate.job.cost_final_at = None
    move_start(aggregate.uow, instance, started_at)
    aggregate.uow.notify_after_commit(ACCRUE_CONTROLLER)
