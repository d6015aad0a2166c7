"""EC2's actions that moto lacks, or answers otherwise than EC2 does.

Lives here: fleets, filters that moto refuses, late consistency, price history, offerings. Not
here: what is free and what it costs (`aws_world`), or the wire (`aws_fake_http`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from moto.backends import get_backend

from tests.support.aws.aws_fake_fleet import create_fleet
from tests.support.aws.aws_fake_http import Answer, Dropped, ask_moto, hang
from tests.support.aws.aws_world import ACCOUNT, AwsWorld, Rented, now

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15"
_UNKNOWN_TO_MOTO = ("client-token", "instance-lifecycle")


def xml_error(code: str, message: str, status: int) -> Answer:
    text = (
        "<Response><Errors><Error>"
        f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        f"</Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    )
    return status, {"Content-Type": "text/xml"}, text.encode()


def xml_answer(action: str, inner: str) -> Answer:
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="{NAMESPACE}">'
        f"<requestId>{uuid.uuid4()}</requestId>{inner}</{action}Response>"
    )
    return 200, {"Content-Type": "text/xml"}, text.encode()


def tree_of(form: dict[str, str]) -> dict[str, Any]:
    """`A.1.B=x` as {"A": [{"B": "x"}]}."""
    root: dict[Any, Any] = {}
    for key, value in form.items():
        place = root
        parts = key.split(".")
        for part in parts[:-1]:
            place = place.setdefault(part, {})
        place[parts[-1]] = value
    found: dict[str, Any] = _listed(root)
    return found


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(str(key).isdigit() for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return {key: _listed(entry) for key, entry in value.items()}


def filters_of(asked: dict[str, Any]) -> dict[str, list[str]]:
    return {one["Name"]: one["Value"] for one in asked.get("Filter", [])}


def backend(region: str) -> Any:
    """moto's records of EC2 in a region."""
    return get_backend("ec2")[ACCOUNT][region]


