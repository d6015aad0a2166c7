"""An S3 and an STS that evaluate who may do what, as AWS documents it.

A session may do what its role's policy and its own both allow (IAM user guide, "Session policies").
Keys that have run out are refused with ExpiredToken, unknown ones with InvalidAccessKeyId (S3 API
reference, "Error responses"), and a missing object with 403 where the caller may not list the
bucket (GetObject, "Permissions"; no right to list some folders is taken for that). Everything else
is moto's. Not here: reading policies (`iam_policy`), or steering (`object_store_fakes`).
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.aws.aws_fake_http import Answer
from tests.support.aws.aws_parts import ENVIRONMENT
from tests.support.aws.iam_policy import IamRequest, Policy, shipped_policy
from tests.support.object_stores.object_store_fakes import S3Fake

ACCOUNT = "123456789012"
DATA_ROLE = f"arn:aws:iam::{ACCOUNT}:role/lowtide-job-data"
CONTROL_KEY, MACHINE_KEY = "test", "ASIAROLE"
_POLICY_MAX, _NAME_MAX = 2_048, 64
_SKEW_SECONDS_MAX = 900.0
_SECONDS = range(900, 3_601)  # AssumeRole, DurationSeconds; an hour at most for chained roles


@dataclass
class Session:
    """Keys that somebody has. narrowed: the session's own policy. until: of time.monotonic."""

    policy: Policy
    narrowed: Policy | None = None
    token: str | None = None
    until: float = float("inf")
    since: float = 0.0
    name: str = ""

    def allows(self, request: IamRequest) -> bool:
        policies = [self.policy] if self.narrowed is None else [self.policy, self.narrowed]
        return all(one.grant_of(request) for one in policies)


class ScopedS3(S3Fake):
    """One bucket. lifetime: seconds that a session really lasts, whatever was asked for.

    trouble: an answer to AssumeRole in place of its own, (code, status), `hang` or `garbage`.
    decided: every decision, (session's name, action, key or prefix, allowed). ahead_seconds: how
    far S3's clock is ahead; it refuses what was signed 15 minutes from its own time
    (RequestTimeTooSkewed, S3 API reference, "Error responses").
    """

    def __init__(self, bucket: str = "lowtide-test", deployment: str = "*") -> None:
        self.sessions: dict[str, Session] = {}
        self.lifetime: float | None = None
        self.trouble: tuple[str, int] | None = None
        self.hides_missing = True
        self.ahead_seconds = 0.0
        self.assumed: list[dict[str, str]] = []
        self.decided: list[tuple[str, str, str, bool]] = []
        self._sessions_lock = threading.Lock()
        super().__init__(bucket)
        named = {"bucket": bucket, "deployment": deployment}
        self._data = Policy(shipped_policy("data-policy.json", **named))
        control = Policy(shipped_policy("control-plane-policy.json", **named))
        for key in (CONTROL_KEY, ENVIRONMENT["AWS_ACCESS_KEY_ID"]):
            self.sessions[key] = Session(control, name="control plane")
        self.sessions[MACHINE_KEY] = Session(Policy({"Statement": []}), name="machine role")

    def answer(
        self, region: str, service: str, method: str, path: str, headers: Any, body: bytes
    ) -> Answer:
        if service == "sts":
            return self.assume(headers, dict(parse_qsl(body.decode())))
        found = self._signed_by(headers)
        if isinstance(found, tuple):
            return found
        request = request_of(self.bucket, method, path, headers)
        allowed = found.allows(request)
        told = request.context.get("s3:prefix", request.resource.partition("/")[2])
        self.decided.append((found.name, request.action, told, allowed))
        if not allowed:
            return _s3_error("AccessDenied", 403)
        answered = super().answer(region, service, method, path, headers, body)
        if answered[0] == 404 and self.hides_missing and request.action == "s3:GetObject":
            lists = IamRequest("s3:ListBucket", f"arn:aws:s3:::{self.bucket}")
            if not found.allows(lists):
                return _s3_error("AccessDenied", 403)
        return answered

    def _signed_by(self, headers: Any) -> Session | Answer:
        told = {str(name).lower(): str(value) for name, value in dict(headers).items()}
        key = told.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        session = self.sessions.get(key)
        if session is None:
            return _s3_error("InvalidAccessKeyId", 403)
        if session.token != told.get("x-amz-security-token") and session.token is not None:
            return _s3_error("InvalidToken", 400)
        if self.ahead_seconds > _SKEW_SECONDS_MAX:
            return _s3_error("RequestTimeTooSkewed", 403)
        if time.monotonic() < session.since:
            return _s3_error("InvalidToken", 400)
        if time.monotonic() >= session.until:
            return _s3_error("ExpiredToken", 400)
        return session

    def assume(self, headers: Any, form: dict[str, str]) -> Answer:
        """`sts:AssumeRole`; nothing else is asked of STS here."""
        trouble = self.trouble
        if trouble is not None:
            if trouble[0] == "hang":
                time.sleep(trouble[1])
            elif trouble[0] == "garbage":
                return 200, {"Content-Type": "text/html"}, b"<html>a proxy's page</html>"
            else:
                return _sts_error(trouble[0], trouble[1])
        assert form["Action"] == "AssumeRole", form
        caller = self._signed_by(headers)
        wanted = IamRequest("sts:AssumeRole", form["RoleArn"])
        # The role trusts the account, so that a policy of the caller's must allow it.
        if isinstance(caller, tuple) or form["RoleArn"] != DATA_ROLE or not caller.allows(wanted):
            return _sts_error("AccessDenied", 403)
        policy = form.get("Policy", "")
        seconds = int(form.get("DurationSeconds", "3600"))
        if len(policy) > _POLICY_MAX or seconds not in _SECONDS:
            return _sts_error("ValidationError", 400)
        if len(form["RoleSessionName"]) > _NAME_MAX or not policy.isascii():
            return _sts_error("ValidationError", 400)
        try:
            narrowed = Policy(json.loads(policy))
        except (ValueError, KeyError):
            return _sts_error("MalformedPolicyDocument", 400)
        with self._sessions_lock:
            self.assumed.append(form)
            key, token = f"ASIA{secrets.token_hex(8).upper()}", secrets.token_urlsafe(40)
            until = time.monotonic() + (seconds if self.lifetime is None else self.lifetime)
            name = form["RoleSessionName"]
            self.sessions[key] = Session(self._data, narrowed, token, until, name=name)
        told = {
            "AccessKeyId": key,
            "SecretAccessKey": secrets.token_urlsafe(30),
            "SessionToken": token,
            "Expiration": "2099-01-01T00:00:00Z",
        }
        fields = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in told.items())
        text = (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<AssumeRoleResult><Credentials>{fields}</Credentials></AssumeRoleResult>"
            "</AssumeRoleResponse>"
        )
        return 200, {"Content-Type": "text/xml"}, text.encode()

    def expire(self, but: Callable[[Session], bool] = lambda one: one.narrowed is None) -> None:
        """Every session ends now, but those of the shipped keys."""
        for one in self.sessions.values():
            if not but(one):
                one.until = 0.0


