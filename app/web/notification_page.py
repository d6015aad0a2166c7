"""The page of a project's notifications: channels, what each is told of, and what was sent.

Lives here: the page, and its form that sends a delivery again. Not here: setting channels and
rules, which is done with the command line or over REST.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from app.domain.access.may import AccessDecision, Resource, may, require_somewhere
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.notifications.delivery_rules import UNDONE
from app.domain.units.durations import exact_duration
from app.domain.units.errors import InvalidValue, NotFound
from app.orchestration.access.manage_projects import not_opened, opened_project
from app.orchestration.notifications.manage_channels import CHANNELS_MAX, RULES_MAX, resend
from app.storage.notifications.channel_repository import ChannelRow, RuleRow
from app.storage.notifications.delivery_repository import DeliveryRow
from app.storage.unit_of_work import UnitOfWork
from app.web.page_frame import PageRoute, SignedIn, check_form, parts_of, redirect, render
from app.web.session import Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_ROWS_MAX: Final = 50


@dataclass(frozen=True)
class ShownDelivery:
    """A delivery, and whether it can be sent again."""

    row: DeliveryRow
    has_ended: bool


@dataclass(frozen=True)
class NotificationsView:
    """What the page shows. channels: each with what it is told of. deliveries: None for a visitor
    who may not manage notifications; older: the id from which older ones follow.
    """

    project: str
    channels: list[tuple[ChannelRow, list[str]]]
    deliveries: list[ShownDelivery] | None
    older: UUID | None
    now: datetime


@router.get("/projects/{project}/notifications")
def notifications(
    request: Request,
    visitor: SignedIn,
    project: str,
    before: Annotated[str, Query(max_length=36)] = "",
) -> Response:
    """Channels, and for maintainers what was sent. before: the id of the delivery before."""
    with parts_of(request).runtime.begin() as uow:
        view = _view(uow, _opened(uow, _owner(visitor), project), project, _id(before))
    return render(request, "notifications.html", visitor, view=view, now=view.now)


@router.post("/projects/{project}/notifications/{delivery}/resend")
def send_again(
    request: Request,
    visitor: SignedIn,
    project: str,
    delivery: str,
    form_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Send a delivery again, under its id."""
    check_form(request, visitor, form_token)
    owner, runtime = _owner(visitor), parts_of(request).runtime
    require_somewhere(owner, Action.MANAGE_NOTIFICATIONS)
    with runtime.begin() as uow:
        inside = _opened(uow, owner, project)
        wanted = _id(delivery)
        if wanted is None:
            raise NotFound("There is no such delivery.")
        resend(uow, runtime, inside, wanted)
    return redirect(f"/projects/{inside.project_name}/notifications")


def _view(
    uow: UnitOfWork, inside: Principal, project: str, before: UUID | None
) -> NotificationsView:
    rules = uow.channels.rules(inside.project_id, RULES_MAX)
    channels = [
        (row, [_told(rule) for rule, _ in rules if rule.channel_id == row.id])
        for row in uow.channels.channels(inside.project_id, CHANNELS_MAX)
    ]
    older: UUID | None = None
    deliveries: list[ShownDelivery] | None = None
    resource = Resource(inside.project_id)
    if may(inside, Action.MANAGE_NOTIFICATIONS, resource) is AccessDecision.ALLOWED:
        found = uow.deliveries.of_project(inside.project_id, _ROWS_MAX + 1, before)
        older = found[_ROWS_MAX - 1].id if len(found) > _ROWS_MAX else None
        deliveries = [ShownDelivery(row, row.state not in UNDONE) for row in found[:_ROWS_MAX]]
    return NotificationsView(project, channels, deliveries, older, uow.now)


def _told(rule: RuleRow) -> str:
    """What a rule waits for, as "waiting over 1h"."""
    words = rule.trigger.replace("_", " ")
    return f"{words} over {exact_duration(rule.after_seconds)}" if rule.after_seconds else words


def _opened(uow: UnitOfWork, owner: Principal, name: str) -> Principal:
    opened = opened_project(uow, owner, name)
    if opened is None:
        raise NotFound(not_opened(owner, name))
    return opened.caller


def _id(written: str) -> UUID | None:
    """Raises InvalidValue for what is none."""
    try:
        return UUID(written) if written else None
    except ValueError:
        raise InvalidValue("before: is no id of a delivery", "before") from None


def _owner(visitor: Visitor) -> Principal:
    assert visitor.owner is not None
    return visitor.owner