class Ec2:
    """EC2 in front of moto."""

    def __init__(self, world: AwsWorld) -> None:
        self._world = world
        self._own: dict[str, Callable[[str, dict[str, Any]], Answer]] = {
            "CreateFleet": self._create_fleet,
            "DescribeSpotPriceHistory": self._price_history,
            "GetSpotPlacementScores": self._scores,
            "DescribeInstanceTypeOfferings": self._offerings,
            "StopInstances": self._stop,
            "CreatePlacementGroup": self._create_placement_group,
            "DescribePlacementGroups": self._placement_groups,
            "DeletePlacementGroup": self._delete_placement_group,
        }

    def answer(self, region: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Faults first; then the action, under the account's lock; then perhaps no answer."""
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
        action = form.get("Action", "")
        world = self._world
        hang(world.hang_seconds.get(action, 0.0))
        with world.lock:
            world.calls[action] += 1
            fault = world.fault(action)
        if fault is not None:
            hang(fault.hang_seconds)
            return xml_error(fault.code, fault.message, fault.status)
        with world.lock:
            self._let_time_pass()
            own = self._own.get(action)
            refused = self._kept_alive(tree_of(form)) if action == "TerminateInstances" else None
            if refused is not None:
                reply = refused
            elif own is not None:
                reply = own(region, tree_of(form))
            elif action == "DescribeInstances":
                reply = self._describe(region, path, headers, form)
            else:
                reply = ask_moto(region, "ec2", "POST", path, headers, body)
            if action == "TerminateInstances" and reply[0] == 200:
                self._record_terminated(region, tree_of(form)["InstanceId"])
            if world.lost[action] > 0:
                world.lost[action] -= 1
                raise Dropped
            return reply

    def take(self, machine_id: str, reason: str, text: str) -> None:
        """End a machine from the cloud's side, as its StateReason will say."""
        rented = self._world.machines[machine_id]
        if not rented.lives:
            return
        backend(rented.region).terminate_instances([machine_id])
        self._end(rented, reason, text, "")

    def terminate(self, machine_id: str) -> None:
        """End a machine as its account's own call does."""
        backend(self._world.machines[machine_id].region).terminate_instances([machine_id])
        self._record_terminated("", [machine_id])

    def _kept_alive(self, asked: dict[str, Any]) -> Answer | None:
        """Why TerminateInstances ends none of these; None: it ends them all.

        One unknown id fails the whole call, and so does one machine with termination protection
        for those of its zone ("TerminateInstances" in EC2's API reference). A machine that has
        just been started may be unknown while it runs ("Eventual consistency in the EC2 API").
        """
        unknown = [one for one in asked["InstanceId"] if one not in self._world.machines]
        for machine_id in asked["InstanceId"]:
            rented = self._world.machines.get(machine_id)
            if rented is not None and rented.hidden_looks > 0:
                rented.hidden_looks -= 1
                unknown.append(machine_id)
        if unknown:
            noun, verb = ("ID", "does") if len(unknown) == 1 else ("IDs", "do")
            text = f"The instance {noun} '{', '.join(unknown)}' {verb} not exist"
            return xml_error("InvalidInstanceID.NotFound", text, 400)
        protected = next((one for one in asked["InstanceId"] if one in self._world.protected), None)
        if protected is None:
            return None
        text = f"The instance '{protected}' may not be terminated. Modify its "
        return xml_error("OperationNotPermitted", f"{text}'disableApiTermination' attribute.", 400)

    def _record_terminated(self, region: str, machine_ids: list[str]) -> None:
        for machine_id in machine_ids:
            rented = self._world.machines[machine_id]
            if rented.lives:
                told = f"User initiated ({now():%Y-%m-%d %H:%M:%S} GMT)"
                code = "Client.UserInitiatedShutdown"
                self._end(rented, code, f"{code}: User initiated shutdown", told)
            else:
                self._show(rented)  # moto wrote its own reason over the first one

    def _end(self, rented: Rented, code: str, text: str, transition: str) -> None:
        rented.ended_at = max(now().replace(microsecond=0), rented.launched_at)
        rented.gone_at = now() + timedelta(seconds=self._world.ending_seconds)
        rented.reason, rented.reason_text = code, f"{text}|{transition}"
        self._show(rented)

    def _let_time_pass(self) -> None:
        for rented in self._world.machines.values():
            self._show(rented)

    def _show(self, rented: Rented) -> None:
        """Write state, reason and times into moto's record."""
        shown = backend(rented.region).get_instance(rented.machine_id)
        shown.launch_time = rented.launched_at
        if rented.ended_at is not None:
            over = rented.gone_at is None or now() >= rented.gone_at
            shown._state.name, shown._state.code = (
                ("terminated", 48) if over else ("shutting-down", 32)
            )
            text, _, transition = rented.reason_text.partition("|")
            shown.state_reason.code, shown.state_reason.message = rented.reason, text
            shown._reason = transition
        elif rented.pending_until is not None and now() < rented.pending_until:
            shown._state.name, shown._state.code = "pending", 0
        else:
            shown._state.name, shown._state.code = "running", 16

    def _create_fleet(self, region: str, asked: dict[str, Any]) -> Answer:
        if asked.get("DryRun") == "true":
            text = "Request would have succeeded, but DryRun flag is set."
            return xml_error("DryRunOperation", text, 412)
        token, parameters = asked.get("ClientToken", ""), _without_token(asked)
        if not 0 < len(token) <= 64:
            return xml_error("InvalidParameterValue", "ClientToken is missing or too long", 400)
        earlier = self._world.fleets.get((region, token))
        if earlier is not None:
            if earlier[0] != parameters:
                text = "Arguments on this idempotent request are inconsistent with previous ones."
                return xml_error("IdempotentParameterMismatch", text, 400)
            return 200, {"Content-Type": "text/xml"}, earlier[1]
        refused, inner = create_fleet(self._world, region, asked)
        if refused is not None:
            return xml_error(*refused)
        reply = xml_answer("CreateFleet", inner)
        self._world.fleets[region, token] = (parameters, reply[2])
        if "<instanceIds>" in inner:
            self._world.launches[token] += 1
        return reply

    def _describe(
        self, region: str, path: str, headers: dict[str, str], form: dict[str, str]
    ) -> Answer:
        asked = tree_of(form)
        wanted = {
            name: values for name, values in filters_of(asked).items() if name in _UNKNOWN_TO_MOTO
        }
        kept = [one for one in asked.get("Filter", []) if one["Name"] not in _UNKNOWN_TO_MOTO]
        sent = {key: value for key, value in form.items() if not key.startswith("Filter.")}
        for index, one in enumerate(kept, 1):
            sent[f"Filter.{index}.Name"] = one["Name"]
            for place, value in enumerate(one["Value"], 1):
                sent[f"Filter.{index}.Value.{place}"] = value
        if not any(key.startswith("InstanceId.") for key in form):
            sent["MaxResults"] = str(min(int(form.get("MaxResults", 1_000)), self._page()))
        status, answered, content = ask_moto(
            region, "ec2", "POST", path, headers, urlencode(sent).encode()
        )
        if status != 200:
            return status, answered, content
        ElementTree.register_namespace("", NAMESPACE)
        root = ElementTree.fromstring(content)
        for items in root.iter(f"{{{NAMESPACE}}}instancesSet"):
            for item in list(items):
                if not self._visible(item, wanted):
                    items.remove(item)
        return 200, {"Content-Type": "text/xml"}, ElementTree.tostring(root)

    def _page(self) -> int:
        return self._world.page_size

    def _visible(self, item: ElementTree.Element, wanted: dict[str, list[str]]) -> bool:
        rented = self._world.machines.get(item.findtext(f"{{{NAMESPACE}}}instanceId", ""))
        if rented is not None and rented.hidden_looks > 0:
            rented.hidden_looks -= 1
            return False
        token = item.findtext(f"{{{NAMESPACE}}}clientToken", "")
        lifecycle = item.findtext(f"{{{NAMESPACE}}}instanceLifecycle", "")
        return token in wanted.get("client-token", [token]) and lifecycle in wanted.get(
            "instance-lifecycle", [lifecycle]
        )

    def _price_history(self, region: str, asked: dict[str, Any]) -> Answer:
        start = datetime.fromisoformat(asked["StartTime"]) if "StartTime" in asked else now()
        stop = datetime.fromisoformat(asked["EndTime"]) if "EndTime" in asked else now()
        types = asked.get("InstanceType")
        zone_asked = asked.get("AvailabilityZone")
        if "Linux/UNIX" not in asked.get("ProductDescription", ["Linux/UNIX"]):
            return xml_answer("DescribeSpotPriceHistory", "<spotPriceHistorySet/>")
        rows: list[tuple[datetime, str, str, int]] = []
        for (name, zone), steps in self._world.prices.items():
            if not zone.startswith(region) or (types is not None and name not in types):
                continue
            if zone_asked is not None and zone != zone_asked:
                continue
            before = [step for step in steps if step[0] <= start][-1:]
            rows += [
                (at, name, zone, price)
                for at, price in before + [step for step in steps if start < step[0] <= stop]
            ]
        rows.sort(reverse=True)
        first = int(asked.get("NextToken") or 0)
        size = min(int(asked.get("MaxResults") or 1_000), self._world.page_size)
        items = "".join(
            f"<item><instanceType>{name}</instanceType>"
            "<productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{price / 1_000_000:.6f}</spotPrice>"
            f"<timestamp>{at:%Y-%m-%dT%H:%M:%S.000Z}</timestamp>"
            f"<availabilityZone>{zone}</availabilityZone></item>"
            for at, name, zone, price in rows[first : first + size]
        )
        more = str(first + size) if first + size < len(rows) else ""
        inner = f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{more}</nextToken>"
        return xml_answer("DescribeSpotPriceHistory", inner)

    def _scores(self, region: str, asked: dict[str, Any]) -> Answer:
        many = len(asked.get("InstanceType", [])) >= 3
        items = "".join(
            f"<item><region>{name}</region><score>{(7 if many else 1) - place}</score></item>"
            for place, name in enumerate(asked.get("RegionName", [region])[:10])
        )
        return xml_answer(
            "GetSpotPlacementScores", f"<spotPlacementScoreSet>{items}</spotPlacementScoreSet>"
        )

    def _offerings(self, region: str, asked: dict[str, Any]) -> Answer:
        wanted = filters_of(asked)
        types = [
            re.compile(value.replace(".", r"\.").replace("*", ".*"))
            for value in wanted.get("instance-type", ["*"])
        ]
        items = "".join(
            f"<item><instanceType>{name}</instanceType>"
            f"<locationType>availability-zone</locationType><location>{zone}</location></item>"
            for name, zone in sorted(self._world.offered)
            if zone.startswith(region) and any(one.fullmatch(name) for one in types)
        )
        return xml_answer(
            "DescribeInstanceTypeOfferings",
            f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>",
        )

    def _create_placement_group(self, region: str, asked: dict[str, Any]) -> Answer:
        key = (region, asked["GroupName"])
        if key in self._world.placement_groups:
            text = f"The placement group '{key[1]}' already exists."
            return xml_error("InvalidPlacementGroup.Duplicate", text, 400)
        self._world.placement_groups.add(key)
        return xml_answer("CreatePlacementGroup", "<return>true</return>")

    def _placement_groups(self, region: str, asked: dict[str, Any]) -> Answer:
        wanted = [
            re.compile(value.replace(".", r"\.").replace("*", ".*"))
            for value in filters_of(asked).get("group-name", ["*"])
        ]
        items = "".join(
            f"<item><groupName>{name}</groupName><strategy>cluster</strategy>"
            "<state>available</state></item>"
            for where, name in sorted(self._world.placement_groups)
            if where == region and any(one.fullmatch(name) for one in wanted)
        )
        inner = f"<placementGroupSet>{items}</placementGroupSet>"
        return xml_answer("DescribePlacementGroups", inner)

    def _delete_placement_group(self, region: str, asked: dict[str, Any]) -> Answer:
        key = (region, asked["GroupName"])
        if key not in self._world.placement_groups:
            text = f"The Placement Group '{key[1]}' is unknown."
            return xml_error("InvalidPlacementGroup.Unknown", text, 400)
        used = {
            backend(region).get_instance(one.machine_id).placement.group_name
            for one in self._world.machines.values()
            if one.lives and one.region == region
        }
        if key[1] in used:
            text = f"The placement group '{key[1]}' is in use and may not be deleted."
            return xml_error("InvalidPlacementGroup.InUse", text, 400)
        self._world.placement_groups.remove(key)
        return xml_answer("DeletePlacementGroup", "<return>true</return>")

    def _stop(self, region: str, asked: dict[str, Any]) -> Answer:
        for machine_id in asked["InstanceId"]:
            if machine_id in self._world.machines and self._world.machines[machine_id].spot:
                text = f"You can't stop the Spot Instance '{machine_id}'"
                return xml_error("UnsupportedOperation", text, 400)
        return xml_error("UnsupportedOperation", "not part of this account", 400)


def _without_token(asked: dict[str, Any]) -> str:
    return repr(sorted((key, repr(value)) for key, value in asked.items() if key != "ClientToken"))
