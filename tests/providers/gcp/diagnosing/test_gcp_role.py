"""The shipped roles have what each call of a whole story needs, and nothing else.

Sources: "IAM Permissions" on the page of each method of Compute Engine's REST reference v1, and
"Required permissions" of "Create and start a Compute Engine instance".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from sqlalchemy import Engine

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.gcp.provider import locate_bucket
from app.adapters.providers.machine_catalog import shipped_catalog
from app.ports.cloud_provider import ProviderError
from tests.providers.gcp.gcp_under_test import DEPLOYMENT, a_pool, an_order, open_provider
from tests.providers.gcp.gcp_under_test import gcp_settings as settings_of
from tests.providers.gcp.test_gcp_controllers import World
from tests.support.gce.gce_fake import FakeGce
from tests.support.sources.source_tree import ROOT

_ADAPTER = ROOT / "app/adapters/providers/gcp"
_DEPLOY = ROOT / "deploy/gcp"
_PROJECT = r"/compute/v1/projects/[^/]+"


@dataclass(frozen=True)
class Method:
    """A method as the client names it, as it goes over the wire, and the permissions it asks."""

    client: str
    wire: str
    permissions: frozenset[str]


def _method(client: str, wire: str, *permissions: str) -> Method:
    return Method(client, wire, frozenset(permissions))


def _lists(noun: str) -> tuple[Method, Method]:
    """Over all zones in one call, and of one zone where that fails."""
    client, permission = f"{noun[0].upper()}{noun[1:]}Client", f"compute.{noun}.list"
    return (
        _method(f"{client}.aggregated_list", f"GET {_PROJECT}/aggregated/{noun}", permission),
        _method(f"{client}.list", f"GET {_PROJECT}/zones/[^/]+/{noun}", permission),
    )


_METHODS = (
    *_lists("acceleratorTypes"),
    *_lists("disks"),
    *_lists("instances"),
    *_lists("machineTypes"),
    # "View the preemption rate and pricing for Spot VMs": compute.advice.capacityHistory, which
    # roles/compute.viewer has.
    _method(
        "AdviceClient.capacity_history",
        f"POST {_PROJECT}/regions/[^/]+/advice/capacityHistory",
        "compute.advice.capacityHistory",
    ),
    _method(
        "DisksClient.delete_unary",
        f"DELETE {_PROJECT}/zones/[^/]+/disks/[^/]+",
        "compute.disks.delete",
    ),
    _method(
        "GlobalOperationsClient.aggregated_list",
        f"GET {_PROJECT}/aggregated/operations",
        "compute.globalOperations.list",
    ),
    _method("ImagesClient.get", f"GET {_PROJECT}/global/images/[^/]+", "compute.images.get"),
    _method(
        "ImagesClient.get_from_family",
        f"GET {_PROJECT}/global/images/family/[^/]+",
        "compute.images.getFromFamily",
    ),
    _method(
        "InstancesClient.delete_unary",
        f"DELETE {_PROJECT}/zones/[^/]+/instances/[^/]+",
        "compute.instances.delete",
    ),
    _method("InstancesClient.insert_unary", f"POST {_PROJECT}/zones/[^/]+/instances"),
    _method("ProjectsClient.get", f"GET {_PROJECT}", "compute.projects.get"),
    _method(
        "RegionInstancesClient.bulk_insert_unary",
        f"POST {_PROJECT}/regions/[^/]+/instances/bulkInsert",
        "compute.instances.get",
        "compute.machineTypes.get",
    ),
    _method(
        "RegionOperationsClient.get",
        f"GET {_PROJECT}/regions/[^/]+/operations/[^/]+",
        "compute.regionOperations.get",
    ),
    _method("RegionsClient.get", f"GET {_PROJECT}/regions/[^/]+", "compute.regions.get"),
    _method(
        "ResourcePoliciesClient.delete_unary",
        f"DELETE {_PROJECT}/regions/[^/]+/resourcePolicies/[^/]+",
        "compute.resourcePolicies.delete",
    ),
    _method(
        "ResourcePoliciesClient.insert_unary",
        f"POST {_PROJECT}/regions/[^/]+/resourcePolicies",
        "compute.resourcePolicies.create",
    ),
    _method(
        "ResourcePoliciesClient.list",
        f"GET {_PROJECT}/regions/[^/]+/resourcePolicies",
        "compute.resourcePolicies.list",
    ),
    _method(
        "SubnetworksClient.get",
        f"GET {_PROJECT}/regions/[^/]+/subnetworks/[^/]+",
        "compute.subnetworks.get",
    ),
    _method(
        "ZoneOperationsClient.get",
        f"GET {_PROJECT}/zones/[^/]+/operations/[^/]+",
        "compute.zoneOperations.get",
    ),
    _method(
        "ZoneOperationsClient.list",
        f"GET {_PROJECT}/zones/[^/]+/operations",
        "compute.zoneOperations.list",
    ),
    _method("ZonesClient.list", f"GET {_PROJECT}/zones", "compute.zones.list"),
    # Asked over plain HTTP; prices are public, and whoever may sign in may ask what it may do.
    _method("", "GET /"),
    _method("", "POST /v1/projects/[^/]+:testIamPermissions"),
    _method("", "POST /v1/projects/-/serviceAccounts/[^/]+:testIamPermissions"),
    _method("", "GET /storage/v1/b/[^/]+", "storage.buckets.get"),
    _method("", "GET /v1/services/[^/]+/skus"),
)


def _of_body(body: dict[str, Any]) -> frozenset[str]:
    """What a new machine asks for, by the fields that its body has."""
    told = body.get("instanceProperties", body)
    found = {"compute.instances.create", "compute.disks.create", "compute.images.useReadOnly"}
    for field, permission in (
        ("labels", "compute.instances.setLabels"),
        ("metadata", "compute.instances.setMetadata"),
        ("resourcePolicies", "compute.resourcePolicies.use"),
        ("serviceAccounts", "compute.instances.setServiceAccount"),
        ("tags", "compute.instances.setTags"),
    ):
        if told.get(field):
            found.add(permission)
    if any(one.get("initializeParams", {}).get("labels") for one in told["disks"]):
        found.add("compute.disks.setLabels")
    for card in told["networkInterfaces"]:
        found |= {"compute.networks.use", "compute.subnetworks.use"}
        if card.get("accessConfigs"):
            found.add("compute.subnetworks.useExternalIp")
    return frozenset(found)


@pytest.fixture
def asked(gce: FakeGce) -> list[tuple[str, Any]]:
    """`METHOD path` and body of every request."""
    found: list[tuple[str, Any]] = []
    answer = gce.answer

    def keep(method: str, path: str, query: dict[str, str], body: Any) -> Any:
        found.append((f"{method} {path}", body))
        return answer(method, path, query, body)

    gce.answer = keep  # type: ignore[method-assign]
    return found


def methods_of(asked: list[tuple[str, Any]]) -> dict[Method, frozenset[str]]:
    """The methods that were called, with the permissions that they took in all."""
    found: dict[Method, frozenset[str]] = {}
    for request, body in asked:
        matching = [one for one in _METHODS if re.fullmatch(one.wire, request)]
        assert len(matching) == 1, f"{request} is no method that is known here"
        needed = matching[0].permissions
        if body is not None and request.endswith(("/instances", "/bulkInsert")):
            needed |= _of_body(body)
        found[matching[0]] = found.get(matching[0], frozenset()) | needed
    return found


def _permissions(name: str) -> list[str]:
    told: list[str] = json.loads((_DEPLOY / name).read_text("utf-8"))["permissions"]
    return told


def use_everything(engine: Engine, gce: FakeGce, folder: Path) -> None:
    """A gang's whole life under the controllers, what is left of it, and a look at the set-up."""
    world = World(engine, gce, folder)
    job_id = world.submit(nodes=2)
    world.until(lambda: len(world.in_state("launched")) == 2, "the machines")
    gce.engine.preempt(world.in_state("launched")[0].provider_instance_id)
    world.until(lambda: bool(world.in_state("terminated")), "the interruption")
    world.stop(job_id)
    world.until(lambda: gce.engine.live == {}, "the end of all machines")

    changes: dict[str, Any] = {"subnetwork": "regions/{region}/subnetworks/lowtide"}
    provider = open_provider(gce, **changes)
    provider.launch(an_order(a_pool()))
    gce.engine.add_disk("us-central1-a", "left", {"lowtide_deployment": DEPLOYMENT})
    provider.remove_leftovers(provider.list_leftovers("us-central1"))
    gce.dead_zones.add("europe-west4-a")
    hasty = open_provider(gce, request_seconds=0.5)
    hasty.list_deployment("us-central1")
    hasty.list_leftovers("us-central1")
    api = ComputeApi(settings_of(gce, request_seconds=0.5), AnonymousCredentials())
    GcpPriceSource(api, shipped_catalog("gcp"), lambda: datetime(2026, 6, 1, tzinfo=UTC)).offers()
    gce.dead_zones.clear()
    base = "/compute/v1/projects/"
    gce.documents[f"{base}{settings_of(gce).project}"] = {"name": "ours", "quotas": []}
    provider.diagnose()
    open_provider(gce, image="projects/ours/global/images/own").diagnose()
    with pytest.raises(ProviderError):
        locate_bucket(ComputeApi(settings_of(gce), AnonymousCredentials()), "any")


