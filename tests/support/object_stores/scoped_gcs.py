"""A Cloud Storage, IAM Credentials API and Security Token Service that evaluate who may do what.

A narrowed token may do what its account's roles and the boundary's rules both allow; of several
rules one must (IAM, "Restrict a credential's Cloud Storage permissions"). To replace an object
needs `storage.objects.delete` ("IAM permissions for XML methods"). Expressions other than those of
the first page are refused. Not here: the store itself (`object_store_fakes`).
"""

from __future__ import annotations

import json
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.aws.aws_fake_http import Answer
from tests.support.object_stores.object_store_fakes import GcsFake

DATA_ACCOUNT = "lowtide-job-data@test-project.iam.gserviceaccount.com"
SECRET_ACCOUNT = "vision-secrets@test-project.iam.gserviceaccount.com"
CONTROL_TOKEN, MACHINE_TOKEN = "test", "of-the-machine"
_CREATES = {"storage.objects.create", "storage.multipartUploads.create",
            "storage.multipartUploads.abort"}  # fmt: skip
ROLES = {
    "roles/storage.objectViewer": {"storage.objects.get", "storage.objects.list"},
    "roles/storage.objectCreator": _CREATES,
    "roles/storage.objectUser": _CREATES
    | {"storage.objects.get", "storage.objects.list", "storage.objects.delete"},
}
"""IAM roles for Cloud Storage, as far as they are used here."""
_RULES_MAX, _EXPRESSION_MAX, _SECONDS_MAX = 10, 2_048, 3_600
_NAME = re.compile(r"resource\.name\.startsWith\('([^'\\]*)'\)")
_LISTED = re.compile(
    r"api\.getAttribute\('storage\.googleapis\.com/objectListPrefix', ''\)"
    r"\.startsWith\('([^'\\]*)'\)"
)
_IMPERSONATE = re.compile(r"/v1/projects/-/serviceAccounts/([^:]+):generateAccessToken")


@dataclass
class Token:
    """Who has it, what its account may do on the bucket, and the rules that narrow it."""

    name: str
    permissions: set[str]
    rules: list[dict[str, Any]] | None = None
    until: float = float("inf")
    impersonates: set[str] = field(default_factory=set)


