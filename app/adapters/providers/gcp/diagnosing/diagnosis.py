"""Is Google Cloud set up: one result for each thing that a first launch would stumble over.

Reads only: Compute Engine has no dry run. Not here: rights (`permission_checks`), or how results
are shown.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from app.adapters.providers.gcp.client.compute_api import ApiRefusal, ComputeApi
from app.adapters.providers.gcp.diagnosing.permission_checks import (
    check_clock,
    check_machine_account,
    check_permissions,
)
from app.adapters.providers.gcp.prices.price_data import price_data
from app.adapters.providers.gcp.prices.sku_catalog import read_unit_prices
from app.adapters.providers.machine_images import images_in_use
from app.ports.cloud_provider import ProviderError
from app.ports.provider_diagnosis import CheckResult, warning

_SPOT: Final = "PREEMPTIBLE_"
_GPU: Final = "NVIDIA_"
_ALL_REGIONS: Final = "GPUS_ALL_REGIONS"
_QUOTA_REMEDY: Final = (
    "ask for more on the Quotas page of the console; a new project has none for spot GPUs"
)
_UNTOLD: Final = "those of H200, B200 and newer are only on the Quotas page"
"""Compute Engine's regions tell quotas of older GPUs only."""

_KEY: Final = re.compile(
    r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+(/cryptoKeyVersions/[^/]+)?"
)
_CONSOLE: Final = "https://console.cloud.google.com"
_BILLING: Final = "link a billing account: {console}/billing/linkedaccount?project={project}"
_REMEDIES: Final = {
    "billingNotEnabled": _BILLING,
    "BILLING_DISABLED": _BILLING,
    "UREQ_PROJECT_BILLING_NOT_FOUND": _BILLING,
    "accessNotConfigured": "gcloud services enable compute.googleapis.com --project {project}",
    "SERVICE_DISABLED": "gcloud services enable compute.googleapis.com --project {project}",
    "notFound": "LOWTIDE_GCP_PROJECT must be a project's id, not its name",
    "forbidden": "give the control plane's account the role of deploy/gcp/role.json",
    "authError": "renew the credentials: docs/gcp.md, step 4",
}
"""What to do about a project that does not answer, by Google's own reason."""


def diagnose(api: ComputeApi) -> tuple[CheckResult, ...]:
    """Clock, project, permissions, regions with their GPU quotas, subnetworks, images, prices."""
    settings = api.settings
    clock = check_clock(api)
    found = [] if clock is None else [clock]
    project, answers = _project(api)
    found.append(project)
    if not answers:
        return tuple(found)
    role = "give the control plane's account the role of deploy/gcp/role.json"
    found.append(_try("permissions", lambda: check_permissions(api), role))
    account = settings.service_account
    if account is not None:
        ask = functools.partial(check_machine_account, api, account)
        found.append(_try("machines' account", ask, "set LOWTIDE_GCP_SERVICE_ACCOUNT"))
    for region in settings.regions:
        remedy = "set LOWTIDE_GCP_REGIONS to regions of Compute Engine"
        found.append(_try(f"quota {region}", functools.partial(_region, api, region), remedy))
        if settings.subnetwork is not None:
            remedy = "set LOWTIDE_GCP_SUBNETWORK to regions/{region}/subnetworks/NAME"
            found.append(_try(f"subnet {region}", functools.partial(_subnet, api, region), remedy))
    if settings.kms_key is not None:
        found.append(_key(settings.kms_key))
    for image, gpus in images_in_use(settings.image_for).items():
        name = "image" if not gpus[0] else f"image {gpus[0]}"
        look = functools.partial(_image, api, name, image, gpus)
        remedy = f"set LOWTIDE_GCP_IMAGE{'S' if gpus[0] else ''}"
        found.append(_try(name, look, remedy))
    found.append(_try("prices", lambda: _prices(api), "enable the Cloud Billing API"))
    return tuple(found)


def _try(name: str, look: Callable[[], CheckResult], remedy: str) -> CheckResult:
    try:
        return look()
    except ProviderError as error:
        return CheckResult(name, False, str(error), remedy)


