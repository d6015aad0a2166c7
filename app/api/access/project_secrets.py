"""Secrets of a project: their names, and giving one a value, another one, or none.

No answer holds a value. Not here: the rules (`app.orchestration.secrets.manage_secrets`), or what
machines are given (`app.api.agents`).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.secret_shapes import SecretPage, SecretShape
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import SecretManager, SecretNamer
from app.api.serving.json_answers import as_json, page
from app.domain.access.principal import Principal
from app.orchestration.secrets.manage_secrets import (
    known_keys,
    named_secrets,
    remove_secret,
    set_secret,
)
from app.storage.access.secret_repository import SecretRow

router = APIRouter(prefix="/api/v1/secrets", tags=["secrets"], dependencies=[Depends(json_only)])

_VALUE_CHARACTERS_MAX = 1 << 20
"""More than any body holds: the rule itself counts bytes, and says what to do instead."""
_Value = Annotated[str, Field(max_length=_VALUE_CHARACTERS_MAX)]


class NewSecretValue(BaseModel):
    """`value`: text of at most 64 KiB. `for_maintainers`: only jobs that maintainers submit may
    name it; null, or left out, keeps what it is, and is false of a new one.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    value: _Value
    for_maintainers: bool | None = None


class RotatedValue(BaseModel):
    """`value`: the text that follows on the one of before."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    value: _Value


@router.get("", response_model=None, responses={200: {"model": SecretPage}})
def secrets(request: Request, caller: SecretNamer) -> Response:
    """The project's secrets that you may name in a job, by name; never a value."""
    parts = parts_of(request)
    with parts.runtime.begin() as uow:
        found = named_secrets(uow, caller)
    known = known_keys(parts.runtime)
    return page([_document(row, known) for row in found], None)


@router.put("/{secret}", response_model=None, responses={200: {"model": SecretShape}})
def put(
    request: Request, caller: SecretManager, secret: str, body: Annotated[NewSecretValue, Body()]
) -> Response:
    """Make a secret, or give one another value. Jobs get the value from their next attempt on."""
    return _set(request, caller, secret, body.value, for_maintainers=body.for_maintainers)


@router.post("/{secret}/rotate", response_model=None, responses={200: {"model": SecretShape}})
def rotate(
    request: Request, caller: SecretManager, secret: str, body: Annotated[RotatedValue, Body()]
) -> Response:
    """Give a secret that is there another value; 404 for one that is not."""
    return _set(request, caller, secret, body.value, must_exist=True)


@router.post("/{secret}/remove", response_model=None, responses={200: {"model": SecretShape}})
def remove(request: Request, caller: SecretManager, secret: str) -> Response:
    """Delete a secret's value. Attempts that have it go on; jobs that name it begin no other."""
    parts = parts_of(request)
    with parts.runtime.begin() as uow:
        row = remove_secret(uow, parts.runtime, caller, secret)
    return as_json(_shown(parts, row))


def _set(
    request: Request, caller: Principal, name: str, value: str, **how: bool | None
) -> Response:
    parts = parts_of(request)
    with parts.runtime.begin() as uow:
        row = set_secret(
            uow, parts.runtime, caller, name, value,
            for_maintainers=how.get("for_maintainers"), must_exist=bool(how.get("must_exist")),
        )  # fmt: skip
    return as_json(_shown(parts, row))


def _shown(parts: ApiParts, row: SecretRow) -> dict[str, Any]:
    return _document(row, known_keys(parts.runtime))


def _document(row: SecretRow, known: tuple[str, ...]) -> dict[str, Any]:
    """readable: whether the key is there that its value is under."""
    return {
        "name": row.name,
        "version": row.version,
        "for_maintainers": row.for_maintainers,
        "created_at": row.created_at,
        "created_by": row.created_by,
        "changed_at": row.changed_at,
        "changed_by": row.changed_by,
        "removed_at": row.removed_at,
        "readable": row.key_id in known,
    }
