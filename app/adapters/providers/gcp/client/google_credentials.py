"""What signs our requests, from a file or from the environment; errors say what to do.

Not here: the calls that are signed (`compute_api`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from google.auth import default as default_credentials
from google.auth import exceptions as auth_errors
from google.auth import identity_pool
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.oauth2 import credentials as user_credentials
from google.oauth2 import service_account
from requests import Session

from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.ports.cloud_provider import ProviderError, RefusalKind, RefusalScope

_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
# "Using OAuth 2.0 for Server to Server Applications", JWT error codes: invalid_grant.
_CLOCK_WORDS: Final = ("iat and exp", "reasonable timeframe")
_LOOPBACK: Final = ("http://127.0.0.1:", "http://localhost:", "http://[::1]:")


def find_credentials(settings: GcpSettings) -> Any:
    """The file's credentials, else those that Google's own search finds.

    An endpoint on loopback is a test's: it gets none. Raises ProviderError `denied`.
    """
    if settings.endpoint is not None and settings.endpoint.startswith(_LOOPBACK):
        return AnonymousCredentials()
    try:
        if settings.credentials_file is not None:
            return _from_file(Path(settings.credentials_file))
        return default_credentials(scopes=_SCOPES)[0]
    except (auth_errors.GoogleAuthError, OSError, ValueError) as error:
        raise unsigned(error) from error


def session_of(credentials: Any) -> Any:
    """For plain HTTP: a session whose requests are signed, where there is something to sign with.

    Some APIs are asked so, as one more client library would load gRPC for a single answer.
    """
    if isinstance(credentials, AnonymousCredentials):
        return Session()
    return AuthorizedSession(credentials)


def json_of(answer: Any) -> Any:
    """The document of a plain answer; None where it has none that can be read."""
    try:
        return answer.json()
    except ValueError:
        return None


def unsigned(error: Exception) -> ProviderError:
    """Credentials that are missing, expired or refused, or signed by a clock that is wrong."""
    if any(word in str(error) for word in _CLOCK_WORDS):
        return ProviderError(
            RefusalKind.DENIED,
            f"Google does not accept the time in our sign-in: {first_line(error)}; set the clock "
            "of this machine, which is off by minutes or more",
            RefusalScope.PROVIDER,
        )
    return ProviderError(
        RefusalKind.DENIED,
        f"Google Cloud credentials cannot be used: {first_line(error)}; set "
        "LOWTIDE_GCP_CREDENTIALS_FILE to a key or workload-identity file, or run "
        "`gcloud auth application-default login`",
        RefusalScope.PROVIDER,
    )


def first_line(error: Exception) -> str:
    """The beginning of an error's text, for a sentence."""
    return str(error).split("\n", 1)[0][:300]


def _from_file(path: Path) -> Any:
    document = json.loads(path.read_text("utf-8"))
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "service_account":
        return service_account.Credentials.from_service_account_info(document, scopes=_SCOPES)
    if kind == "external_account":
        return identity_pool.Credentials.from_info(document, scopes=_SCOPES)
    if kind == "authorized_user":
        return user_credentials.Credentials.from_authorized_user_info(document, scopes=_SCOPES)
    raise ValueError(
        f"{path} is of type {kind!r}; use a service_account, external_account or "
        "authorized_user file"
    )
