"""The Compute Engine fake's behaviour: what inserts, deletes, preemptions and limits do over time.

Time is `read_clock`, the wall clock's unless a test has its own, plus `advance`; whatever is due
happens before each call is answered. Lives here: the rules. Not here: HTTP (`gce_fake`), JSON
(`gce_fake_state`), or money (`gce_fake_bill`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.gce.gce_fake_requests import (
    ApiError,
    check_bulk_insert,
    check_insert,
    check_request_id,
)
from tests.support.gce.gce_fake_state import OURS, SYSTEM, Operation, Vm, last, rounded, shown, url

PREEMPTED = "compute.instances.preempted"
STOCKOUT = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"


@dataclass
class World:
    """What the fake's cloud has. `room` is machines per zone and provisioning model.

    hidden_looks: so many first looks do not show a new machine. late_name_check: a bulk insert
    tells of a name that is taken by its operation (RESOURCE_ALREADY_EXISTS), as no document says
    that it always does so at once.
    """

    zones: dict[str, tuple[str, ...]]
    machine_types: tuple[str, ...]
    accelerators: tuple[tuple[str, str], ...] = ()
    room: int = 4
    rooms: dict[tuple[str, str], int] = field(default_factory=dict)
    notice_supported: bool = True
    compact_supported: bool = True
    operation_seconds: float = 0.0
    stopping_seconds: float = 0.0
    hidden_looks: int = 0
    late_name_check: bool = False

    def region_of(self, zone: str) -> str:
        """The region of a zone; ApiError when there is no such zone."""
        for region, zones in self.zones.items():
            if zone in zones:
                return region
        raise ApiError(404, "notFound", f"The resource '{url('zones', zone)}' was not found")


class Engine:
    """All machines and operations.

    creation_errors: codes for the next inserts' operations. leaves_behind: such an insert leaves
    its machine there, stopping.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.lock = threading.RLock()
        self.live: dict[tuple[str, str], Vm] = {}
        self.all: list[Vm] = []
        self.operations: dict[str, Operation] = {}
        self.policies: dict[tuple[str, str], dict[str, Any]] = {}
        self.disks: dict[tuple[str, str], dict[str, Any]] = {}
        self.creation_errors: list[tuple[str, str]] = []
        self.leaves_behind = False
        self.operations_hang = False
        self.read_clock: Callable[[], float] = time.time
        self.on_start: Callable[[Vm], None] = lambda vm: None
        self.on_end: Callable[[Vm], None] = lambda vm: None
        self._requests: dict[str, str] = {}
        self._numbers = itertools.count(1_000_000_000_001)
        self._ahead = 0.0

    def now(self) -> float:
        """The fake's time."""
        return rounded(self.read_clock() + self._ahead)

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        with self.lock:
            self._ahead += seconds
            self.settle()

    def settle(self) -> None:
        """Do what is due, in its order."""
        now = self.now()
        for vm in list(self.live.values()):
            limit, since = vm.run_limit_seconds, vm.started_at
            if vm.status != "RUNNING" or limit is None or since is None:
                continue
            if since + limit <= now:
                self._take(vm, "delete", SYSTEM, rounded(since + limit))
        while not self.operations_hang:
            due = [one for one in self.operations.values() if not one.done and one.due_at <= now]
            if not due:
                return
            one = min(due, key=lambda found: (found.due_at, found.number))
            one.done, one.ended_at = True, one.due_at
            one.finish(one, one.due_at)

    def insert(self, zone: str, body: dict[str, Any], request_id: str) -> Operation:
        """`instances.insert`."""
        check_request_id(request_id)
        known = self._replay(request_id)
        if known is not None:
            return known
        self.world.region_of(zone)
        check_insert(zone, body)
        machine_type = last(body["machineType"])
        self._check(body, machine_type, (zone,))
        if (zone, body["name"]) in self.live:
            raise ApiError(409, "alreadyExists", f"The resource '{body['name']}' already exists")
        link = url("zones", zone, "instances", body["name"])
        if self.creation_errors:
            error = self.creation_errors.pop(0)
            if self.leaves_behind:
                vm = Vm(body["name"], zone, machine_type, body, next(self._numbers), self.now())
                vm.status, self.live[zone, vm.name] = "STOPPING", vm
                self.all.append(vm)
            operation = self._failing(f"zones/{zone}", "insert", link, error)
        elif self._room(zone, body) < 1:
            operation = self._failing(f"zones/{zone}", "insert", link, self._stockout(zone))
        else:
            operation = self._create(zone, machine_type, body)
        self._remember(request_id, operation)
        return operation

    def bulk_insert(self, region: str, body: dict[str, Any], request_id: str) -> Operation:
        """`regionInstances.bulkInsert` into one zone that has room."""
        check_request_id(request_id)
        known = self._replay(request_id)
        if known is not None:
            return known
        if region not in self.world.zones:
            raise ApiError(404, "notFound", f"The resource '{url('regions', region)}' not found")
        check_bulk_insert(body)
        properties = body["instanceProperties"]
        allowed = sorted(
            last(zone)
            for zone, rule in body.get("locationPolicy", {}).get("locations", {}).items()
            if rule.get("preference", "ALLOW") == "ALLOW"
        ) or sorted(self.world.zones[region])
        names = sorted(body.get("perInstanceProperties", {}))
        count = int(body["count"])
        minimum = int(body.get("minCount", count))
        self._check(properties, last(properties["machineType"]), allowed)
        link = url("regions", region, "instances")
        zone = max(allowed, key=lambda one: min(self._room(one, properties), count))
        # "Naming resources": the name of a zonal resource is unique in its zone alone.
        if any((zone, name) in self.live for name in names):
            text = f"The resource '{names[0]}' already exists"
            if not self.world.late_name_check:
                raise ApiError(409, "alreadyExists", text)
            operation = self._failing(
                f"regions/{region}", "bulkInsert", link, ("RESOURCE_ALREADY_EXISTS", text)
            )
            self._remember(request_id, operation)
            return operation
        room = self._room(zone, properties)
        if self.creation_errors:
            error = self.creation_errors.pop(0)
            operation = self._failing(f"regions/{region}", "bulkInsert", link, error)
        elif room < minimum:
            operation = self._failing(
                f"regions/{region}", "bulkInsert", link, *(self._stockout(one) for one in allowed)
            )
        else:
            operation = self._operation(f"regions/{region}", "bulkInsert", link, OURS)
            operation.group = f"group-{operation.number}"
            made = names[: min(count, room)]
            for name in made:
                child = self._create(zone, last(properties["machineType"]), properties, name)
                child.group = operation.group
            operation.locations = {
                f"zones/{zone}": {
                    "targetVmCount": count,
                    "createdVmCount": len(made),
                    "failedToCreateVmCount": count - len(made),
                    "status": "DONE",
                }
            }
        self._remember(request_id, operation)
        return operation

    def delete(self, zone: str, name: str) -> Operation:
        """`instances.delete`; repeating it while it is under way gives the same operation."""
        vm = self.live.get((zone, name))
        if vm is None:
            raise ApiError(404, "notFound", f"The resource '{name}' was not found")
        for one in self.operations.values():
            if one.kind == "delete" and one.target_link == vm.link and not one.done:
                return one
        return self._take(vm, "delete", OURS, self.now())

    def preempt(self, name: str, *, notice: bool = True) -> None:
        """Take a spot machine: its granted notice first, unless `notice` is False."""
        with self.lock:
            vm = self.machine(name)
            assert vm.model == "SPOT", f"{name} is no spot machine"
            wait = vm.notice_seconds if notice else 0
            self._take(vm, PREEMPTED, SYSTEM, self.now(), wait)
            self.settle()

    def begin(self, name: str, kind: str, seconds: float) -> None:
        """The cloud begins to end a machine, and is done with it so much later."""
        with self.lock:
            self._take(self.machine(name), kind, SYSTEM, self.now(), seconds)
            self.settle()

    def end_otherwise(self, name: str, kind: str, user: str = SYSTEM) -> None:
        """End a machine by an event such as `compute.instances.hostError`, or another user."""
        with self.lock:
            self._take(self.machine(name), kind, user, self.now())
            self.settle()

    def shut_down_inside(self, name: str) -> None:
        """The guest powers off: the machine stays, TERMINATED, until it is deleted."""
        with self.lock:
            vm, now = self.machine(name), self.now()
            operation = self._operation(
                f"zones/{vm.zone}", "compute.instances.guestTerminate", vm.link, SYSTEM
            )
            operation.done, operation.ended_at = True, now
            vm.status, vm.stopped_at = "TERMINATED", now
            vm.ended_at, vm.ended_by = now, operation.kind
            self.on_end(vm)

    def machine(self, name: str) -> Vm:
        """The living machine of a name."""
        (found,) = (vm for vm in self.live.values() if vm.name == name)
        return found

    def add_disk(
        self, zone: str, name: str, labels: dict[str, str], users: list[str] | None = None
    ) -> dict[str, Any]:
        """A disk of 200 GB, of no machine unless `users` names one."""
        disk = {
            "name": name,
            "zone": url("zones", zone),
            "type": url("zones", zone, "diskTypes", "pd-balanced"),
            "sizeGb": "200",
            "labels": dict(labels),
            "users": list(users or ()),
            "creationTimestamp": shown(self.now()),
        }
        self.disks[zone, name] = disk
        return disk

    def delete_disk(self, zone: str, name: str) -> Operation:
        """`disks.delete`; one that a machine uses is refused."""
        disk = self.disks.get((zone, name))
        if disk is None:
            raise ApiError(404, "notFound", f"The resource '{name}' was not found")
        if disk["users"]:
            text = f"The disk resource '{name}' is already being used by '{disk['users'][0]}'"
            raise ApiError(400, "resourceInUseByAnotherResource", text)
        link = url("zones", zone, "disks", name)
        operation = self._operation(f"zones/{zone}", "delete", link, OURS)

        def finish(_: Operation, at: float) -> None:
            self.disks.pop((zone, name), None)

        operation.finish = finish
        return operation

    def _let_go(self, vm: Vm) -> None:
        """The machine is gone: its disks go with it, or stay without a user."""
        for key, disk in list(self.disks.items()):
            if vm.link in disk["users"]:
                disk["users"].remove(vm.link)
                if disk.get("autoDelete"):
                    del self.disks[key]

    def _take(self, vm: Vm, kind: str, user: str, at: float, wait: float = 0.0) -> Operation:
        operation = self._operation(f"zones/{vm.zone}", kind, vm.link, user)
        operation.inserted_at = at
        if kind == PREEMPTED and vm.preempted_at is None:
            vm.preempted_at = at
        stopping = self.world.stopping_seconds
        operation.due_at = rounded(at + wait + stopping)

        def gone(_: Operation, ended_at: float) -> None:
            if self.live.pop((vm.zone, vm.name), None) is None:
                return
            vm.status = "GONE"
            self._let_go(vm)
            if vm.ended_at is None:
                # Whose end it is where a user's deletion overtakes a preemption is not documented:
                # it counts as the preemption's, as the system began it.
                overtaken = vm.preempted_at is not None and vm.preempted_at <= operation.inserted_at
                reason = PREEMPTED if overtaken and user != SYSTEM else kind
                vm.ended_at, vm.ended_by = ended_at, f"{reason} by {user}"
                self.on_end(vm)

        operation.finish = gone
        if wait == 0.0 and vm.status != "TERMINATED":
            vm.status = "STOPPING"
        return operation

    def _create(
        self, zone: str, machine_type: str, properties: dict[str, Any], name: str | None = None
    ) -> Operation:
        body = {key: value for key, value in properties.items() if key != "machineType"}
        vm = Vm(
            name or properties["name"], zone, machine_type, body, next(self._numbers), self.now()
        )
        self.live[zone, vm.name] = vm
        vm.hidden_looks = self.world.hidden_looks
        for asked in body.get("disks", []):
            parameters = asked.get("initializeParams", {})
            disk = self.add_disk(zone, vm.name, parameters.get("labels", {}), users=[vm.link])
            disk["type"] = url("zones", zone, "diskTypes", last(parameters["diskType"]))
            disk["sizeGb"] = str(parameters.get("diskSizeGb", 10))
            disk["autoDelete"] = asked.get("autoDelete", False)
        self.all.append(vm)
        operation = self._operation(f"zones/{zone}", "insert", vm.link, OURS)

        def started(_: Operation, at: float) -> None:
            if vm.status == "PROVISIONING":
                vm.status, vm.started_at = "RUNNING", at
                self.on_start(vm)

        operation.finish = started
        return operation

    def _failing(self, scope: str, kind: str, link: str, *errors: tuple[str, str]) -> Operation:
        operation = self._operation(scope, kind, link, OURS)

        def failed(one: Operation, _: float) -> None:
            one.errors, one.http_status = list(errors), 503

        operation.finish = failed
        return operation

    def _operation(self, scope: str, kind: str, link: str, user: str) -> Operation:
        number, now = next(self._numbers), self.now()
        due = rounded(now + self.world.operation_seconds)
        operation = Operation(
            f"operation-{number}", scope, kind, link, user, now, due, lambda one, at: None, number
        )
        self.operations[operation.name] = operation
        return operation

    def _check(self, body: dict[str, Any], machine_type: str, zones: Any) -> None:
        for zone in zones:
            self.world.region_of(zone)
            if machine_type not in self.world.machine_types:
                raise ApiError(
                    400,
                    "invalid",
                    f"Invalid value for field 'resource.machineType': '{machine_type}'. "
                    f"Machine type with name '{machine_type}' does not exist in zone '{zone}'.",
                )
        scheduling = body.get("scheduling", {})
        if "preemptionNoticeDuration" in scheduling and not self.world.notice_supported:
            raise ApiError(
                400,
                "invalid",
                "Invalid value for field 'resource.scheduling.preemptionNoticeDuration': not "
                "supported.",
            )
        for policy in body.get("resourcePolicies", []):
            region = self.world.region_of(next(iter(zones)))
            if (region, last(policy)) not in self.policies:
                raise ApiError(400, "invalid", f"The resource policy '{policy}' does not exist")

    def _room(self, zone: str, body: dict[str, Any]) -> int:
        model = body.get("scheduling", {}).get("provisioningModel", "STANDARD")
        taken: int = sum(vm.zone == zone and vm.model == model for vm in self.live.values())
        return self.world.rooms.get((zone, model), self.world.room) - taken

    def _stockout(self, zone: str) -> tuple[str, str]:
        place = f"projects/test-project/zones/{zone}"
        return STOCKOUT, f"The zone '{place}' does not have enough resources available."

    def _replay(self, request_id: str) -> Operation | None:
        name = self._requests.get(request_id)
        return None if name is None else self.operations[name]

    def _remember(self, request_id: str, operation: Operation) -> None:
        if request_id:
            self._requests[request_id] = operation.name
