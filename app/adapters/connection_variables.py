"""How long the api waits for slow clients, which proxies it believes, and where notifications may
go: part of `Settings`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode

from app.domain.deployment.setting_lists import Network, read_networks


class ConnectionVariables(BaseSettings):
    """`LOWTIDE_REQUEST_…`, `LOWTIDE_KEEP_ALIVE_SECONDS`, `LOWTIDE_TRUSTED_PROXIES`,
    `LOWTIDE_NOTIFICATION_NETWORKS`. Durations are seconds.
    """

    request_head_seconds: float = Field(
        default=20,
        gt=0,
        description="How long a client may take to send the head of a request, from the moment "
        "it connects or sends its first byte",
    )
    request_body_seconds: float = Field(
        default=20,
        gt=0,
        description="How long the api waits for a body in all, in addition to the time that "
        "`LOWTIDE_REQUEST_BODY_BYTES_PER_SECOND` gives to what has come",
    )
    request_body_bytes_per_second: int = Field(
        default=8_192,
        ge=1,
        description=(
            "The lowest accepted upload speed: each so many bytes extend the wait by a second"
        ),
    )
    keep_alive_seconds: float = Field(
        default=5,
        gt=0,
        description="How long a connection may be idle after an answer before the api closes it",
    )
    trusted_proxies: Annotated[frozenset[Network], NoDecode, BeforeValidator(read_networks)] = (
        Field(
            default=frozenset(),
            description="Addresses and networks of proxies before the api, separated by commas, "
            "whose `X-Forwarded-For` says where a request comes from: the audit shows it, and "
            "attempts to sign in are limited by it",
            json_schema_extra={"default": None},
        )
    )
    notification_networks: Annotated[
        frozenset[Network], NoDecode, BeforeValidator(read_networks)
    ] = Field(
        default=frozenset(),
        description="Addresses and networks, separated by commas, that notifications may reach "
        "besides the public internet, as that of a mail server of your own; loopback, where it "
        "is named, also without TLS ([notifications.md](notifications.md))",
        json_schema_extra={"default": None},
    )
