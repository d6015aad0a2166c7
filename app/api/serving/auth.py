"""The signed-in caller as a parameter of routes, with what the route does: `caller: Reader`.

Lives here: the parameters. Not here: how a key is known (`key_ring`), or what a role may do
(`app.domain.access`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from app.api.serving.api_parts import parts_of
from app.api.serving.key_ring import PROJECT_HEADER
from app.domain.access.may import (
    DEPLOYMENT,
    Resource,
    require,
    require_role,
    require_somewhere,
)
from app.domain.access.principal import Origin, Principal
from app.domain.access.roles import Action


async def require_caller(request: Request) -> Principal:
    """The caller; 401 without a good key, 404 for a project that it does not open."""
    headers = request.headers
    caller = await parts_of(request).keys.caller(
        headers.get("authorization"), headers.get(PROJECT_HEADER)
    )
    return in_request(request, caller)


def in_request(request: Request, caller: Principal) -> Principal:
    """The caller with the request's origin, if it may change something; a refusal names its key."""
    request.state.principal = caller
    origin: Origin | None = getattr(request.state, "origin", None)
    return caller if origin is None else caller.from_origin(origin)


SignedIn = Annotated[Principal, Depends(require_caller)]
"""Of the dependencies here alone: a route says what it does."""


def _in_project(action: Action) -> Callable[[Principal], Awaitable[Principal]]:
    async def allowed(caller: SignedIn) -> Principal:
        require(caller, action, Resource(caller.project_id))
        return caller

    return allowed


def _somewhere(action: Action) -> Callable[[Principal], Awaitable[Principal]]:
    async def allowed(caller: SignedIn) -> Principal:
        require_somewhere(caller, action)
        return caller

    return allowed


def _of_deployment(action: Action) -> Callable[[Principal], Awaitable[Principal]]:
    async def allowed(caller: SignedIn) -> Principal:
        require(caller, action, DEPLOYMENT)
        return caller

    return allowed


async def _commander(caller: SignedIn) -> Principal:
    require_role(caller, Action.COMMAND_JOB)
    return caller


Reader = Annotated[Principal, Depends(_in_project(Action.READ))]
"""Of a route that reads what belongs to the project."""
Submitter = Annotated[Principal, Depends(_in_project(Action.SUBMIT))]
"""Of a route that stores a part of a job."""
SpecSubmitter = Annotated[Principal, Depends(_somewhere(Action.SUBMIT))]
"""Of a route for a spec, which may name its project: it asks `require` inside that one."""
Commander = Annotated[Principal, Depends(_commander)]
"""Of a route that commands jobs: it asks `may` about each, under the job's lock."""
KeyManager = Annotated[Principal, Depends(_in_project(Action.MANAGE_KEYS))]
"""Of a route for the project's keys."""
RuleManager = Annotated[Principal, Depends(_somewhere(Action.MANAGE_RULES))]
"""Of a route that changes rules: it asks `require` inside the project that it names."""
SecretNamer = Annotated[Principal, Depends(_in_project(Action.NAME_SECRETS))]
"""Of a route that tells the names of secrets."""
SecretManager = Annotated[Principal, Depends(_in_project(Action.MANAGE_SECRETS))]
"""Of a route that changes secrets."""
NotificationManager = Annotated[Principal, Depends(_in_project(Action.MANAGE_NOTIFICATIONS))]
"""Of a route that changes channels and rules, or shows what was sent."""
AuditReader = Annotated[Principal, Depends(_somewhere(Action.READ_AUDIT))]
"""Of a route for what people did: it asks `require` inside the project that it is about."""
MemberManager = Annotated[Principal, Depends(_in_project(Action.MANAGE_MEMBERS))]
"""Of a route for the project's members and invitations."""
Owner = Annotated[Principal, Depends(_in_project(Action.MANAGE_OWN))]
"""Of a route for what belongs to the caller itself: its keys and sessions."""
DeploymentReader = Annotated[Principal, Depends(_of_deployment(Action.READ_DEPLOYMENT))]
"""Of a route that reads what concerns every project."""
DeploymentAdmin = Annotated[Principal, Depends(_of_deployment(Action.OPERATE_DEPLOYMENT))]
"""Of a route that changes what concerns every project."""
