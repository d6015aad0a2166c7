"""`LOWTIDE_OIDC_…`: who signs people in besides Lowtide. Part of `Settings`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode


def read_secrets(value: object) -> object:
    """`{"corp": "…"}` as a mapping. Raises ValueError, which does not repeat the text."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, Mapping) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError('must be JSON with secrets by issuer, like {"corp": "…"}')
    return found


class OidcVariables(BaseSettings):
    """The issuers are in a file of their own, as their groups are a table."""

    oidc_file: Path | None = Field(
        default=None,
        description="YAML file with the OpenID Connect issuers that sign people in to the pages "
        "([oidc.md](oidc.md)); read when the api starts",
    )
    oidc_client_secrets: Annotated[
        Mapping[str, SecretStr], NoDecode, BeforeValidator(read_secrets)
    ] = Field(
        default={},
        repr=False,
        description="Client secrets by issuer, as JSON, for issuers of that file that name no "
        '`client_secret_file`: `{"corp": "…"}`',
        json_schema_extra={"default": None},
    )