def test_the_roles_have_what_a_whole_story_needs_and_nothing_else(
    engine: Engine, gce: FakeGce, tmp_path: Path, asked: list[tuple[str, Any]]
) -> None:
    use_everything(engine, gce, tmp_path)
    called = methods_of(asked)
    assert {one.wire for one in _METHODS} - {one.wire for one in called} == set()
    needed = frozenset[str]().union(*called.values())
    given = _permissions("role.json") + _permissions("ending-role.json")
    assert sorted(needed - set(given)) == [], "the story is denied these"
    assert sorted(set(given) - needed) == [], "nothing ever asks for these"
    assert len(given) == len(set(given)), "given twice"


def test_every_call_in_the_source_is_known_here() -> None:
    """Every `Client.method` that the adapter's source names."""
    found = set()
    for path in sorted(_ADAPTER.rglob("*.py")):
        text = path.read_text("utf-8")
        named = re.search(r'^_CLIENT: Final = "(\w+)"', text, re.MULTILINE)
        if named:
            text = re.sub(r"\b_CLIENT\b", f'"{named[1]}"', text)
        pairs = re.findall(r'(?:read|change)\(\s*"(\w+Client)",\s*"(\w+)"', text)
        found |= {f"{client}.{method}" for client, method in pairs}
        lists = re.findall(r'pages\(\s*"(\w+Client)"', text)
        both = re.findall(r'ListedNoun\(\s*"(\w+Client)", "(\w+Client)"', text)
        found |= {f"{client}.aggregated_list" for client in (*lists, *(one for one, _ in both))}
        found |= {f"{client}.list" for _, client in both}
    found |= {"RegionOperationsClient.get", "ZoneOperationsClient.get"}
    assert found == {one.client for one in _METHODS if one.client}


