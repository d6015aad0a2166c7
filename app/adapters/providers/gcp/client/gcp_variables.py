"""The settings of Google Cloud as environment variables: part of `app.settings.Settings`.

Loads no client of Google's. Not here: what the provider works with (`gcp_settings`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode

from app.adapters.providers.gcp.client.gcp_settings import (
    RUN_SECONDS_MAX,
    RUN_SECONDS_MIN,
    GcpSettings,
    region_of,
)
from app.adapters.providers.machine_images import read_named_images


def _words(value: object) -> Any:
    """`"us-central1, europe-west4"` as names in their order."""
    if not isinstance(value, str):
        return value
    return tuple(word.strip().lower() for word in value.split(",") if word.strip())


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Images = Annotated[tuple[tuple[str, str], ...], NoDecode, BeforeValidator(read_named_images)]


class GcpVariables(BaseSettings):
    """`LOWTIDE_GCP_…`."""

    gcp_project: str | None = Field(
        default=None, description="Google Cloud project to rent in; required by `gcp`"
    )
    gcp_regions: Words = Field(
        default=("us-central1",),
        min_length=1,
        description="Regions of Google Cloud to rent in, separated by commas",
        json_schema_extra={"default": "us-central1"},
    )
    gcp_zones: Words = Field(
        default=(),
        description="Zones to rent in, separated by commas; none means every zone of the regions",
        json_schema_extra={"default": None},
    )
    gcp_network: str = Field(
        default="global/networks/default", description="VPC network of the machines"
    )
    gcp_subnetwork: str | None = Field(
        default=None,
        description="Subnetwork, `regions/{region}/subnetworks/NAME`; required unless the network "
        "creates subnetworks automatically",
    )
    gcp_image: str = Field(
        default=GcpSettings.image,
        description="Boot image or family with NVIDIA's driver, "
        "`projects/P/global/images/family/F`",
    )
    gcp_images: Images = Field(
        default=(),
        description="Images for some GPUs instead of that one, `V100=projects/…`, separated by "
        "commas; V100 and P100 are offered only with one",
        json_schema_extra={"default": None},
    )
    gcp_service_account: str | None = Field(
        default=None,
        description="Service account that the machines run as, for rights of your own",
    )
    gcp_data_account: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]{1,63}@[a-z0-9.:-]{1,200}\.gserviceaccount\.com$",
        description="Service account of jobs' data, whose tokens are limited to each job's own "
        "folders; without it machines use their own account's rights on whole buckets",
    )
    gcp_external_ip: bool = Field(
        default=False, description="Give machines a public address; without it they need Cloud NAT"
    )
    gcp_disk_gb: int = Field(
        default=GcpSettings.disk_gb,
        ge=10,
        le=65_536,
        description="Size of the boot disk in GB, if a job names none",
    )
    gcp_disk_type: str = Field(
        default="pd-balanced",
        description="Type of the boot disk; machines that cannot have it get Hyperdisk Balanced",
    )
    gcp_kms_key: str | None = Field(
        default=None, description="Cloud KMS key that encrypts the boot disk; none: Google's own"
    )
    gcp_gpu_subnetworks: Words = Field(
        default=(),
        description="Subnetworks of the further network interfaces of A3, A4 and G4 machines, "
        "`regions/{region}/subnetworks/NAME` separated by commas, each of a network of its own",
        json_schema_extra={"default": None},
    )
    gcp_rdma_subnetworks: Words = Field(
        default=(),
        description="Eight subnetworks of an RDMA network, for A3 Ultra and A4 machines",
        json_schema_extra={"default": None},
    )
    gcp_max_run_seconds: int = Field(
        default=GcpSettings.max_run_seconds,
        ge=RUN_SECONDS_MIN,
        le=RUN_SECONDS_MAX,
        description="Google deletes a machine that is this old, even if Lowtide is down",
    )
    gcp_notice_seconds: Literal[0, 120] = Field(
        default=120,
        description="Warning to request before Google interrupts a spot machine; if it grants "
        "none, there are up to 30 s",
    )
    gcp_compact_placement: bool = Field(
        default=True, description="Request that the machines of a gang are close together"
    )
    gcp_credentials_file: str | None = Field(
        default=None,
        description="Key or workload-identity file; if not set, Google's library searches for one",
    )
    gcp_endpoint: str | None = Field(
        default=None, description="Address of Compute Engine's API, if it is not Google's"
    )
    gcp_catalog_url: str = Field(
        default=GcpSettings.catalog_url, description="Address of the Cloud Billing API"
    )


def gcp_problem(variables: GcpVariables) -> str | None:
    """A sentence saying why the provider cannot be used as it is set, else None."""
    if not variables.gcp_project:
        return "gcp is off: set LOWTIDE_GCP_PROJECT to the project to rent machines in"
    stray = [zone for zone in variables.gcp_zones if region_of(zone) not in variables.gcp_regions]
    if stray:
        return (
            f"gcp is off: {stray[0]} of LOWTIDE_GCP_ZONES lies in none of LOWTIDE_GCP_REGIONS "
            f"({', '.join(variables.gcp_regions)})"
        )
    return None


def gcp_settings_of(variables: GcpVariables) -> GcpSettings:
    """What the provider works with. Raises ValueError where `gcp_problem` has a sentence."""
    return GcpSettings(
        project=variables.gcp_project or "",
        regions=variables.gcp_regions,
        zones=variables.gcp_zones,
        network=variables.gcp_network,
        subnetwork=variables.gcp_subnetwork,
        image=variables.gcp_image,
        images=variables.gcp_images,
        service_account=variables.gcp_service_account,
        external_ip=variables.gcp_external_ip,
        disk_gb=variables.gcp_disk_gb,
        disk_type=variables.gcp_disk_type,
        kms_key=variables.gcp_kms_key,
        gpu_subnetworks=variables.gcp_gpu_subnetworks,
        rdma_subnetworks=variables.gcp_rdma_subnetworks,
        max_run_seconds=variables.gcp_max_run_seconds,
        notice_seconds=variables.gcp_notice_seconds,
        compact_placement=variables.gcp_compact_placement,
        credentials_file=variables.gcp_credentials_file,
        endpoint=variables.gcp_endpoint,
        catalog_url=variables.gcp_catalog_url,
    )
