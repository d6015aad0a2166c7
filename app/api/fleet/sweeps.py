"""Machines that nobody knows, and the end of everything: for keys of the deployment's admins.

The api asks no cloud: it writes down what a person wants, and the worker's sweep carries it out.
Not here: the sweep (`app.orchestration.deployment.sweep_deployment`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from app.api.fleet.sweep_shapes import (
    RegionShape,
    SweepOrderedShape,
    SweepShape,
    SweptMachineShape,
)
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import DeploymentAdmin, DeploymentReader
from app.api.serving.json_answers import as_json
from app.api.serving.shapes import fields_of
from app.domain.access.principal import Principal
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import InstanceState
from app.orchestration.audit.record_action import record_action
from app.orchestration.deployment.confirm_sweep import WORKING, ask_for_sweep, confirm_sweep
from app.orchestration.deployment.destroy_deployment import order_destroy
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.release_order import ADOPTED
from app.storage.instances.sweep_repository import SweepOrders, SweptRegion
from app.storage.unit_of_work import UnitOfWork

router = APIRouter(prefix="/api/v1", tags=["deployment"])

_MACHINES_MAX: Final = 1_000
_EVENTS_MAX: Final = 20


class SweepBody(BaseModel):
    """`confirm`: stop keeping unknown machines; those that no job needs are released."""

    model_config = ConfigDict(extra="forbid", strict=True)
    confirm: bool = False


class DestroyBody(BaseModel):
    """`deployment_id`: as `GET /sweep` names it, so that no other deployment is meant."""

    model_config = ConfigDict(extra="forbid", strict=True)
    deployment_id: str


@router.get("/sweep", response_model=None, responses={200: {"model": SweepShape}})
def show_sweep(request: Request, caller: DeploymentReader) -> Response:
    """The last list of every region, every machine with a row, and what happened lately."""
    with parts_of(request).runtime.begin() as uow:
        return as_json(_document(uow))


@router.post(
    "/sweep",
    response_model=None,
    responses={200: {"model": SweepOrderedShape}},
    dependencies=[Depends(json_only)],
)
def sweep(
    request: Request, caller: DeploymentAdmin, body: Annotated[SweepBody | None, Body()] = None
) -> Response:
    """Have every region listed now; with `confirm`, give back what was kept and no job needs."""
    runtime = parts_of(request).runtime
    confirms = body is not None and body.confirm
    action = AuditAction.SWEEP_CONFIRM if confirms else AuditAction.SWEEP_ASK
    with runtime.begin() as uow:
        released = 0
        with _recorded(uow, runtime, caller, action):
            if confirms:
                released = confirm_sweep(uow, runtime, caller.actor)
            ask_for_sweep(uow)
        return as_json({**_document(uow), "released": released})


@router.post(
    "/destroy",
    status_code=202,
    response_model=None,
    responses={202: {"model": SweepShape, "description": "It is ordered"}},
    dependencies=[Depends(json_only)],
)
def destroy(
    request: Request, caller: DeploymentAdmin, body: Annotated[DestroyBody, Body()]
) -> Response:
    """Cancel every job and end every machine of this deployment, known to a row or not."""
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        if body.deployment_id != str(uow.operations.deployment_id()):
            raise HTTPException(
                422,
                "deployment_id: this is not the id of this deployment; GET /api/v1/sweep has it.",
            )
        with _recorded(uow, runtime, caller, AuditAction.DEPLOYMENT_DESTROY):
            order_destroy(uow, runtime, caller.actor)
        return as_json(_document(uow), status=202)


@contextmanager
def _recorded(
    uow: UnitOfWork, runtime: Runtime, caller: Principal, action: AuditAction
) -> Iterator[None]:
    """Write down who changes what is ordered of the deployment."""
    before = asdict(uow.sweeps.orders())
    yield
    deployment_id = str(uow.operations.deployment_id())
    subject = Subject(SubjectKind.DEPLOYMENT, deployment_id, deployment_id, None)
    after = asdict(uow.sweeps.orders())
    record_action(uow, runtime.entropy, caller, action, subject, before, after)


def _document(uow: UnitOfWork) -> dict[str, Any]:
    orders, living = uow.sweeps.orders(), uow.sweeps.living()
    return {
        "deployment_id": uow.operations.deployment_id(),
        "mode": _mode(orders),
        "since_at": orders.adopt_since_at,
        "reason": orders.adopt_reason,
        "asked_at": orders.asked_at,
        "destroy_ordered_at": orders.destroy_ordered_at,
        "regions": [_region(one, _asked_at(orders)) for one in uow.sweeps.regions()],
        "machine_count": len(living),
        "live_job_count": len(uow.sweeps.live_jobs()),
        "machines": [
            _machine(uow, instance)
            for instance_id, _ in living[:_MACHINES_MAX]
            if (instance := uow.instances.get(instance_id)) is not None
        ],
        "events": uow.sweeps.recent_events(_EVENTS_MAX),
    }


def _mode(orders: SweepOrders) -> str:
    if orders.destroy_ordered_at is not None:
        return "destroy"
    return "adopt" if orders.adopting else "reap"


def _asked_at(orders: SweepOrders) -> datetime | None:
    asked = [at for at in (orders.asked_at, orders.destroy_ordered_at) if at is not None]
    return max(asked, default=None)


def _region(one: SweptRegion, asked_at: datetime | None) -> dict[str, Any]:
    fresh = asked_at is None or one.swept_at >= asked_at
    return fields_of(RegionShape, one, fresh=fresh)


def _machine(uow: UnitOfWork, instance: Instance) -> dict[str, Any]:
    job = None if instance.job_id is None else uow.jobs.get(instance.job_id)
    offer = None if instance.pool is None else uow.offers.get(instance.pool)
    return fields_of(
        SweptMachineShape,
        instance,
        job_name=None if job is None else job.name,
        microusd_per_hour=None if offer is None else offer.price_microusd_per_hour,
        verdict=_verdict(instance, None if job is None else job.state in WORKING),
    )


def _verdict(instance: Instance, job_works: bool | None) -> str:
    """`owned`, `kept` for its job, `would_reap` once confirmed, or `leaving`."""
    if instance.state is InstanceState.TERMINATING:
        return "leaving"
    if instance.origin != ADOPTED:
        return "owned"
    return "kept" if job_works else "would_reap"
