"""Reads of Google Secret Manager: the newest version of a secret, over plain HTTP.

Sources: Secret Manager API, `projects.secrets.versions.access` (`versions/latest`, the answer's
`payload.data` in Base64) and `SecretVersion.State` (a disabled or destroyed one is refused with
FAILED_PRECONDITION); Google Cloud APIs, "Errors" (`error.status`).
"""

from __future__ import annotations

import base64
import binascii

from trainer.agent.secrets.secret_requests import (
    MESSAGE_MAX,
    SecretRequest,
    SecretUnreadable,
    checked_value,
    unexpected,
)
from trainer.protocol.run_config import CloudSecrets


def secret_request(secrets: CloudSecrets, name: str) -> SecretRequest:
    """The call for the newest version."""
    path = f"projects/{secrets.place}/secrets/{name}/versions/latest:access"
    headers = {"authorization": f"Bearer {secrets.credential['token']}"}
    return SecretRequest("GET", f"{secrets.endpoint}/v1/{path}", headers)


def secret_value(status: int, document: object, what: str) -> str:
    """The value in an answer. what: the secret, for people. Raises SecretUnreadable."""
    told = document if isinstance(document, dict) else {}
    if status == 200:
        payload = told.get("payload")
        data = payload.get("data", "") if isinstance(payload, dict) else None
        try:
            return checked_value(base64.b64decode(data or "", validate=True), what)
        except (TypeError, ValueError, binascii.Error):
            raise SecretUnreadable(f"{what} has no value in the answer of its service") from None
    error = told.get("error")
    error = error if isinstance(error, dict) else {}
    code, message = str(error.get("status", "")), str(error.get("message", ""))[:MESSAGE_MAX]
    raise _refusal(status, code, message, what)


def _refusal(status: int, code: str, message: str, what: str) -> SecretUnreadable:
    if status == 404:
        return SecretUnreadable(
            f"{what} is not there, or has no version: correct the name, or add a version"
        )
    if status == 403:
        return SecretUnreadable(
            f"{what} may not be read: the project's `secret_account` needs "
            f"roles/secretmanager.secretAccessor on it, and its project the API: {message}"
        )
    if code == "FAILED_PRECONDITION":
        return SecretUnreadable(f"{what} cannot be read: its newest version is disabled: {message}")
    if status == 401:
        return SecretUnreadable(
            f"{what} cannot be read: Google did not accept the token of the project's account"
        )
    return unexpected(what, status, code, message)
