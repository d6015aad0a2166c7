"""Reads of AWS Secrets Manager: GetSecretValue, signed by hand, as the agent has no SDK.

Sources: Secrets Manager API reference, GetSecretValue ("Request Syntax", "Errors") and "Common
Errors"; the protocol is AWS's JSON 1.1, whose errors are named by `__type`. IAM user guide, "Create
a signed AWS API request" (Signature Version 4).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime
from urllib.parse import urlsplit

from trainer.agent.secrets.secret_requests import (
    MESSAGE_MAX,
    SecretDelayed,
    SecretRequest,
    SecretUnreadable,
    binary,
    checked_value,
    unexpected,
)
from trainer.protocol.run_config import CloudSecrets

SERVICE = "secretsmanager"
TARGET = "secretsmanager.GetSecretValue"
_ALGORITHM = "AWS4-HMAC-SHA256"
_LATER = frozenset({"InternalServiceError", "ThrottlingException", "ServiceUnavailable"})
_OF_CREDENTIAL = frozenset(
    {
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "RequestExpired",
        "UnrecognizedClientException",
    }
)


def secret_request(secrets: CloudSecrets, name: str, at: datetime) -> SecretRequest:
    """GetSecretValue of the version AWSCURRENT. at: the time of day, UTC."""
    body = json.dumps({"SecretId": name}, separators=(",", ":")).encode()
    address, credential = urlsplit(secrets.endpoint), secrets.credential
    headers = {
        "content-type": "application/x-amz-json-1.1",
        "host": address.netloc,
        "x-amz-date": at.strftime("%Y%m%dT%H%M%SZ"),
        "x-amz-security-token": credential["token"],
        "x-amz-target": TARGET,
    }
    signed = ";".join(headers)
    lines = "".join(f"{key}:{value}\n" for key, value in headers.items())
    canonical = f"POST\n/\n\n{lines}\n{signed}\n{_hex(body)}"
    scope = f"{at:%Y%m%d}/{secrets.place}/{SERVICE}/aws4_request"
    to_sign = f"{_ALGORITHM}\n{headers['x-amz-date']}\n{scope}\n{_hex(canonical.encode())}"
    key = f"AWS4{credential['secret_access_key']}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, to_sign).hex()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credential['access_key_id']}/{scope}, "
        f"SignedHeaders={signed}, Signature={signature}"
    )
    return SecretRequest("POST", f"{secrets.endpoint}/", headers, body)


def secret_value(status: int, document: object, what: str) -> str:
    """The value in an answer. what: the secret, for people. Raises SecretUnreadable."""
    told = document if isinstance(document, dict) else {}
    if status == 200:
        if isinstance(told.get("SecretString"), str):
            return checked_value(told["SecretString"], what)
        if told.get("SecretBinary"):
            raise binary(what)
        raise SecretUnreadable(f"{what} has no value in the answer of its service")
    code = str(told.get("__type", "")).rpartition("#")[2].partition(":")[0]
    message = told.get("message") or told.get("Message") or ""
    raise _refusal(status, code, str(message)[:MESSAGE_MAX], what)


def _refusal(status: int, code: str, message: str, what: str) -> SecretUnreadable:
    if code == "ResourceNotFoundException":
        return SecretUnreadable(
            f"{what} is not there, or has no value yet: correct the name, or make it in this region"
        )
    if code == "AccessDeniedException":
        return SecretUnreadable(
            f"{what} may not be read: the role of jobs' data needs secretsmanager:GetSecretValue "
            "on it, and kms:Decrypt on a key of your own. AWS may say the same of a secret that is "
            "not there"
        )
    if code == "DecryptionFailure":
        return SecretUnreadable(
            f"{what} cannot be decrypted: the role of jobs' data needs kms:Decrypt on its key, "
            "which must be enabled"
        )
    if code == "InvalidRequestException":
        return SecretUnreadable(f"{what} cannot be read in its state: {message}")
    if code in _OF_CREDENTIAL:
        return SecretUnreadable(
            f"{what} cannot be read: AWS did not accept this machine's credential ({code}); is the "
            "machine's clock right?"
        )
    if code in _LATER:
        return SecretDelayed(f"{what} cannot be read: its service answered with {status} {code}")
    return unexpected(what, status, code, message)


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
