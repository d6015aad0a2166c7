"""Is Google Cloud set up: one finding for each thing that a first launch would stumble over.

Reads only. Not here: how findings are shown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from app.adapters.providers.gcp.compute_api import ComputeApi
from app.adapters.providers.gcp.price_data import price_data
from app.adapters.providers.gcp.sku_catalog import read_unit_prices
from app.ports.cloud_provider import ProviderError
from app.ports.provider_diagnosis import Finding

_SPOT_GPU: Final = "PREEMPTIBLE_NVIDIA_"
_ALL_REGIONS: Final = "GPUS_ALL_REGIONS"
_QUOTA_REMEDY: Final = (
    "ask for more on the Quotas page of the console; a new project has none for spot GPUs"
)


def diagnose(api: ComputeApi) -> tuple[Finding, ...]:
    """Project, regions with their spot GPU quotas, subnetworks, image and price list."""
    settings = api.settings
    found = [_try("project", lambda: _project(api), "set LOWTIDE_GCP_PROJECT and credentials")]
    if not found[0].ok:
        return tuple(found)
    for region in settings.regions:
        remedy = "set LOWTIDE_GCP_REGIONS to regions of Compute Engine"
        found.append(_try(f"quota {region}", functools.partial(_region, api, region), remedy))
        if settings.subnetwork is not None:
            remedy = "set LOWTIDE_GCP_SUBNETWORK to regions/{region}/subnetworks/NAME"
            found.append(_try(f"subnet {region}", functools.partial(_subnet, api, region), remedy))
    found.append(_try("image", lambda: _image(api), "set LOWTIDE_GCP_IMAGE"))
    found.append(_try("prices", lambda: _prices(api), "enable the Cloud Billing API"))
    return tuple(found)


def _try(name: str, look: Callable[[], Finding], remedy: str) -> Finding:
    try:
        return look()
    except ProviderError as error:
        return Finding(name, False, str(error), remedy)


def _project(api: ComputeApi) -> Finding:
    project = api.read("ProjectsClient", "get", api.deadline())
    quota = _quota(project.quotas, _ALL_REGIONS)
    if quota is not None and quota.limit < 1:
        text = f"{_ALL_REGIONS} is {quota.limit:.0f} in {api.settings.project}"
        return Finding("project", False, text, _QUOTA_REMEDY)
    limit = "not told" if quota is None else f"{quota.usage:.0f} of {quota.limit:.0f} in use"
    return Finding("project", True, f"{api.settings.project} answers; GPUs of all regions: {limit}")


def _region(api: ComputeApi, region: str) -> Finding:
    found = api.read("RegionsClient", "get", api.deadline(), region=region)
    quotas = [one for one in found.quotas if one.metric.startswith(_SPOT_GPU) and one.limit >= 1]
    if not quotas:
        text = f"no quota for spot GPUs in {region}: every launch there will be refused"
        return Finding(f"quota {region}", False, text, _QUOTA_REMEDY)
    told = ", ".join(
        f"{one.metric.removeprefix(_SPOT_GPU).removesuffix('_GPUS').lower()} "
        f"{one.usage:.0f}/{one.limit:.0f}"
        for one in sorted(quotas, key=lambda one: str(one.metric))
    )
    return Finding(f"quota {region}", True, f"spot GPUs in use / allowed: {told}")


def _subnet(api: ComputeApi, region: str) -> Finding:
    path = str(api.settings.subnetwork).replace("{region}", region)
    name = path.rpartition("/")[2]
    found = api.read("SubnetworksClient", "get", api.deadline(), region=region, subnetwork=name)
    if not found.private_ip_google_access and not api.settings.external_ip:
        text = (
            f"{name} has no private access to Google: machines without an address reach no bucket"
        )
        return Finding(f"subnet {region}", False, text, "switch Private Google Access on")
    return Finding(f"subnet {region}", True, f"{name} has {found.ip_cidr_range}")


def _image(api: ComputeApi) -> Finding:
    parts = api.settings.image.split("/")
    name = parts[-1]
    fields: dict[str, Any] = (
        {"project": parts[parts.index("projects") + 1]} if ("projects" in parts) else {}
    )
    if "family" in parts:
        image = api.read("ImagesClient", "get_from_family", api.deadline(), family=name, **fields)
    else:
        image = api.read("ImagesClient", "get", api.deadline(), image=name, **fields)
    if int(image.disk_size_gb) > api.settings.disk_gb:
        text = f"{image.name} needs {image.disk_size_gb} GB, disks have {api.settings.disk_gb}"
        return Finding("image", False, text, "set LOWTIDE_GCP_DISK_GB higher")
    return Finding("image", True, f"{image.name} of {name}")


def _prices(api: ComputeApi) -> Finding:
    units = read_unit_prices(api, price_data(), datetime.now(UTC))
    if not units:
        return Finding("prices", False, "the list of SKUs has none of ours", "report this")
    return Finding("prices", True, f"{len(units)} unit prices of GPU machines")


def _quota(quotas: Any, metric: str) -> Any:
    return next((one for one in quotas if one.metric == metric), None)
