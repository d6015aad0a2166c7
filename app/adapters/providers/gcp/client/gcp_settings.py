"""What the Google Cloud provider must be told. Not here: the environment (`app.settings`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.adapters.providers.machine_images import image_for, shipped_images
from app.domain.units.durations import exact_duration

PROVIDER: Final = "gcp"

DEFAULT_IMAGE: Final = shipped_images(PROVIDER).default

NOTICE_SECONDS: Final = 120
"""The longest preemption notice there is (Scheduling.preemptionNoticeDuration: 0 or 120 s)."""

PLAIN_NOTICE_SECONDS: Final = 30
"""What a spot VM has without it, best effort: the shutdown period after `preempted` turns TRUE."""

RUN_SECONDS_MIN, RUN_SECONDS_MAX = 30, 120 * 86_400
"""Bounds of `maxRunDuration` (Compute Engine, "Limit the run time of a VM")."""


@dataclass(frozen=True)
class GcpSettings:
    """Durations are seconds.

    zones: where machines may be rented; empty: every zone of `regions`. network, subnetwork: names
    or partial URLs in `project`, a subnetwork's `{region}` is replaced. image: a family or image,
    as `projects/P/global/images/family/F`, for the GPUs that the shipped images serve; images: the
    same by GPU, where one needs another. gpu_subnetworks, rdma_subnetworks: subnetworks for the
    further interfaces of A3, A4 and G4 machines, one for each; a type that needs more goes without.
    disk_type: of the boot disk, where the machine's type takes it. service_account: e-mail that
    machines run as, with `scopes`. max_run_seconds: Google deletes a VM that is this old, whatever
    happens to us. endpoint, catalog_url: other addresses of the APIs, for tests. credentials_file:
    a key or workload-identity file; None: what `google.auth.default` finds.
    """

    project: str
    regions: tuple[str, ...]
    zones: tuple[str, ...] = ()
    network: str = "global/networks/default"
    subnetwork: str | None = None
    image: str = DEFAULT_IMAGE
    images: tuple[tuple[str, str], ...] = ()
    service_account: str | None = None
    scopes: tuple[str, ...] = ("https://www.googleapis.com/auth/devstorage.read_write",)
    external_ip: bool = False
    network_tags: tuple[str, ...] = ("lowtide",)
    disk_gb: int = 100
    disk_type: str = "pd-balanced"
    kms_key: str | None = None
    gpu_subnetworks: tuple[str, ...] = ()
    rdma_subnetworks: tuple[str, ...] = ()
    max_run_seconds: int = 7 * 86_400
    notice_seconds: int = NOTICE_SECONDS
    compact_placement: bool = True
    credentials_file: str | None = None
    endpoint: str | None = None
    catalog_url: str = "https://cloudbilling.googleapis.com"
    request_seconds: float = 20.0
    operation_wait_seconds: float = 20.0
    price_refresh_seconds: float = 3_600.0

    def __post_init__(self) -> None:
        if not self.project or not self.regions:
            raise ValueError("Google Cloud needs a project and at least one region")
        if not RUN_SECONDS_MIN <= self.max_run_seconds <= RUN_SECONDS_MAX:
            least, most = exact_duration(RUN_SECONDS_MIN), exact_duration(RUN_SECONDS_MAX)
            told = exact_duration(self.max_run_seconds)
            raise ValueError(f"a VM's longest run is {least} to {most}, not {told}")
        stray = [zone for zone in self.zones if region_of(zone) not in self.regions]
        if stray:
            raise ValueError(f"zone {stray[0]} lies in none of the regions {self.regions}")

    def image_for(self, gpu: str) -> str | None:
        """The image for machines with this GPU ("": none), None where nobody named one."""
        general = None if self.image == DEFAULT_IMAGE else self.image
        return image_for(PROVIDER, gpu, general, self.images)

    def allows(self, zone: str) -> bool:
        """Whether machines may be rented there."""
        return zone in self.zones if self.zones else region_of(zone) in self.regions


def region_of(zone: str) -> str:
    """`us-central1` of `us-central1-a`."""
    return zone.rpartition("-")[0]
