"""Which real accounts the suite may use, from the environment, and the cheapest machines there.

Lives here: the variables and what they make. Not here: the tests (`real_accounts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, Protocol

from app.domain.market.machine_catalog import MachineCatalog, MachineType
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import CloudProvider

PREFIX: Final = "LOWTIDE_TEST_"
AWS_IMAGE: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
GCP_IMAGE: Final = "projects/debian-cloud/global/images/family/debian-12"
GCP_MICROUSD_PER_HOUR: Final = 20_000
"""The suite tells the provider this price: Compute Engine knows no highest one."""


class Account(Protocol):
    """One account, as the suite uses it."""

    @property
    def name(self) -> str:
        """For the test's name."""
        ...

    def problem(self) -> str | None:
        """Why it cannot be used, for a person."""
        ...

    def provider(self, deployment_id: str) -> CloudProvider:
        """A provider for one test."""
        ...

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """Two zones of one region."""
        ...

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """The pool's price now."""
        ...


@dataclass(frozen=True)
class AwsAccount:
    """An AWS account; credentials are boto3's own."""

    region: str
    zones: tuple[str, ...]
    machine_type: str
    image: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    endpoint_url: str | None
    name = "aws"

    def problem(self) -> str | None:
        """Whether the SDK is there and finds credentials."""
        try:
            import boto3
        except ImportError:
            return "boto3 is not installed"
        if boto3.Session().get_credentials() is None:
            return "boto3 finds no credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        return None

    def provider(self, deployment_id: str) -> CloudProvider:
        """A provider for one test."""
        from app.adapters.providers.aws.client.aws_settings import AwsSettings
        from app.adapters.providers.aws.provider import AwsProvider

        settings = AwsSettings(
            regions=(self.region,),
            image=self.image,
            subnet_ids=self.subnets,
            security_group_ids=self.security_groups,
            root_volume_gb=8,
            endpoint_url=self.endpoint_url,
        )
        return AwsProvider(
            settings,
            deployment_id=lambda: deployment_id,
            render=_script,
            catalog=_catalog("aws", self.machine_type),
        )

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """Two zones of one region."""
        return tuple(
            Pool("aws", self.region, zone, self.machine_type, market) for zone in self.zones
        )

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """The last step of the zone's price history."""
        import boto3

        client = boto3.client("ec2", region_name=self.region, endpoint_url=self.endpoint_url)
        told = client.describe_spot_price_history(
            InstanceTypes=[pool.instance_type],
            AvailabilityZone=pool.zone,
            ProductDescriptions=["Linux/UNIX"],
            MaxResults=1,
        )
        return round(float(told["SpotPriceHistory"][0]["SpotPrice"]) * 1_000_000)


@dataclass(frozen=True)
class GcpAccount:
    """A Google Cloud project; credentials are Google's usual ones."""

    project: str
    region: str
    zones: tuple[str, ...]
    machine_type: str
    image: str
    network: str
    subnetwork: str | None
    endpoint: str | None
    name = "gcp"

    def problem(self) -> str | None:
        """Whether the SDK is there and finds credentials."""
        try:
            import google.auth
            from google.auth.exceptions import GoogleAuthError
            from google.cloud import compute_v1
        except ImportError:
            return "google-cloud-compute is not installed"
        del compute_v1
        if self.endpoint is not None:
            return None
        try:
            google.auth.default()
        except GoogleAuthError as error:
            return f"Google's client finds no credentials: {error}"
        return None

    def provider(self, deployment_id: str) -> CloudProvider:
        """A provider for one test."""
        from app.adapters.providers.gcp.client.compute_api import ComputeApi
        from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
        from app.adapters.providers.gcp.provider import GcpProvider

        settings = GcpSettings(
            project=self.project,
            regions=(self.region,),
            zones=self.zones,
            network=self.network,
            subnetwork=self.subnetwork,
            image=self.image,
            disk_gb=100,
            max_run_seconds=1_800,
            endpoint=self.endpoint,
        )
        return GcpProvider(
            settings,
            ComputeApi(settings),
            _catalog("gcp", self.machine_type),
            deployment_id=lambda: deployment_id,
            render=_script,
            price_of=lambda pool: GCP_MICROUSD_PER_HOUR,
        )

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """Two zones of one region."""
        return tuple(
            Pool("gcp", self.region, zone, self.machine_type, market) for zone in self.zones
        )

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """As the provider was told."""
        return GCP_MICROUSD_PER_HOUR


def accounts_of(environment: Mapping[str, str]) -> list[Account]:
    """Those that variables name. Raises ValueError for a variable that cannot be used."""

    def told(name: str, otherwise: str = "") -> str:
        return environment.get(PREFIX + name, "").strip() or otherwise

    def words(name: str, otherwise: str = "") -> tuple[str, ...]:
        return tuple(one.strip() for one in told(name, otherwise).split(",") if one.strip())

    found: list[Account] = []
    if region := told("AWS_REGION"):
        found.append(
            AwsAccount(
                region=region,
                zones=_two(words("AWS_ZONES", f"{region}a,{region}b"), "AWS_ZONES"),
                machine_type=told("AWS_TYPE", "t3.micro"),
                image=told("AWS_IMAGE", AWS_IMAGE),
                subnets=words("AWS_SUBNETS"),
                security_groups=words("AWS_SECURITY_GROUPS"),
                endpoint_url=told("AWS_ENDPOINT_URL") or None,
            )
        )
    if project := told("GCP_PROJECT"):
        region = told("GCP_REGION", "us-central1")
        found.append(
            GcpAccount(
                project=project,
                region=region,
                zones=_two(words("GCP_ZONES", f"{region}-a,{region}-b"), "GCP_ZONES"),
                machine_type=told("GCP_TYPE", "e2-small"),
                image=told("GCP_IMAGE", GCP_IMAGE),
                network=told("GCP_NETWORK", "global/networks/default"),
                subnetwork=told("GCP_SUBNETWORK") or None,
                endpoint=told("GCP_ENDPOINT") or None,
            )
        )
    return found


def _two(zones: tuple[str, ...], name: str) -> tuple[str, ...]:
    if len(zones) != 2:
        raise ValueError(f"{PREFIX}{name} must name two zones, separated by a comma")
    return zones


def _script(user_data: Mapping[str, str]) -> str:
    """Machines of the suite end by themselves after half an hour, whatever becomes of it."""
    return "#!/bin/sh\nsleep 1800\npoweroff\n"


def _catalog(provider: str, machine_type: str) -> MachineCatalog:
    small = MachineType(
        provider=provider,
        name=machine_type,
        gpu="",
        gpu_count=0,
        gpu_memory_gb=0,
        interconnect="pcie",
        network_gbps=1.0,
        vcpus=2,
        memory_gb=1,
    )
    return MachineCatalog(provider, date(2026, 1, 1), "the suite's own", (small,))
