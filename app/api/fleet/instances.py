"""Rented machines, what can be rented, and rehearsing an interruption on the local cloud.

Not here: renting or giving back, which follow from jobs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.fleet.machine_shapes import (
    InstancePage,
    Interruption,
    OfferPage,
    PriceHistoryPage,
)
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import Commander, Reader
from app.api.serving.json_answers import JSON, as_json, page
from app.api.serving.offers_page import placed
from app.domain.access.may import Resource, require
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.market.offer import Pool
from app.domain.units.errors import CommandRefused, InvalidValue, NotFound
from app.orchestration.audit.record_action import record_beginning

router = APIRouter(prefix="/api/v1", tags=["machines"])

_INSTANCES_MAX = 1_000
_NOTICE_SECONDS_MAX = 3_600


class InterruptBody(BaseModel):
    """`notice_seconds`: between notice and kill. Left out, that of the cloud that the machine
    imitates; null kills without any notice.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    notice_seconds: Annotated[float, Field(ge=0, le=_NOTICE_SECONDS_MAX)] | None = None


@router.get("/instances", response_model=None, responses={200: {"model": InstancePage}})
def instances(
    request: Request,
    caller: Reader,
    job: Annotated[str | None, Query(max_length=63, description="Only this job's")] = None,
    live: Annotated[bool, Query(description="false: also machines that have ended")] = True,
    limit: Annotated[int, Query(ge=1, le=_INSTANCES_MAX)] = 200,
) -> Response:
    """Machines of the project's jobs, newest first."""
    parts = parts_of(request)
    job_id = None if job is None else parts.reports.job_id(caller.project_id, job)
    found = parts.reports.instances(caller.project_id, job_id=job_id, live_only=live, limit=limit)
    return page([placed(row) for row in found], None)


@router.post(
    "/instances/{instance_id}/interrupt",
    response_model=None,
    responses={200: {"model": Interruption}},
    dependencies=[Depends(json_only)],
)
def interrupt(
    request: Request, caller: Commander, instance_id: UUID, body: Annotated[InterruptBody, Body()]
) -> Response:
    """Let the local cloud take a spot machine, as a real one would; 409 for any other cloud."""
    parts = parts_of(request)
    machine = parts.reports.instance_address(caller.project_id, instance_id)
    job = Resource(machine.project_id, machine.owner_key_id, machine.owner_person_id)
    require(caller, Action.COMMAND_JOB, job)
    if machine.provider != "local" or parts.local_cloud is None:
        raise CommandRefused(
            f"Only machines of the local cloud can be interrupted on demand; this one is at "
            f"{machine.provider}, which cannot be told to interrupt one."
        )
    if machine.provider_instance_id is None:
        raise CommandRefused("The cloud has not started this machine yet; try again in a moment.")
    subject = Subject(
        SubjectKind.MACHINE, str(instance_id), machine.provider_instance_id, machine.project_id
    )
    ordered = body.model_dump(exclude_unset=True)
    record_beginning(parts.runtime, caller, AuditAction.MACHINE_INTERRUPT, subject, ordered)
    if "notice_seconds" in body.model_fields_set:
        ends_at = parts.local_cloud.interrupt(machine.provider_instance_id, body.notice_seconds)
    else:
        ends_at = parts.local_cloud.interrupt_as_usual(machine.provider_instance_id)
    return as_json({"id": instance_id, "ends_at": ends_at})


@router.get("/offers", response_model=None, responses={200: {"model": OfferPage}})
def offers(
    request: Request,
    caller: Reader,
    gpu: Annotated[str | None, Query(max_length=40, description="Name of a GPU")] = None,
) -> Response:
    """What can be rented at which price now, cheapest first.

    `is_stale`: the quote is too old to be acted on. Scores and preemption rates are the clouds'
    own, with the instant they were told; nothing is chosen by them. Made at most once a second.
    """
    return Response(parts_of(request).offers.page(gpu), media_type=JSON)


@router.get("/offers/history", response_model=None, responses={200: {"model": PriceHistoryPage}})
def price_history(
    request: Request,
    caller: Reader,
    pool: Annotated[str | None, Query(max_length=200, description="Key of a pool")] = None,
    gpu: Annotated[str | None, Query(max_length=40, description="Name of a GPU")] = None,
    days: Annotated[int, Query(ge=1, le=90, description="How far back")] = 30,
) -> Response:
    """Recorded prices of a pool, else of the cheapest twenty that carry the GPU."""
    parts = parts_of(request)
    now = parts.runtime.clock.now()
    found = parts.reports.price_histories(
        now - timedelta(days=days), now, pool=None if pool is None else _pool(pool), gpu=gpu
    )
    if pool is not None and not found:
        raise NotFound(f"There is no pool {pool}; `lowtide offers -q` lists them all.")
    return page([placed(row) for row in found], None)


def _pool(key: str) -> Pool:
    """The pool of a key; InvalidValue for what is none."""
    try:
        return Pool.parse(key)
    except ValueError as error:
        raise InvalidValue(
            f"{key!r} is not the key of a pool; `lowtide offers -q` lists the keys"
        ) from error
