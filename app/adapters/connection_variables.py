"""How long the api waits for slow clients, as environment variables: part of `Settings`."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings


class ConnectionVariables(BaseSettings):
    """`LOWTIDE_REQUEST_…` and `LOWTIDE_KEEP_ALIVE_SECONDS`. Durations are seconds."""

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