def request_of(bucket: str, method: str, address: str, headers: Any) -> IamRequest:
    """What S3 asks IAM for a request. Source: S3's API reference, "Permissions" of each one.

    The header If-None-Match is the key s3:if-none-match of s3:PutObject, and where it may stand
    s3:ObjectCreationOperation is true: with PutObject and CompleteMultipartUpload, not with the
    parts (S3 user guide, "Enforce conditional writes"; Service Authorization Reference, S3).
    """
    parts = urlsplit(address)
    query = parse_qs(parts.query, keep_blank_values=True)
    key = unquote(parts.path).lstrip("/").partition("/")[2]
    if not key and method != "POST":
        prefix = query.get("prefix")
        context = {} if prefix is None else {"s3:prefix": prefix[0]}
        return IamRequest("s3:ListBucket", f"arn:aws:s3:::{bucket}", context, address)
    action = {
        "GET": "s3:GetObject",
        "HEAD": "s3:GetObject",
        "PUT": "s3:PutObject",
        "POST": "s3:PutObject" if key else "s3:DeleteObject",
        "DELETE": "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject",
    }[method]
    context = {}
    if action == "s3:PutObject":
        in_parts = "uploads" in query or "partNumber" in query
        context["s3:ObjectCreationOperation"] = str(not in_parts).lower()
        told = {str(name).lower(): str(value) for name, value in dict(headers).items()}
        if "if-none-match" in told:
            context["s3:if-none-match"] = told["if-none-match"]
    resource = f"arn:aws:s3:::{bucket}/{key or 'any'}"
    return IamRequest(action, resource, context, f"{method} {address}")


def _s3_error(code: str, status: int) -> Answer:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>"
    return status, {"Content-Type": "application/xml"}, text.encode()


def _sts_error(code: str, status: int) -> Answer:
    text = (
        '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>'
        f"<Type>Sender</Type><Code>{code}</Code><Message>injected</Message></Error></ErrorResponse>"
    )
    return status, {"Content-Type": "text/xml"}, text.encode()