def test_the_files_are_sorted_and_what_ends_things_is_bound_to_our_names() -> None:
    """Conditions see resource.name of instances and disks, not of resource policies.

    Source: IAM, "Resource attributes for IAM Conditions": the list of resource types.
    """
    for name in ("role.json", "ending-role.json"):
        assert _permissions(name) == sorted(_permissions(name))
    assert _permissions("ending-role.json") == ["compute.disks.delete", "compute.instances.delete"]
    compute, zone = "compute.googleapis.com", "projects/acme/zones/us-central1-a"
    may_end = _condition()
    assert may_end(f"{compute}/Instance", f"{zone}/instances/lt-abc-0-s-g2")
    assert may_end(f"{compute}/Disk", f"{zone}/disks/lt-abc-0-s-g2")
    assert not may_end(f"{compute}/Instance", f"{zone}/instances/web-1")
    assert not may_end(f"{compute}/Disk", f"{zone}/disks/lt")
    assert may_end("cloudresourcemanager.googleapis.com/Project", "projects/acme")


def test_what_changes_a_machine_can_be_bound_to_our_names_too() -> None:
    """With `bind_names`: of all that the account may do to what exists, but for placement policies,
    nothing is left without the condition on names.
    """
    text = (_DEPLOY / "main.tf").read_text("utf-8")
    listed = re.search(r"setting_permissions = \[(.*?)\]", text, re.DOTALL)
    assert listed is not None
    bound = set(re.findall(r'"(.*)"', listed[1]))
    assert bound <= set(_permissions("role.json"))
    changing = re.compile(r"compute\.(instances|disks)\.(set|update|delete|start|stop|attach)\w*")
    left = set(_permissions("role.json")) - bound
    assert [one for one in left if changing.fullmatch(one)] == []
    roles = re.findall(r"permissions = (set\w+\(local\.\w+\.permissions, local\.\w+\))", text)
    assert roles == [
        "setsubtract(local.role.permissions, local.bound_permissions)",
        "setunion(local.ending_role.permissions, local.bound_permissions)",
    ]
    assert "bound_permissions = var.bind_names ? local.setting_permissions : []" in text


class _Text(str):
    """A string with the methods of CEL that conditions use."""

    def extract(self, pattern: str) -> _Text:
        before, _, after = pattern.partition("{name}")
        found = re.search(f"{re.escape(before)}(.*){re.escape(after)}", self)
        return _Text(found[1] if found else "")

    def startsWith(self, prefix: str) -> bool:  # noqa: N802
        return self.startswith(prefix)


def _condition() -> Callable[[str, str], bool]:
    """(type, name) -> whether the condition of the module holds, its template filled in."""
    text = (_DEPLOY / "main.tf").read_text("utf-8")
    bound = text.partition('resource "google_project_iam_member" "ending"')[2]
    pairs = re.search(r"in \{ (.*) \} :", bound)
    template = re.search(r'^\s+"(\(resource.*\))"$', bound, re.MULTILINE)
    assert pairs is not None
    assert template is not None
    parts = [
        template[1].replace("${type}", kind).replace("${noun}", noun).replace('\\"', '"')
        for kind, noun in re.findall(r'(\w+) = "(\w+)"', pairs[1])
    ]
    assert len(parts) == 2
    code = " and ".join(parts).replace("||", "or")

    def holds(kind: str, name: str) -> bool:
        resource = SimpleNamespace(type=kind, name=_Text(name))
        return bool(eval(code, {"__builtins__": {}}, {"resource": resource}))

    return holds