def _project(api: ComputeApi) -> tuple[CheckResult, bool]:
    """The result, and whether the project answers at all: else nothing more can be asked."""
    try:
        project = api.read("ProjectsClient", "get", api.deadline())
    except ApiRefusal as error:
        form = _REMEDIES.get(error.refusal.code, "set LOWTIDE_GCP_PROJECT and credentials")
        remedy = form.format(console=_CONSOLE, project=api.settings.project)
        return CheckResult("project", False, str(error), remedy), False
    except ProviderError as error:
        remedy = "set LOWTIDE_GCP_PROJECT and credentials"
        return CheckResult("project", False, str(error), remedy), False
    quota = _quota(project.quotas, _ALL_REGIONS)
    if quota is not None and quota.limit < 1:
        text = f"{_ALL_REGIONS} is {quota.limit:.0f} in {api.settings.project}"
        return CheckResult("project", False, text, _QUOTA_REMEDY), True
    limit = "not told" if quota is None else f"{quota.usage:.0f} of {quota.limit:.0f} in use"
    told = f"{api.settings.project} answers; GPUs of all regions: {limit}"
    return CheckResult("project", True, told), True


def _region(api: ComputeApi, region: str) -> CheckResult:
    """Spot GPUs by model: under their own quota, else under that of standard GPUs.

    Source: "Create and use Spot VMs": they use up standard quota unless preemptible quota was
    asked for.
    """
    found = api.read("RegionsClient", "get", api.deadline(), region=region)
    quotas = {str(one.metric): one for one in found.quotas if one.limit >= 1}
    told = []
    for metric, one in sorted(quotas.items()):
        plain = metric.removeprefix(_SPOT)
        if not plain.startswith(_GPU):
            continue
        model = plain.removeprefix(_GPU).removesuffix("_GPUS").lower()
        used = f"{model} {one.usage:.0f}/{one.limit:.0f}"
        if metric != plain:
            told.append(used)
        elif f"{_SPOT}{plain}" not in quotas:
            told.append(f"{used} (of standard quota, which on-demand machines share)")
    if not told:
        text = f"no GPU quota is listed in {region}; {_UNTOLD}"
        return warning(f"quota {region}", text, _QUOTA_REMEDY)
    text = f"spot GPUs in use / allowed: {', '.join(told)}; {_UNTOLD}"
    return CheckResult(f"quota {region}", True, text)


def _subnet(api: ComputeApi, region: str) -> CheckResult:
    path = str(api.settings.subnetwork).replace("{region}", region)
    name = path.rpartition("/")[2]
    found = api.read("SubnetworksClient", "get", api.deadline(), region=region, subnetwork=name)
    if not found.private_ip_google_access and not api.settings.external_ip:
        text = (
            f"{name} has no private access to Google: machines without an address reach no bucket"
        )
        return CheckResult(f"subnet {region}", False, text, "switch Private Google Access on")
    return CheckResult(f"subnet {region}", True, f"{name} has {found.ip_cidr_range}")


def _key(key: str) -> CheckResult:
    """Its form alone: Compute Engine's own account uses it, which nobody else can ask for."""
    if _KEY.fullmatch(key) is None:
        remedy = "set LOWTIDE_GCP_KMS_KEY to projects/P/locations/L/keyRings/R/cryptoKeys/K"
        return CheckResult("key", False, f"{key} is not the name of a key", remedy)
    told = f"{key}; whether Compute Engine may use it, `lowtide doctor --launch` shows"
    return CheckResult("key", True, told)


def _image(api: ComputeApi, title: str, path: str, gpus: tuple[str, ...]) -> CheckResult:
    parts = path.split("/")
    name = parts[-1]
    fields: dict[str, Any] = (
        {"project": parts[parts.index("projects") + 1]} if ("projects" in parts) else {}
    )
    try:
        if "family" in parts:
            image = api.read(
                "ImagesClient", "get_from_family", api.deadline(), family=name, **fields
            )
        else:
            image = api.read("ImagesClient", "get", api.deadline(), image=name, **fields)
    except ProviderError as error:
        raise ProviderError(error.kind, f"{path}: {error}") from error
    if int(image.disk_size_gb) > api.settings.disk_gb:
        text = f"{image.name} needs {image.disk_size_gb} GB, disks have {api.settings.disk_gb}"
        return CheckResult(title, False, text, "set LOWTIDE_GCP_DISK_GB higher")
    used = f", for {', '.join(gpus)}" if gpus[0] else ""
    return CheckResult(title, True, f"{image.name} of {name}{used}")


def _prices(api: ComputeApi) -> CheckResult:
    units = read_unit_prices(api, price_data(), datetime.now(UTC))
    if not units:
        return CheckResult("prices", False, "the list of SKUs has none of ours", "report this")
    return CheckResult("prices", True, f"{len(units)} unit prices of GPU machines")


def _quota(quotas: Any, metric: str) -> Any:
    return next((one for one in quotas if one.metric == metric), None)
