"""The shipped role has what the provider's calls need, and nothing else."""

from __future__ import annotations

import json
import re

from app.settings import PREFIX, Settings
from tests.support.source_tree import ROOT

_ADAPTER = ROOT / "app/adapters/providers/gcp"
_DEPLOY = ROOT / "deploy/gcp"

# Compute Engine's REST methods and the permissions that each asks for, creation with all it names.
_NEEDED = {
    "AcceleratorTypesClient.aggregated_list": {"compute.acceleratorTypes.list"},
    "AcceleratorTypesClient.list": {"compute.acceleratorTypes.list"},
    "DisksClient.aggregated_list": {"compute.disks.list"},
    "DisksClient.list": {"compute.disks.list"},
    "DisksClient.delete_unary": {"compute.disks.delete"},
    "GlobalOperationsClient.aggregated_list": {"compute.globalOperations.list"},
    "ImagesClient.get": {"compute.images.get"},
    "ImagesClient.get_from_family": {"compute.images.getFromFamily"},
    "InstancesClient.aggregated_list": {"compute.instances.list"},
    "InstancesClient.list": {"compute.instances.list"},
    "InstancesClient.delete_unary": {"compute.instances.delete"},
    "InstancesClient.insert_unary": {
        "compute.disks.create",
        "compute.disks.setLabels",
        "compute.images.useReadOnly",
        "compute.instances.create",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setServiceAccount",
        "compute.instances.setTags",
        "compute.networks.use",
        "compute.resourcePolicies.use",
        "compute.subnetworks.use",
    },
    "MachineTypesClient.aggregated_list": {"compute.machineTypes.list"},
    "MachineTypesClient.list": {"compute.machineTypes.list"},
    "ProjectsClient.get": {"compute.projects.get"},
    "RegionInstancesClient.bulk_insert_unary": {
        "compute.instances.create",
        "compute.instances.get",
        "compute.machineTypes.get",
    },
    "RegionOperationsClient.get": {"compute.regionOperations.get"},
    "RegionsClient.get": {"compute.regions.get"},
    "ResourcePoliciesClient.delete_unary": {"compute.resourcePolicies.delete"},
    "ResourcePoliciesClient.insert_unary": {"compute.resourcePolicies.create"},
    "ResourcePoliciesClient.list": {"compute.resourcePolicies.list"},
    "SubnetworksClient.get": {"compute.subnetworks.get"},
    "ZoneOperationsClient.get": {"compute.zoneOperations.get"},
    "ZoneOperationsClient.list": {"compute.zoneOperations.list"},
    "ZonesClient.list": {"compute.zones.list"},
}
# Asked over plain HTTP.
_OF_STORAGE = {"storage.buckets.get"}
# Advice on capacity is a courtesy: prices do without.
_OPTIONAL = {"AdviceClient.capacity_history"}


def _calls() -> set[str]:
    """Every `Client.method` that the adapter's source names."""
    found = set()
    for path in sorted(_ADAPTER.glob("*.py")):
        text = path.read_text("utf-8")
        named = re.search(r'^_CLIENT: Final = "(\w+)"', text, re.MULTILINE)
        if named:
            text = re.sub(r"\b_CLIENT\b", f'"{named[1]}"', text)
        pairs = re.findall(r'(?:read|change)\(\s*"(\w+Client)",\s*"(\w+)"', text)
        found |= {f"{client}.{method}" for client, method in pairs}
        lists = re.findall(r'(?:pages)\(\s*"(\w+Client)"', text)
        both = re.findall(r'ListedNoun\(\s*"(\w+Client)", "(\w+Client)"', text)
        found |= {f"{client}.aggregated_list" for client in (*lists, *(one[0] for one in both))}
        found |= {f"{client}.list" for _, client in both}
    return found | {"RegionOperationsClient.get", "ZoneOperationsClient.get"}


def test_every_call_is_known_here() -> None:
    assert _calls() - _OPTIONAL == set(_NEEDED)


def test_the_role_has_exactly_what_the_calls_need() -> None:
    role = json.loads((_DEPLOY / "role.json").read_text("utf-8"))
    permissions = role["permissions"]
    assert permissions == sorted(set(permissions))
    assert set(permissions) == _OF_STORAGE.union(*_NEEDED.values())


def test_the_outputs_are_settings() -> None:
    text = (_DEPLOY / "outputs.tf").read_text("utf-8")
    names = set(re.findall(rf"({PREFIX}[A-Z_]+)\s*=", text))
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    assert names
    assert names <= known