class ScopedGcs(GcsFake):
    """One bucket. lifetime: seconds that a narrowed token really lasts.

    lifetimes: asked of generateAccessToken. trouble: an answer to either call for a token, (status,
    body), or None. since: narrowed tokens
    count only from this instant of time.monotonic on.
    """

    def __init__(self, bucket: str = "lowtide-test") -> None:
        user = ROLES["roles/storage.objectUser"]
        self.tokens = {
            CONTROL_TOKEN: Token(
                "control plane", user, impersonates={DATA_ACCOUNT, SECRET_ACCOUNT}
            ),
            MACHINE_TOKEN: Token("machine role", set()),
        }
        self.lifetime: float | None = None
        self.trouble: tuple[int, bytes] | None = None
        self.since = 0.0
        self.exchanged: list[dict[str, Any]] = []
        self.lifetimes: list[str] = []
        self.decided: list[tuple[str, str, str, bool]] = []
        super().__init__(bucket)

    def serve(self, method: str, path: str, headers: Any, body: bytes) -> Answer:
        where = urlsplit(path).path
        impersonated = _IMPERSONATE.fullmatch(unquote(where))
        if impersonated is not None or where == "/v1/token":
            if self.trouble is not None:
                return self.trouble[0], {}, self.trouble[1]
            if impersonated is not None:
                return self._impersonate(impersonated[1], headers, json.loads(body))
            return self._exchange(parse_qs(body.decode()))
        token = self.tokens.get(headers.get("Authorization", "").removeprefix("Bearer "))
        narrowed = token is not None and token.rules is not None
        if token is None or time.monotonic() >= token.until:
            return 401, {}, b"<Error><Code>AuthenticationRequired</Code></Error>"
        if narrowed and time.monotonic() < self.since:
            return 401, {}, b"<Error><Code>AuthenticationRequired</Code></Error>"
        for permission, resource, prefix in self._needed(method, path, headers):
            allowed = may(token, permission, resource, prefix)
            self.decided.append((token.name, permission, prefix or resource, allowed))
            if not allowed:
                return 403, {}, b"<Error><Code>AccessDenied</Code></Error>"
        answered = super().serve(method, path, headers, body)
        bucket = f"projects/_/buckets/{self.bucket}"
        if answered[0] == 404 and not may(token, "storage.objects.list", bucket, ""):
            return 403, {}, b"<Error><Code>AccessDenied</Code></Error>"
        return answered

    def _needed(self, method: str, path: str, headers: Any) -> list[tuple[str, str, str]]:
        parts = urlsplit(path)
        query = parse_qs(parts.query, keep_blank_values=True)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        if not key:
            listed = query.get("prefix", [""])[0]
            return [("storage.objects.list", f"projects/_/buckets/{bucket}", listed)]
        resource = f"projects/_/buckets/{bucket}/objects/{key}"
        if method in ("GET", "HEAD"):
            return [("storage.objects.get", resource, "")]
        if method == "DELETE":
            verb = "multipartUploads.abort" if "uploadId" in query else "objects.delete"
            return [(f"storage.{verb}", resource, "")]
        found = [("storage.objects.create", resource, "")]
        if "uploads" in query:
            found.append(("storage.multipartUploads.create", resource, ""))
        new_only = headers.get("x-goog-if-generation-match") == "0"
        if key in self.objects and not new_only and "partNumber" not in query:
            found.append(("storage.objects.delete", resource, ""))
        return found

    def _impersonate(self, account: str, headers: Any, asked: dict[str, Any]) -> Answer:
        caller = self.tokens.get(headers.get("Authorization", "").removeprefix("Bearer "))
        if caller is None and headers.get("Authorization") is None:
            caller = self.tokens[CONTROL_TOKEN]  # a client without credentials is the test's own
        if caller is None or account not in caller.impersonates:
            return 403, {}, b'{"error": {"message": "iam.serviceAccounts.getAccessToken denied"}}'
        seconds = int(str(asked["lifetime"]).removesuffix("s"))
        if not 0 < seconds <= _SECONDS_MAX or not asked["scope"]:
            return 400, {}, b'{"error": {"message": "lifetime"}}'
        self.lifetimes.append(asked["lifetime"])
        name = secrets.token_urlsafe(30)
        user = set(ROLES["roles/storage.objectUser"])
        self.tokens[name] = Token(account, user if account == DATA_ACCOUNT else set())
        told = {"accessToken": name, "expireTime": "2099-01-01T00:00:00Z"}
        return 200, {"Content-Type": "application/json"}, json.dumps(told).encode()

    def _exchange(self, form: dict[str, list[str]]) -> Answer:
        told = {name: values[0] for name, values in form.items()}
        wide = self.tokens.get(told["subject_token"])
        options = json.loads(unquote(told["options"]))
        rules = options["accessBoundary"]["accessBoundaryRules"]
        grant = "urn:ietf:params:oauth:grant-type:token-exchange"
        if wide is None or wide.rules is not None or told["grant_type"] != grant:
            return 400, {}, b'{"error": "invalid_grant"}'
        if not 0 < len(rules) <= _RULES_MAX or not all(map(_is_known, rules)):
            return 400, {}, b'{"error": "invalid_request", "error_description": "boundary"}'
        self.exchanged.append(options)
        name = secrets.token_urlsafe(30)
        seconds = 3_600 if self.lifetime is None else self.lifetime
        until = time.monotonic() + seconds
        self.tokens[name] = Token(f"job {len(self.exchanged)}", wide.permissions, rules, until)
        answer = {"access_token": name, "token_type": "Bearer", "expires_in": 3_600}
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    def expire(self) -> None:
        """Every narrowed token ends now."""
        for one in self.tokens.values():
            if one.rules is not None:
                one.until = 0.0


def may(token: Token, permission: str, resource: str, list_prefix: str) -> bool:
    """Whether a token has a permission on a resource; list_prefix: what a list asks for."""
    if permission not in token.permissions:
        return False
    return token.rules is None or any(
        resource.startswith(_place(rule))
        and permission in ROLES[rule["availablePermissions"][0].removeprefix("inRole:")]
        and _holds(rule.get("availabilityCondition", {}).get("expression"), resource, list_prefix)
        for rule in token.rules
    )


def _holds(expression: str | None, resource: str, list_prefix: str) -> bool:
    if expression is None:
        return True
    for term in expression.split(" || "):
        named, listed = _NAME.fullmatch(term), _LISTED.fullmatch(term)
        if named is not None and resource.startswith(named[1]):
            return True
        if listed is not None and list_prefix.startswith(listed[1]):
            return True
    return False


def _place(rule: dict[str, Any]) -> str:
    return str(rule["availableResource"]).removeprefix("//storage.googleapis.com/")


def _is_known(rule: dict[str, Any]) -> bool:
    expression = rule.get("availabilityCondition", {}).get("expression", "")
    roles = [one.removeprefix("inRole:") for one in rule["availablePermissions"]]
    terms = expression.split(" || ") if expression else []
    known = all(_NAME.fullmatch(one) or _LISTED.fullmatch(one) for one in terms)
    place = re.fullmatch(r"projects/_/buckets/[a-z0-9._-]+", _place(rule))
    return (
        len(expression) <= _EXPRESSION_MAX
        and known
        and place is not None
        and len(roles) == 1
        and set(roles) <= set(ROLES)
    )
