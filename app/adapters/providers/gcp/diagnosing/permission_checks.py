"""Which permissions the control plane's account lacks, asked of Google by name; the clock.

Sources: Resource Manager API, projects.testIamPermissions ("There are no permissions required for
making this API call"); IAM API, serviceAccounts.testIamPermissions. Asked over plain HTTP: one more
client library would load gRPC for two answers. Not here: what else is checked (`diagnosis`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote

import requests

from app.adapters.providers.gcp.client.compute_api import ComputeApi, translated
from app.adapters.providers.gcp.client.google_credentials import json_of, session_of
from app.adapters.providers.gcp.client.refusals import of_document
from app.ports.provider_diagnosis import CheckResult, clock_check, warning

ROLE_FILE: Final = "deploy/gcp/role.json"
ENDING_ROLE_FILE: Final = "deploy/gcp/ending-role.json"
NEEDED: Final = (
    "compute.acceleratorTypes.list",
    "compute.advice.capacityHistory",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.globalOperations.list",
    "compute.images.get",
    "compute.images.getFromFamily",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.instances.setTags",
    "compute.machineTypes.get",
    "compute.machineTypes.list",
    "compute.networks.use",
    "compute.projects.get",
    "compute.regionOperations.get",
    "compute.regions.get",
    "compute.resourcePolicies.create",
    "compute.resourcePolicies.delete",
    "compute.resourcePolicies.list",
    "compute.resourcePolicies.use",
    "compute.subnetworks.get",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "compute.zones.list",
    "storage.buckets.get",
)
"""What the two roles of deploy/gcp grant, and what the adapter's calls need."""

_ACT_AS: Final = "iam.serviceAccounts.actAs"
_PROJECTS_URL: Final = "https://cloudresourcemanager.googleapis.com"
_ACCOUNTS_URL: Final = "https://iam.googleapis.com"
_COMPUTE_URL: Final = "https://compute.googleapis.com"
_OK: Final = 200
_NAMED_MAX: Final = 8
_WHY_MAX: Final = 300


def check_permissions(api: ComputeApi) -> CheckResult:
    """One call about all of them: those that are missing, by name. Raises ProviderError."""
    name, project = "permissions", api.settings.project
    path = f"/v1/projects/{quote(project, safe='')}:testIamPermissions"
    granted = _granted(api, _PROJECTS_URL, path, NEEDED)
    if isinstance(granted, str):
        remedy = "enable cloudresourcemanager.googleapis.com in the project (deploy/gcp does)"
        return warning(name, f"cannot be asked for: {granted}", remedy)
    missing = [one for one in NEEDED if one not in granted]
    if not missing:
        return CheckResult(
            name, True, f"all {len(NEEDED)} of {ROLE_FILE} and {ENDING_ROLE_FILE} are granted"
        )
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    told = f"missing in {project}: {', '.join(missing[:_NAMED_MAX])}{more}"
    remedy = f"grant the roles of {ROLE_FILE} and {ENDING_ROLE_FILE}; docs/gcp.md"
    return CheckResult(name, False, told, remedy)


def check_machine_account(api: ComputeApi, account: str) -> CheckResult:
    """Whether machines may be started that run as their account. Raises ProviderError."""
    name = "machines' account"
    path = f"/v1/projects/-/serviceAccounts/{quote(account, safe='@')}:testIamPermissions"
    granted = _granted(api, _ACCOUNTS_URL, path, (_ACT_AS,))
    if isinstance(granted, str):
        remedy = (
            "check LOWTIDE_GCP_SERVICE_ACCOUNT, and enable iam.googleapis.com (deploy/gcp does)"
        )
        return warning(name, f"{account} cannot be asked about: {granted}", remedy)
    if _ACT_AS in granted:
        return CheckResult(name, True, f"machines may run as {account}")
    remedy = f"grant the control plane roles/iam.serviceAccountUser on {account}"
    return CheckResult(name, False, f"missing: {_ACT_AS} on {account}", remedy)


def check_clock(api: ComputeApi) -> CheckResult | None:
    """By the date of an unsigned answer: a wrong clock spoils the signatures of all others.

    None where no answer comes: what is signed says why.
    """
    address = api.settings.endpoint or _COMPUTE_URL
    try:
        answer = requests.get(address, timeout=api.settings.request_seconds, allow_redirects=False)
    except requests.exceptions.RequestException:
        return None
    stated = answer.headers.get("Date")
    if not stated:
        return None
    ours = datetime.now(UTC).replace(microsecond=0)
    return clock_check("clock", ours, parsedate_to_datetime(stated))


def _granted(
    api: ComputeApi, address: str, path: str, permissions: tuple[str, ...]
) -> frozenset[str] | str:
    """Those of the permissions that are granted; Google's sentence where it does not say."""
    url = f"{api.settings.endpoint or address}{path}"
    with translated("testIamPermissions"), session_of(api.credentials()) as session:
        seconds = api.settings.request_seconds
        answer = session.post(url, json={"permissions": list(permissions)}, timeout=seconds)
    document = json_of(answer)
    if answer.status_code != _OK:
        service = address.removeprefix("https://")
        message = of_document(document, answer.status_code, service).message
        return f"{answer.status_code}: {message[:_WHY_MAX] or 'no reason given'}"
    # A proxy's page grants nothing.
    granted = document.get("permissions") if isinstance(document, dict) else None
    return frozenset(map(str, granted or ()))
