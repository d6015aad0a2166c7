"""What people call a job's machines: m1, m2, … in the order in which we learned of their starts.

One rule for pages, API and command line; the names count the machines that the cloud has started,
as in reports of cost. The number is stored (`accept_machines`), so that a name never changes. Not
here: the ids that are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select

from app.domain.lifecycle.events import Actor, ActorKind
from app.storage.schema import tables

_instances = tables.instances.c


def machine_names(connection: Connection, job_ids: Collection[UUID]) -> dict[UUID, str]:
    """Names by instance id; machines that the cloud has not started yet have none."""
    # A control plane of before, which may still run beside this one, gives no number.
    place = func.row_number().over(
        partition_by=_instances.job_id,
        order_by=(_instances.ordinal.nulls_last(), _instances.requested_at, _instances.id),
    )
    statement = select(_instances.id, func.coalesce(_instances.ordinal, place)).where(
        _instances.job_id.in_(job_ids), _instances.launched_at.is_not(None)
    )
    rows = connection.execute(statement).all() if job_ids else []
    return {instance_id: f"m{number}" for instance_id, number in rows}


def machines_by_actor(connection: Connection, job_id: UUID) -> dict[str, str]:
    """Names of a job's machines by what its history calls them: our id, and the cloud's.

    Before it is registered, an agent knows only what the cloud calls its machine.
    """
    names = machine_names(connection, [job_id])
    statement = select(_instances.id, _instances.provider_instance_id).where(
        _instances.job_id == job_id, _instances.provider_instance_id.is_not(None)
    )
    rows = connection.execute(statement).all() if names else []
    by_cloud = {cloud_id: names[own_id] for own_id, cloud_id in rows if own_id in names}
    return by_cloud | {str(own_id): name for own_id, name in names.items()}


def machine_of(event: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
    """The machine that an entry of a history is about, else the one that reported it.

    names: as of `machines_by_actor`.
    """
    about = str(event["noun_id"]) if event["noun"] == "instance" else _reporter(event["actor"])
    return None if about is None else names.get(about)


def _reporter(actor: str) -> str | None:
    try:
        who = Actor.parse(actor)
    except ValueError:
        return None  # of a later version
    return who.name if who.kind is ActorKind.AGENT else None
