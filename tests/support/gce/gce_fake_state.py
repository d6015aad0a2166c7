"""What the Compute Engine fake keeps: machines and operations, as proto-JSON shows them.

Lives here: the records and their JSON. Not here: what makes them (`gce_fake_engine`), the paths
(`gce_fake`), or the bill (`gce_fake_bill`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

PROJECT = "test-project"
OURS, SYSTEM = "lowtide@test-project.iam.gserviceaccount.com", "system"
_PACIFIC = timezone(timedelta(hours=-8))
_ORIGIN = "https://www.googleapis.com/compute/v1"


def shown(at: float) -> str:
    """An instant as the API shows it: milliseconds, with Google's own offset."""
    return datetime.fromtimestamp(at, UTC).astimezone(_PACIFIC).isoformat(timespec="milliseconds")


def rounded(at: float) -> float:
    """To the millisecond, which is all that the API shows."""
    return round(at, 3)


def url(*parts: str) -> str:
    """The full address of a resource of the project."""
    return "/".join((f"{_ORIGIN}/projects/{PROJECT}", *parts))


def last(path: str) -> str:
    """The last part of an address."""
    return path.rpartition("/")[2]


@dataclass
class Vm:
    """One machine, from its insert to its bill. Times are seconds since the epoch."""

    name: str
    zone: str
    machine_type: str
    body: dict[str, Any]
    number: int
    created_at: float
    status: str = "PROVISIONING"
    started_at: float | None = None
    stopped_at: float | None = None
    ended_at: float | None = None
    ended_by: str | None = None
    preempted_at: float | None = None
    hidden_looks: int = 0
    host: str | None = None

    def is_found(self) -> bool:
        """Whether a look finds it: a new machine may hide from some."""
        self.hidden_looks -= 1
        return self.hidden_looks < 0

    @property
    def model(self) -> str:
        """`SPOT` or `STANDARD`."""
        return str(self.body.get("scheduling", {}).get("provisioningModel", "STANDARD"))

    @property
    def link(self) -> str:
        """Its full address."""
        return url("zones", self.zone, "instances", self.name)

    @property
    def run_limit_seconds(self) -> int | None:
        """What `maxRunDuration` says."""
        limit = self.body.get("scheduling", {}).get("maxRunDuration")
        return None if limit is None else int(limit["seconds"])

    @property
    def notice_seconds(self) -> int:
        """What `preemptionNoticeDuration` was granted."""
        notice = self.body.get("scheduling", {}).get("preemptionNoticeDuration")
        return 0 if notice is None else int(notice["seconds"])

    def as_json(self) -> dict[str, Any]:
        """The Instance resource."""
        document = {
            **self.body,
            "id": str(self.number),
            "name": self.name,
            "zone": url("zones", self.zone),
            "machineType": url("zones", self.zone, "machineTypes", self.machine_type),
            "status": self.status,
            "creationTimestamp": shown(self.created_at),
            "selfLink": self.link,
        }
        if self.started_at is not None:
            document["lastStartTimestamp"] = shown(self.started_at)
        if self.stopped_at is not None:
            document["lastStopTimestamp"] = shown(self.stopped_at)
        if self.host is not None:
            document["resourceStatus"] = {"physicalHost": self.host}
        return document


@dataclass
class Operation:
    """Work under way or done; `scope` is `zones/z` or `regions/r`."""

    name: str
    scope: str
    kind: str
    target_link: str
    user: str
    inserted_at: float
    due_at: float
    finish: Callable[[Operation, float], None]
    number: int
    done: bool = False
    ended_at: float | None = None
    errors: list[tuple[str, str]] = field(default_factory=list)
    http_status: int | None = None
    group: str = ""
    locations: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The Operation resource."""
        kind, place = self.scope.split("/")
        document: dict[str, Any] = {
            "kind": "compute#operation",
            "id": str(self.number),
            "name": self.name,
            "operationType": self.kind,
            "targetLink": self.target_link,
            "user": self.user,
            "status": "DONE" if self.done else "RUNNING",
            "progress": 100 if self.done else 0,
            "insertTime": shown(self.inserted_at),
            "startTime": shown(self.inserted_at),
            kind[:-1]: url(kind, place),
            "selfLink": url(self.scope, "operations", self.name),
        }
        if self.ended_at is not None:
            document["endTime"] = shown(self.ended_at)
        if self.group:
            document["operationGroupId"] = self.group
        if self.locations:
            document["instancesBulkInsertOperationMetadata"] = {"perLocationStatus": self.locations}
        if self.done and self.errors:
            document["error"] = {
                "errors": [{"code": code, "message": text} for code, text in self.errors]
            }
            document["httpErrorStatusCode"] = self.http_status
            document["httpErrorMessage"] = "ERROR"
        return document


def matches(document: dict[str, Any], filter_text: str) -> bool:
    """The part of the filter language that is used: `eq` with a whole-field regular expression
    alone, or terms with `=`, `>`, `:*` joined by AND and OR in parentheses.
    """
    text = filter_text.strip()
    if not text:
        return True
    regex = re.fullmatch(r"(\S+) eq \"(.*)\"", text)
    if regex:
        return re.fullmatch(regex[2], str(_value(document, regex[1]) or "")) is not None
    if " OR " in text and not text.startswith("("):
        raise ValueError(f"a filter that the fake does not know: {text}")
    if text.startswith("("):
        groups = re.findall(r"\(([^()]*)\)", text)
        joined = re.sub(r"\([^()]*\)", "?", text)
        results = [matches(document, group) for group in groups]
        if re.fullmatch(r"\?( OR \?)*", joined):
            return any(results)
        if re.fullmatch(r"\?(( AND)? \?)*", joined):
            return all(results)
        raise ValueError(f"a filter that the fake does not know: {text}")
    term = re.fullmatch(r"([\w.-]+)\s*(=|>=|>|:)\s*\"?([^\"]*)\"?", text)
    if term is None:
        raise ValueError(f"a filter that the fake does not know: {text}")
    found = _value(document, term[1])
    if term[2] == ":":
        return found is not None
    if term[2] == "=":
        return str(found) == term[3]
    later = datetime.fromisoformat(str(found)) if found else None
    wanted = datetime.fromisoformat(term[3])
    return later is not None and (later > wanted or (term[2] == ">=" and later == wanted))


def _value(document: dict[str, Any], path: str) -> Any:
    found: Any = document
    for part in path.split(".", 1) if path.startswith("labels.") else path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
