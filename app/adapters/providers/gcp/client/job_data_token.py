"""Tokens of Google for one job's folders: the account of jobs' data, narrowed by a boundary.

The control plane asks for a token of that account (IAM Credentials API, generateAccessToken), which
is new at each call and lasts an hour; its own may be about to end, and a narrowed token ends with
the one it is made of. That is exchanged at the Security Token Service. Over plain HTTP: no client
library is loaded into the api for two calls. Not here: the boundary (`access_boundary`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import requests
from google.auth import exceptions as auth_errors

from app.adapters.providers.gcp.client.access_boundary import access_boundary, boundary_problem
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.client.google_credentials import (
    find_credentials,
    first_line,
    json_of,
    session_of,
)
from app.domain.market.storage_places import StoragePlace
from app.ports.cloud_provider import ProviderError
from app.ports.storage_grants import GrantRefused, IssuedCredential
from trainer.protocol.storage_access import LIFETIME_SECONDS

CALL_SECONDS: Final = 10.0
IMPERSONATION_URL: Final = "https://iamcredentials.googleapis.com"
EXCHANGE_URL: Final = "https://sts.googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"
_OK: Final = 200
_SAID_MAX: Final = 300


class JobDataToken:
    """Implements `app.ports.storage_grants.StorageGrantIssuer` for Cloud Storage."""

    def __init__(self, account: str, settings: GcpSettings) -> None:
        self._account = account
        self._settings = settings
        self._credentials: Any = None
        self._lock = threading.Lock()

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
            wide = self._impersonated()
            narrow, seconds = self._exchanged(wide, access_boundary(places))
        except (
            requests.exceptions.RequestException,
            auth_errors.GoogleAuthError,
            ProviderError,
        ) as error:
            why = first_line(error)
            raise GrantRefused(f"no token for {self._account}: {why}") from error
        return IssuedCredential({"token": narrow}, seconds)

    def _impersonated(self) -> str:
        path = f"/v1/projects/-/serviceAccounts/{quote(self._account, safe='@')}"
        url = f"{self._settings.endpoint or IMPERSONATION_URL}{path}:generateAccessToken"
        asked = {"scope": [_SCOPE], "lifetime": f"{int(LIFETIME_SECONDS)}s"}
        with self._lock:
            # Credentials renew themselves in place, which two threads must not do at once.
            if self._credentials is None:
                self._credentials = find_credentials(self._settings)
            with session_of(self._credentials) as session:
                answer = session.post(url, json=asked, timeout=CALL_SECONDS)
        return str(self._field(answer, "accessToken", "generateAccessToken"))

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
        narrow = str(self._field(answer, "access_token", "the token exchange"))
        seconds = json_of(answer).get("expires_in", LIFETIME_SECONDS)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
            raise GrantRefused("the token exchange answered with no usable lifetime")
        return narrow, min(float(seconds), LIFETIME_SECONDS)

    def _field(self, answer: Any, name: str, call: str) -> str:
        document = json_of(answer)
        document = document if isinstance(document, dict) else {}
        if answer.status_code != _OK:
            error = document.get("error")
            told = error.get("message") if isinstance(error, dict) else error
            more = document.get("error_description") or told or "no reason given"
            raise GrantRefused(
                f"{call} of {self._account} was refused with {answer.status_code}: "
                f"{str(more)[:_SAID_MAX]}"
            )
        value = document.get(name)
        if not isinstance(value, str) or not value:
            raise GrantRefused(f"{call} answered without a token")
        return value
