"""Access tokens of service accounts that the control plane may impersonate.

IAM Credentials API, `projects.serviceAccounts.generateAccessToken`: a token that is new at each
call, for at most an hour. Over plain HTTP: no client library is loaded into the api for one call.
Not here: what the tokens are for (`job_data_token`, `job_secret_token`).
"""

from __future__ import annotations

import threading
from typing import Any, Final
from urllib.parse import quote

import requests
from google.auth import exceptions as auth_errors

from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.client.google_credentials import (
    find_credentials,
    json_of,
    session_of,
)
from app.ports.cloud_provider import ProviderError
from app.ports.storage_grants import GrantRefused

CALL_SECONDS: Final = 10.0
IMPERSONATION_URL: Final = "https://iamcredentials.googleapis.com"
TOKEN_ERRORS: Final = (
    requests.exceptions.RequestException,
    auth_errors.GoogleAuthError,
    ProviderError,
)
"""What a call for a token raises besides GrantRefused."""
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_OK: Final = 200
_SAID_MAX: Final = 300


class AccountTokens:
    """Thread-safe; each call has a time limit."""

    def __init__(self, settings: GcpSettings) -> None:
        self._settings = settings
        self._credentials: Any = None
        self._lock = threading.Lock()

    def token(self, account: str, seconds: int) -> str:
        """A token of the account. Raises GrantRefused and `TOKEN_ERRORS`."""
        path = f"/v1/projects/-/serviceAccounts/{quote(account, safe='@')}"
        url = f"{self._settings.endpoint or IMPERSONATION_URL}{path}:generateAccessToken"
        asked = {"scope": [_SCOPE], "lifetime": f"{seconds}s"}
        with self._lock:
            # Credentials renew themselves in place, which two threads must not do at once.
            if self._credentials is None:
                self._credentials = find_credentials(self._settings)
            with session_of(self._credentials) as session:
                answer = session.post(url, json=asked, timeout=CALL_SECONDS)
        return token_of(answer, "accessToken", "generateAccessToken", account)


def token_of(answer: Any, name: str, call: str, account: str) -> str:
    """The token in an answer, which has it under this name. Raises GrantRefused."""
    document = json_of(answer)
    document = document if isinstance(document, dict) else {}
    if answer.status_code != _OK:
        error = document.get("error")
        told = error.get("message") if isinstance(error, dict) else error
        more = document.get("error_description") or told or "no reason given"
        raise GrantRefused(
            f"{call} of {account} was refused with {answer.status_code}: {str(more)[:_SAID_MAX]}"
        )
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise GrantRefused(f"{call} answered without a token")
    return value
