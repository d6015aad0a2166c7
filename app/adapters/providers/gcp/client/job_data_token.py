"""Tokens of Google for one job's folders: the account of jobs' data, narrowed by a boundary.

A narrowed token ends with the one it is made of, and the control plane's own may be about to end.
So it is made of a new one of that account (`account_tokens`), at the Security Token Service. Not
here: the boundary (`access_boundary`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import requests

from app.adapters.providers.gcp.client.access_boundary import access_boundary, boundary_problem
from app.adapters.providers.gcp.client.account_tokens import (
    CALL_SECONDS,
    TOKEN_ERRORS,
    AccountTokens,
    token_of,
)
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.client.google_credentials import first_line, json_of
from app.domain.market.storage_places import StoragePlace
from app.ports.storage_grants import GrantRefused, IssuedCredential
from trainer.protocol.storage_access import LIFETIME_SECONDS

EXCHANGE_URL: Final = "https://sts.googleapis.com"
_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"


class JobDataToken:
    """Implements `app.ports.storage_grants.StorageGrantIssuer` for Cloud Storage."""

    def __init__(self, account: str, settings: GcpSettings) -> None:
        self._account = account
        self._settings = settings
        self._tokens = AccountTokens(settings)

    @property
    def scope_by(self) -> str:
        """The account."""
        return self._account

    def issue(self, places: Sequence[StoragePlace], job_id: UUID) -> IssuedCredential:
        """As the port says."""
        problem = boundary_problem(places)
        if problem is not None:
            raise GrantRefused(problem)
        try:
            wide = self._tokens.token(self._account, int(LIFETIME_SECONDS))
            narrow, seconds = self._exchanged(wide, access_boundary(places))
        except TOKEN_ERRORS as error:
            why = first_line(error)
            raise GrantRefused(f"no token for {self._account}: {why}") from error
        return IssuedCredential({"token": narrow}, seconds)

    def _exchanged(self, token: str, boundary: dict[str, Any]) -> tuple[str, float]:
        """Source: Security Token Service API, `v1.token`, "options"."""
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": token,
            "subject_token_type": _TOKEN_TYPE,
            "requested_token_type": _TOKEN_TYPE,
            "options": quote(json.dumps(boundary, separators=(",", ":")), safe=""),
        }
        url = f"{self._settings.endpoint or EXCHANGE_URL}/v1/token"
        answer = requests.post(url, data=form, timeout=CALL_SECONDS, allow_redirects=False)
        narrow = token_of(answer, "access_token", "the token exchange", self._account)
        seconds = json_of(answer).get("expires_in", LIFETIME_SECONDS)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
            raise GrantRefused("the token exchange answered with no usable lifetime")
        return narrow, min(float(seconds), LIFETIME_SECONDS)
