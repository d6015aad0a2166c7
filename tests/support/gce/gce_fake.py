"""Compute Engine over HTTP on loopback, as the real REST client asks it.

Lives here: paths, paging, and faults of the line: errors, hangs, lost replies. Not here: what
machines do (`gce_fake_engine`), prices (`gce_fake_prices`), or buckets (`gcs_fake`).
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.gce.gce_fake_engine import Engine, World
from tests.support.gce.gce_fake_prices import FakePrices
from tests.support.gce.gce_fake_requests import ApiError, check_policy
from tests.support.gce.gce_fake_state import PROJECT, Operation, last, matches, url
from tests.support.gce.gce_fake_token import PATH as TOKEN_PATH
from tests.support.gce.gce_fake_token import answer_token, is_accepted
from tests.support.servers.http_server import HttpServer, QuietHandler

ZONES = {
    "us-central1": ("us-central1-a", "us-central1-b", "us-central1-c"),
    "europe-west4": ("europe-west4-a", "europe-west4-b"),
}
MACHINE_TYPES = ("a2-highgpu-1g", "a3-highgpu-8g", "g2-standard-8")
_PREFIX = rf"/compute/v1/projects/{PROJECT}"


@dataclass
class LineFault:
    """What happens to the next `times` requests whose `METHOD path` matches the expression.

    status 0 drops the connection: after the work when `after` is set, before it otherwise.
    body: what answers instead, with HTTP 200: HTML of a proxy between, or CUT for the first half of
    the true document. skip: so many matching requests are left alone first.
    """

    expression: str
    times: int = 1
    status: int = 0
    reason: str = "backendError"
    message: str = "scripted"
    after: bool = False
    hang_seconds: float = 0.0
    body: str = ""
    skip: int = 0
    details: tuple[Any, ...] = ()


CUT = "cut"
"""The body of an answer whose second half was lost."""

LOGIN_PAGE = "<html><head><title>Sign in</title></head><body>Sign in to go on</body></html>"
"""What a captive proxy answers, with HTTP 200."""


@dataclass(frozen=True)
class Unreadable:
    """An answer with HTTP 200 that is no JSON document, or not all of one."""

    text: str


class Dropped(Exception):
    """The connection ends without an answer."""


def _request_id(query: dict[str, str]) -> str:
    return query.get("requestId", "")


class FakeGce:
    """The server. `requests` holds `METHOD path?query` of every request, `bodies` what was posted
    to which path; `page_size` the pages.

    documents: what further paths answer to a GET, for resources that nothing happens to.
    unreachable_zones: lists go on without them and say so. dead_zones: every call for them fails,
    and with them every aggregated list (its REST reference, `returnPartialSuccess`).
    """

    def __init__(self, world: World | None = None) -> None:
        self.engine = Engine(world or World(dict(ZONES), MACHINE_TYPES))
        self.prices = FakePrices()
        self.faults: list[LineFault] = []
        self.requests: list[str] = []
        self.tokens: Any = None
        """What makes tokens of accounts and narrows them (method, path, headers, body)."""
        self.bodies: list[tuple[str, Any]] = []
        self.page_size = 500
        self.documents: dict[str, Any] = {}
        self.unreachable_zones: set[str] = set()
        self.dead_zones: set[str] = set()
        self.withheld: set[str] = set()
        """Permissions that the caller lacks."""
        self.ahead_seconds = 0
        """How far Google's clock is ahead of this machine's."""
        self._meeting: tuple[str, threading.Barrier] | None = None
        self._stopping = threading.Event()
        self._server = HttpServer(self._handler())

    @property
    def endpoint(self) -> str:
        """What the client is told instead of Google's address."""
        return self._server.url

    def stop(self) -> None:
        """Close it; hanging requests end."""
        self._stopping.set()
        self._server.close()

    def calls(self, expression: str) -> list[str]:
        """The requests that match."""
        return [one for one in self.requests if re.search(expression, one)]

    def meet(self, expression: str, count: int) -> threading.Barrier:
        """Let requests that match wait for each other: the barrier breaks where fewer come."""
        barrier = threading.Barrier(count, timeout=5.0)
        self._meeting = (expression, barrier)
        return barrier

    def unmeet(self) -> None:
        """Requests wait no more."""
        self._meeting = None

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """The document that answers; ApiError or Dropped for all else."""
        if self._meeting is not None and re.search(self._meeting[0], f"{method} {path}"):
            with suppress(threading.BrokenBarrierError):
                self._meeting[1].wait()
        fault = self._due_fault(method, path)
        if fault is not None:
            fault.times -= 1
            self._stopping.wait(fault.hang_seconds)
            if not fault.after and fault.status:
                raise ApiError(fault.status, fault.reason, fault.message, details=fault.details)
            if not fault.after and fault.body not in ("", CUT):
                return Unreadable(fault.body)
            if not fault.after and not fault.hang_seconds and not fault.body:
                raise Dropped
        dead = re.search(r"/zones/([^/]+)", path)
        if self.dead_zones and ("/aggregated/" in path or (dead and dead[1] in self.dead_zones)):
            raise ApiError(503, "backendError", "Backend Error")
        with self.engine.lock:
            self.engine.settle()
            document = self._route(method, path, query, body)
        if fault is not None and fault.body:
            whole = json.dumps(document)
            return Unreadable(whole[: len(whole) // 2] if fault.body == CUT else fault.body)
        if fault is not None and fault.after:
            raise Dropped
        return document

    def _due_fault(self, method: str, path: str) -> LineFault | None:
        """The first that matches and has nothing to leave alone any more."""
        for one in self.faults:
            if one.times and re.search(one.expression, f"{method} {path}"):
                if not one.skip:
                    return one
                one.skip -= 1
        return None

    def _route(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if method == "GET" and path in self.documents:
            return {"kind": "compute#resource", **self.documents[path]}
        for wanted, expression, found in self._routes():
            match = re.fullmatch(expression, path)
            if wanted == method and match:
                result = found(query, body, *match.groups())
                return result.as_json() if isinstance(result, Operation) else result
        raise ApiError(404, "notFound", f"{method} {path} is no path of the fake")

    def _routes(self) -> Iterator[tuple[str, str, Any]]:
        engine = self.engine
        zone, region, one = r"/zones/([^/]+)", r"/regions/([^/]+)", r"/([^/]+)"
        yield (
            "POST",
            rf"{_PREFIX}{zone}/instances",
            lambda q, b, z: engine.insert(z, b, _request_id(q)),
        )
        yield (
            "POST",
            rf"{_PREFIX}{region}/instances/bulkInsert",
            lambda q, b, r: engine.bulk_insert(r, b, _request_id(q)),
        )
        yield "DELETE", rf"{_PREFIX}{zone}/instances{one}", lambda q, b, z, n: engine.delete(z, n)
        yield "GET", rf"{_PREFIX}{zone}/instances{one}", lambda q, b, z, n: self._instance(z, n)
        yield "GET", rf"{_PREFIX}/aggregated/instances", lambda q, b: self._instances(q)
        yield "GET", rf"{_PREFIX}{zone}/instances", lambda q, b, z: self._instances(q, z)
        yield "GET", rf"{_PREFIX}{zone}/machineTypes", lambda q, b, z: self._machine_types(q, z)
        yield (
            "GET",
            rf"{_PREFIX}{zone}/acceleratorTypes",
            lambda q, b, z: self._accelerator_types(q, z),
        )
        yield "GET", rf"{_PREFIX}{zone}/disks", lambda q, b, z: self._disks(q, z)
        yield "GET", rf"{_PREFIX}/aggregated/operations", lambda q, b: self._operations(q)
        yield "GET", rf"{_PREFIX}/aggregated/machineTypes", lambda q, b: self._machine_types(q)
        yield (
            "GET",
            rf"{_PREFIX}/aggregated/acceleratorTypes",
            lambda q, b: self._accelerator_types(q),
        )
        yield (
            "GET",
            rf"{_PREFIX}/zones",
            lambda q, b: {
                "kind": "compute#zoneList",
                "items": [{"name": one} for zones in engine.world.zones.values() for one in zones],
            },
        )
        yield "GET", rf"{_PREFIX}{zone}/operations", lambda q, b, z: self._operations_of(z, q)
        yield (
            "GET",
            rf"{_PREFIX}/(?:zones|regions){one}/operations{one}",
            lambda q, b, s, n: self._operation(n),
        )
        yield (
            "POST",
            rf"{_PREFIX}/(?:zones|regions){one}/operations{one}/wait",
            lambda q, b, s, n: self._operation(n),
        )
        yield "GET", rf"{_PREFIX}/aggregated/disks", lambda q, b: self._disks(q)
        yield (
            "DELETE",
            rf"{_PREFIX}{zone}/disks{one}",
            lambda q, b, z, n: engine.delete_disk(z, n),
        )
        yield "GET", rf"{_PREFIX}{region}/resourcePolicies", lambda q, b, r: self._policies(r, q)
        yield "POST", rf"{_PREFIX}{region}/resourcePolicies", self._add_policy
        yield "DELETE", rf"{_PREFIX}{region}/resourcePolicies{one}", self._remove_policy
        yield (
            "POST",
            rf"{_PREFIX}{region}/advice/capacityHistory",
            lambda q, b, r: self.prices.capacity_history(r, b),
        )
        # Resource Manager API and IAM API: the permissions asked about that the caller has.
        yield "POST", r"/v1/projects/[^:]+:testIamPermissions", self._test_permissions
        yield "GET", r"/v1/services/([^/]+)/skus", lambda q, b, s: self.prices.skus(s, q)

    def _test_permissions(self, query: dict[str, str], body: Any) -> Any:
        """An empty list is left out of the answer, as Google's JSON does."""
        has = [one for one in body["permissions"] if one not in self.withheld]
        return {"permissions": has} if has else {}

    def _instance(self, zone: str, name: str) -> Any:
        vm = self.engine.live.get((zone, name))
        if vm is None or not vm.is_found():
            raise ApiError(404, "notFound", f"The resource '{name}' was not found")
        return vm.as_json()

    def _operation(self, name: str) -> Operation:
        operation = self.engine.operations.get(name)
        if operation is None:
            raise ApiError(404, "notFound", f"The resource 'operations/{name}' was not found")
        return operation

    def _instances(self, query: dict[str, str], zone: str = "") -> Any:
        there = [vm for vm in self.engine.live.values() if vm.is_found()]
        live = sorted(there, key=lambda vm: (vm.zone, vm.name))
        rows = [(f"zones/{vm.zone}", vm.as_json()) for vm in live]
        return self._page("instances", rows, query, zone)

    def _operations(self, query: dict[str, str]) -> Any:
        newest = sorted(self.engine.operations.values(), key=lambda one: -one.inserted_at)
        return self._page("operations", [(one.scope, one.as_json()) for one in newest], query)

    def _operations_of(self, zone: str, query: dict[str, str]) -> Any:
        self.engine.world.region_of(zone)
        order = query.get("orderBy", "name")
        assert order in ("name", "creationTimestamp desc"), "there is no other"
        newest = sorted(self.engine.operations.values(), key=lambda one: -one.inserted_at)
        shown = [one.as_json() for one in newest if one.scope == f"zones/{zone}"]
        rows = [one for one in shown if matches(one, query.get("filter", ""))]
        start = int(query.get("pageToken", 0))
        size = min(int(query.get("maxResults", 500)), self.page_size)
        more = {"nextPageToken": str(start + size)} if start + size < len(rows) else {}
        return {"kind": "compute#operationList", "items": rows[start : start + size], **more}

    def _accelerator_types(self, query: dict[str, str], zone: str = "") -> Any:
        has = self.engine.world.accelerators
        rows = [(f"zones/{place}", {"name": name}) for place, name in has]
        return self._page("acceleratorTypes", rows, query, zone)

    def _machine_types(self, query: dict[str, str], zone: str = "") -> Any:
        world = self.engine.world
        rows = [
            (f"zones/{place}", {"name": name, "zone": place})
            for zones in world.zones.values()
            for place in zones
            for name in world.machine_types
        ]
        return self._page("machineTypes", rows, query, zone)

    def _page(
        self, noun: str, rows: list[tuple[str, Any]], query: dict[str, str], zone: str = ""
    ) -> Any:
        """One page of a zone's list, or of an aggregated one, which names empty zones too."""
        wanted = query.get("filter", "")
        rows = [
            row
            for row in rows
            if matches(row[1], wanted) and row[0].partition("/")[2] not in self.unreachable_zones
        ]
        start, size = (
            int(query.get("pageToken", 0)),
            min(int(query.get("maxResults", 500)), self.page_size),
        )
        if zone:
            return self._zone_page(noun, [row for at, row in rows if last(at) == zone], start, size)
        items: dict[str, Any] = {
            f"zones/{zone}": {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "none"}}
            for zones in self.engine.world.zones.values()
            for zone in zones
        }
        for scope, document in rows[start : start + size]:
            held = items.setdefault(scope, {})
            held.pop("warning", None)
            held.setdefault(noun, []).append(document)
        for zone in self.unreachable_zones:
            items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": "no answer"}}
        page: dict[str, Any] = {"kind": f"compute#{noun}AggregatedList", "items": items}
        if start + size < len(rows):
            page["nextPageToken"] = str(start + size)
        if self.unreachable_zones:
            page["unreachables"] = [f"zones/{zone}" for zone in sorted(self.unreachable_zones)]
        return page

    def _zone_page(self, noun: str, rows: list[Any], start: int, size: int) -> Any:
        page: dict[str, Any] = {"kind": f"compute#{noun}List", "items": rows[start : start + size]}
        if start + size < len(rows):
            page["nextPageToken"] = str(start + size)
        return page

    def _disks(self, query: dict[str, str], zone: str = "") -> Any:
        shown = [
            (f"zones/{place}", {key: value for key, value in disk.items() if key != "autoDelete"})
            for (place, _), disk in sorted(self.engine.disks.items())
        ]
        return self._page("disks", shown, query, zone)

    def _policies(self, region: str, query: dict[str, str]) -> Any:
        found = [p for (r, _), p in sorted(self.engine.policies.items()) if r == region]
        found = [one for one in found if matches(one, query.get("filter", ""))]
        return {"kind": "compute#resourcePolicyList", "items": found}

    def _add_policy(self, query: dict[str, str], body: Any, region: str) -> Operation:
        check_policy(body)
        if not self.engine.world.compact_supported:
            raise ApiError(
                400, "invalid", "Invalid value for field 'resource.groupPlacementPolicy'"
            )
        if (region, body["name"]) in self.engine.policies:
            raise ApiError(409, "alreadyExists", f"The resource '{body['name']}' already exists")
        link = url("regions", region, "resourcePolicies", body["name"])
        self.engine.policies[region, body["name"]] = {**body, "selfLink": link}
        return self.engine._operation(f"regions/{region}", "insert", link, "")

    def _remove_policy(self, query: dict[str, str], body: Any, region: str, name: str) -> Operation:
        used = any(
            last(path) == name
            for vm in self.engine.live.values()
            for path in vm.body.get("resourcePolicies", [])
        )
        if used:
            raise ApiError(400, "resourceInUseByAnotherResource", f"'{name}' is being used")
        if self.engine.policies.pop((region, name), None) is None:
            raise ApiError(404, "notFound", f"The resource '{name}' was not found")
        link = url("regions", region, "resourcePolicies", name)
        return self.engine._operation(f"regions/{region}", "delete", link, "")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(QuietHandler):
            def serve(self) -> None:
                raw = self.body()
                target = urlsplit(self.path)
                fake.requests.append(f"{self.command} {unquote(self.path)}")
                query = {key: values[-1] for key, values in parse_qs(target.query).items()}
                narrows = target.path == "/v1/token" or ":generateAccessToken" in target.path
                if fake.tokens is not None and narrows:
                    status, _, content = fake.tokens(self.command, self.path, self.headers, raw)
                    self._send(status, json.loads(content))
                    return
                if target.path == TOKEN_PATH:
                    self._send(*answer_token(raw, fake.engine.now()))
                    return
                try:
                    body = json.loads(raw) if raw else None
                    if body is not None:
                        fake.bodies.append((target.path, body))
                    if not is_accepted(self.headers.get("Authorization"), fake.engine.now()):
                        text = "Request had invalid authentication credentials."
                        raise ApiError(401, "authError", text)
                    document = fake.answer(self.command, target.path, query, body)
                    self._send(200, document)
                except ApiError as error:
                    detail = {"message": error.message, "domain": "global", "reason": error.reason}
                    described: dict[str, Any] = {
                        "code": error.status, "message": error.message, "errors": [detail]
                    }  # fmt: skip
                    if error.details:
                        described["details"] = list(error.details)
                    self._send(error.status, {"error": described})
                except Dropped:
                    self.close_connection = True

            def _send(self, status: int, document: Any) -> None:
                readable = not isinstance(document, Unreadable)
                data = (json.dumps(document) if readable else document.text).encode()
                self.answer(status, data, {"Content-Type": "application/json; charset=UTF-8"})

            def date_time_string(self, timestamp: float | None = None) -> str:
                at = time.time() if timestamp is None else timestamp
                return super().date_time_string(at + fake.ahead_seconds)

        return Handler


@contextmanager
def open_fake_gce(world: World | None = None) -> Iterator[FakeGce]:
    """A running fake."""
    fake = FakeGce(world)
    try:
        yield fake
    finally:
        fake.stop()
