"""AWS Secrets Manager and Google Secret Manager for the agent, as strict as the real ones.

AWS: a call must be one that botocore's model of the service takes, signed as botocore signs, with a
token of a session, whose policy is evaluated. Errors are those of the operation's model, and AWS's
common ones. Source: Secrets Manager API reference, GetSecretValue and "Common Errors".
Google: the path, the method and the answer are those of `projects.secrets.versions.access`; a token
opens what its account's IAM condition allows (`resource.name.startsWith`, with the number of the
project: IAM, "Resource attributes for IAM Conditions"), and a secret that it does not is refused
whether it is there or not.
"""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.aws.aws_requests import problems_of
from tests.support.aws.iam_policy import IamRequest, Policy
from tests.support.servers.http_server import HttpServer, QuietHandler

ACCOUNT, REGION = "123456789012", "eu-west-1"
PROJECT, NUMBER = "acme-prod", "424242424242"
_COMMON_ERRORS = {"AccessDeniedException", "ThrottlingException", "UnrecognizedClientException",
                  "InvalidSignatureException", "ExpiredTokenException"}  # fmt: skip
_SKEW_SECONDS_MAX = 300.0
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([a-z0-9-]+)/secretsmanager/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)
_ACCESS = re.compile(
    r"/v1/projects/([a-z][a-z0-9-]{4,28}[a-z0-9])/secrets/([A-Za-z0-9_-]{1,255})/versions/latest:access"
)


@cache
def model_of_get() -> Any:
    """botocore's model of GetSecretValue."""
    model = botocore.session.get_session().get_service_model("secretsmanager")
    return model.operation_model("GetSecretValue")


@dataclass
class _Service:
    """troubles: answers in place of its own, one for each call, (status, code), or seconds to hang.

    asked: the names, in order. problems: calls that the real service would not understand.
    """

    troubles: list[tuple[int, str] | float] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        service = self

        class Handler(QuietHandler):
            def serve(self) -> None:
                body = self.body()
                trouble = service.troubles.pop(0) if service.troubles else None
                if isinstance(trouble, float):
                    time.sleep(trouble)
                told = service.answer(self.command, self.path, dict(self.headers), body)
                if isinstance(trouble, tuple):
                    told = trouble[0], service.error(*trouble)
                status, document = told
                content = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.answer(status, content, {"Content-Type": "application/json"})

        self.server = HttpServer(Handler)

    @property
    def url(self) -> str:
        return self.server.url

    def close(self) -> None:
        self.server.close()
        assert not self.problems, self.problems

    def answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        raise NotImplementedError

    def error(self, status: int, code: str, message: str = "injected") -> Any:
        raise NotImplementedError


@dataclass
class FakeAwsSecrets(_Service):
    """values: by name; a value of bytes is a SecretBinary. policy: of the one session."""

    values: dict[str, str | bytes] = field(default_factory=dict)
    policy: str = '{"Statement":[]}'
    credential: ClassVar[dict[str, str]] = {
        "access_key_id": "ASIATESTTESTTESTTEST",
        "secret_access_key": "of-the-session",
        "token": "token-of-the-session",
    }

    def answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        told = {name.lower(): value for name, value in headers.items()}
        if (method, path) != ("POST", "/") or told.get("x-amz-target") != self._target():
            self.problems.append(f"{method} {path} {told.get('x-amz-target')}")
        if told.get("content-type") != f"application/x-amz-json-{self._json_version()}":
            self.problems.append(f"content-type {told.get('content-type')}")
        refused = self._unsigned(told, body)
        if refused is not None:
            return 400, self.error(400, refused)
        asked = json.loads(body)
        self.problems += problems_of(asked, model_of_get())
        name = asked["SecretId"]
        self.asked.append(name)
        arn = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}-AbCd12"
        request = IamRequest("secretsmanager:GetSecretValue", arn)
        if not Policy(json.loads(self.policy)).grant_of(request):
            return 400, self.error(400, "AccessDeniedException")
        if name not in self.values:
            return 400, self.error(400, "ResourceNotFoundException")
        value, told_of = self.values[name], {"ARN": arn, "Name": name}
        if isinstance(value, str):
            return 200, {**told_of, "SecretString": value}
        return 200, {**told_of, "SecretBinary": base64.b64encode(value).decode()}

    def error(self, status: int, code: str, message: str = "injected") -> Any:
        known = {shape.name for shape in model_of_get().error_shapes} | _COMMON_ERRORS
        assert code in known, code
        return {"__type": code, "message": message}

    @staticmethod
    def _target() -> str:
        return f"{model_of_get().service_model.metadata['targetPrefix']}.{model_of_get().name}"

    @staticmethod
    def _json_version() -> str:
        return str(model_of_get().service_model.metadata["jsonVersion"])

    def _unsigned(self, told: dict[str, str], body: bytes) -> str | None:
        found = _AUTHORIZATION.fullmatch(told.get("authorization", ""))
        if found is None or found[1] != self.credential["access_key_id"]:
            return "UnrecognizedClientException"
        if told.get("x-amz-security-token") != self.credential["token"]:
            return "UnrecognizedClientException"
        at = datetime.strptime(told["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs((datetime.now(UTC) - at).total_seconds()) > _SKEW_SECONDS_MAX:
            return "InvalidSignatureException"
        signed = {name: told[name] for name in found[4].split(";")}
        request = AWSRequest("POST", f"{self.url}/", headers=signed, data=body)
        request.context["timestamp"] = told["x-amz-date"]
        keys = Credentials(self.credential["access_key_id"], self.credential["secret_access_key"])
        signer = SigV4Auth(keys, "secretsmanager", found[3])
        text = signer.string_to_sign(request, signer.canonical_request(request))
        if signer.signature(text, request) != found[5] or found[3] != REGION:
            return "InvalidSignatureException"
        return None


@dataclass
class FakeGoogleSecrets(_Service):
    """values: by secret id; None: its newest version is disabled. allowed: the condition's."""

    values: dict[str, bytes | None] = field(default_factory=dict)
    allowed: str = f"projects/{NUMBER}/secrets/vision-"
    token: ClassVar[str] = "token-of-the-account"

    def answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        found = _ACCESS.fullmatch(path)
        if method != "GET" or found is None or body:
            self.problems.append(f"{method} {path} {body!r}")
            return 404, b"<html>not found</html>"
        told = {name.lower(): value for name, value in headers.items()}
        if told.get("authorization") != f"Bearer {self.token}":
            return 401, self.error(401, "UNAUTHENTICATED")
        project, secret = found.groups()
        self.asked.append(secret)
        named = f"projects/{NUMBER if project == PROJECT else project}/secrets/{secret}"
        if not named.startswith(self.allowed):
            return 403, self.error(403, "PERMISSION_DENIED", "(or it may not exist)")
        if secret not in self.values:
            return 404, self.error(404, "NOT_FOUND")
        value = self.values[secret]
        if value is None:
            return 400, self.error(400, "FAILED_PRECONDITION", "is in DISABLED state")
        payload = {"data": base64.b64encode(value).decode(), "dataCrc32c": "1"}
        return 200, {"name": f"{named}/versions/3", "payload": payload}

    def error(self, status: int, code: str, message: str = "injected") -> Any:
        return {"error": {"code": status, "message": message, "status": code}}
