"""Channels and rules of a project: list, set, test, remove. No answer holds where a channel leads.

Not here: what was sent (`delivery_routes`), or the rules of both (`manage_channels`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.keys import seconds_in
from app.api.jobs.job_command_routes import json_only
from app.api.notifications.notification_shapes import (
    ChannelPage,
    ChannelShape,
    RulePage,
    RuleShape,
    SentShape,
    SetChannelShape,
)
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import NotificationManager, Reader
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import fields_of
from app.domain.notifications.channel_targets import (
    WEBHOOKS,
    ChannelKind,
    MailSecurity,
    Target,
    WebTarget,
    mail_target,
    read_web_address,
)
from app.domain.notifications.outgoing_addresses import require_possible
from app.domain.notifications.triggers import Trigger
from app.domain.units.errors import InvalidValue
from app.orchestration.notifications.manage_channels import (
    CHANNELS_MAX,
    RULES_MAX,
    add_rule,
    remove_channel,
    remove_rule,
    send_test,
    set_channel,
)
from app.storage.notifications.channel_repository import RuleRow

router = APIRouter(
    prefix="/api/v1/notifications", tags=["notifications"], dependencies=[Depends(json_only)]
)

_TEXT_MAX: Final = 4_000
_OF_WEB: Final = frozenset({"url"})
_OF_MAIL: Final = frozenset({"host", "port", "security", "from", "to", "username", "password"})
_Text = Annotated[str, Field(max_length=_TEXT_MAX)]


class NewChannel(BaseModel):
    """`url`: of `slack` and `webhook`, which starts with https://. The others are of `smtp`: `from`
    and `to` are mail addresses; `security`: `starttls`, `tls` or, on loopback, `none`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    kind: Annotated[ChannelKind, Field(strict=False)]
    url: _Text | None = None
    host: _Text | None = None
    port: int | None = None
    security: Annotated[MailSecurity, Field(strict=False)] | None = None
    sender: Annotated[_Text | None, Field(alias="from")] = None
    to: Annotated[list[_Text], Field(max_length=100)] | None = None
    username: _Text | None = None
    password: _Text | None = None


class NewRule(BaseModel):
    """`after`: of `waiting` alone, how long a job may wait, as `1h`."""

    model_config = ConfigDict(extra="forbid", strict=True)
    channel: Annotated[str, Field(max_length=200)]
    trigger: Annotated[Trigger, Field(strict=False)]
    after: Annotated[str, Field(max_length=40)] | None = None


@router.get("/channels", response_model=None, responses={200: {"model": ChannelPage}})
def channels(request: Request, caller: Reader) -> Response:
    """The project's channels by name; where they lead is shown without what opens it."""
    with parts_of(request).runtime.begin() as uow:
        found = uow.channels.channels(caller.project_id, CHANNELS_MAX)
    return page([fields_of(ChannelShape, row) for row in found], None)


@router.put("/channels/{channel}", response_model=None, responses={200: {"model": SetChannelShape}})
def put_channel(
    request: Request,
    caller: NotificationManager,
    channel: str,
    body: Annotated[NewChannel, Body()],
) -> Response:
    """Make a channel, or let it lead elsewhere: what waits for it is sent there.

    The key by which a signed webhook is signed is in this answer, and in no other; to set the
    channel again gives it another one.
    """
    parts = parts_of(request)
    target = _target(body)
    host, encrypted = _host(target)
    require_possible(host, parts.settings.notification_networks, encrypted=encrypted)
    with parts.runtime.begin() as uow:
        made = set_channel(uow, parts.runtime, caller, channel, body.kind, target)
    return as_json(fields_of(SetChannelShape, made.row, signing_key=made.signing_key))


@router.post(
    "/channels/{channel}/remove", response_model=None, responses={200: {"model": ChannelShape}}
)
def delete_channel(request: Request, caller: NotificationManager, channel: str) -> Response:
    """Remove a channel with its rules; what waits for it is not sent."""
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        row = remove_channel(uow, runtime, caller, channel)
    return as_json(fields_of(ChannelShape, row))


@router.post(
    "/channels/{channel}/test",
    status_code=202,
    response_model=None,
    responses={202: {"model": SentShape}},
)
def try_channel(request: Request, caller: NotificationManager, channel: str) -> Response:
    """Send a message to the channel that says that there is nothing to do."""
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        delivery_id = send_test(uow, runtime, caller, channel)
    return as_json({"id": delivery_id}, 202)


@router.get("/rules", response_model=None, responses={200: {"model": RulePage}})
def rules(request: Request, caller: Reader) -> Response:
    """What the project's channels are told of."""
    with parts_of(request).runtime.begin() as uow:
        found = uow.channels.rules(caller.project_id, RULES_MAX)
    return page([_rule(row, channel) for row, channel in found], None)


@router.post("/rules", status_code=201, response_model=None, responses={201: {"model": RuleShape}})
def create_rule(
    request: Request, caller: NotificationManager, body: Annotated[NewRule, Body()]
) -> Response:
    """Tell a channel of something from now on. `machine_leaked`, `books_differ` and
    `deployment_budget`, which concern every project, need an admin's key.
    """
    runtime = parts_of(request).runtime
    after = None if body.after is None else seconds_in(body.after, "after")
    with runtime.begin() as uow:
        row = add_rule(uow, runtime, caller, body.channel, body.trigger, after)
    return as_json(_rule(row, body.channel), 201)


@router.post("/rules/{rule}/remove", response_model=None, responses={200: {"model": SentShape}})
def delete_rule(request: Request, caller: NotificationManager, rule: UUID) -> Response:
    """End a rule; what it has told already is sent. The answer has its `id`."""
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        row = remove_rule(uow, runtime, caller, rule)
    return as_json({"id": row.id})


def _rule(row: RuleRow, channel: str) -> dict[str, Any]:
    return fields_of(RuleShape, row, channel=channel, after_seconds=row.after_seconds or None)


def _target(body: NewChannel) -> Target:
    """Where the channel is to lead. Raises InvalidValue."""
    given = body.model_fields_set - {"kind"}
    given = {"from" if name == "sender" else name for name in given}
    known = _OF_WEB if body.kind in WEBHOOKS else _OF_MAIL
    for name in sorted(given - known):
        raise InvalidValue(f"{name}: is for other kinds of channels; leave it out", name)
    if body.kind in WEBHOOKS:
        if body.url is None:
            raise InvalidValue("url: give the address that notifications are posted to", "url")
        read_web_address(body.url)
        return WebTarget(body.url)
    for name, value in (("host", body.host), ("from", body.sender), ("to", body.to)):
        if value is None:
            raise InvalidValue(f"{name}: is missing; a channel by smtp needs it", name)
    return mail_target(
        body.host or "",
        body.port,
        body.security or MailSecurity.STARTTLS,
        body.sender or "",
        body.to or [],
        body.username,
        body.password,
    )


def _host(target: Target) -> tuple[str, bool]:
    """Who is called, and whether over TLS."""
    if isinstance(target, WebTarget):
        address = read_web_address(target.url)
        return address.host, address.encrypted
    return target.host, target.security is not MailSecurity.NONE
