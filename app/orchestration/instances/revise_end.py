"""A late word on when a machine ended: where it is the more exact one, it corrects the bill.

Lives here: the correction of a machine that has ended already. Not here: noticing that one ends
(`lose_instances`), or the adjustment that follows from another end (`app.domain.billing.ledger`).
"""

from __future__ import annotations

from datetime import datetime

from app.domain.billing.machine_facts import is_better_end
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.units.instants import clock_time
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.gang.assign_instances import end_assignments
from app.orchestration.transitions.lose_instances import ACCRUE_CONTROLLER


def corrects_end(instance: Instance, source: str) -> bool:
    """Whether a word on its end from `source` is better than what a machine's bill rests on."""
    ended = instance.ended_at is not None and instance.launched_at is not None
    return ended and is_better_end(source, instance.ended_source)


def revise_end(
    aggregate: JobAggregate, instance: Instance, ended_at: datetime, source: str
) -> bool:
    """Take over an end from a better source, and open the bill again; False where it is none.

    Which source is better: `billing.machine_facts.is_better_end`. A word of the same rank
    changes nothing, so the same message may come twice.
    """
    known_at, started_at = instance.ended_at, instance.launched_at
    if known_at is None or started_at is None or not corrects_end(instance, source):
        return False
    aggregate.record(
        JobEventKind.END_REVISED,
        f"The cloud reports that this machine ended at {clock_time(ended_at)}, not at "
        f"{clock_time(known_at)}: its bill is recalculated.",
        about=instance,
        source=source,
    )
    instance.ended_at, instance.ended_source = ended_at, source
    instance.updated_at = aggregate.now
    instance.billed_until_at = instance.cost_final_at = None
    aggregate.job.cost_final_at = None
    end_assignments(aggregate.uow, instance, max(ended_at, started_at))
    aggregate.uow.notify_after_commit(ACCRUE_CONTROLLER)
    return True
