"""What was sent to a project's channels, what came of it, and sending it again.

Not here: channels (`channel_routes`), or the sending (`app.orchestration.notifications`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from app.api.jobs.job_command_routes import json_only
from app.api.notifications.notification_shapes import DeliveryPage, DeliveryShape, SentShape
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import NotificationManager
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import fields_of
from app.domain.notifications.delivery_rules import DeliveryState
from app.domain.units.errors import NotFound
from app.orchestration.notifications.manage_channels import resend
from app.storage.notifications.delivery_repository import DeliveryRow

router = APIRouter(
    prefix="/api/v1/notifications/deliveries",
    tags=["notifications"],
    dependencies=[Depends(json_only)],
)

_PAGE_MAX: Final = 200


@router.get("", response_model=None, responses={200: {"model": DeliveryPage}})
def deliveries(
    request: Request,
    caller: NotificationManager,
    state: Annotated[DeliveryState | None, Query(description="Only those that stand so")] = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE_MAX)] = 50,
    after: Annotated[UUID | None, Query(description="`next` of the part before")] = None,
) -> Response:
    """The project's deliveries of the last 30 days, the newest first."""
    with parts_of(request).runtime.begin() as uow:
        found = uow.deliveries.of_project(caller.project_id, limit + 1, after, state)
    more = str(found[limit - 1].id) if len(found) > limit else None
    return page([_delivery(row) for row in found[:limit]], more)


@router.get("/{delivery}", response_model=None, responses={200: {"model": DeliveryShape}})
def delivery(request: Request, caller: NotificationManager, delivery: UUID) -> Response:
    """One delivery."""
    with parts_of(request).runtime.begin() as uow:
        row = uow.deliveries.one(caller.project_id, delivery)
    if row is None:
        raise NotFound(f"The project {caller.project_name!r} has no delivery {delivery}.")
    return as_json(_delivery(row))


@router.post(
    "/{delivery}/resend",
    status_code=202,
    response_model=None,
    responses={202: {"model": SentShape}},
)
def send_again(request: Request, caller: NotificationManager, delivery: UUID) -> Response:
    """Try a delivery that has ended again, under the same id; 409 for one that is still tried."""
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        row = resend(uow, runtime, caller, delivery)
    return as_json({"id": row.id}, 202)


def _delivery(row: DeliveryRow) -> dict[str, Any]:
    return fields_of(DeliveryShape, row, title=row.message["title"], text=row.message["text"])
