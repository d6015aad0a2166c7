"""A whole deployment on two fake clouds: its programs, both clouds, their machines, two stores.

Not here: what happens to it (tests/e2e/own_deployment/test_clouds.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.aws.aws_fake import IMAGE_PARAMETER, AwsFake, open_aws_fake
from tests.support.aws.aws_parts import ENVIRONMENT
from tests.support.deployment.cloud_machines import MachineHall, RentedMachine
from tests.support.deployment.cloud_sources import AwsMachines, GceMachines
from tests.support.deployment.control_plane import ControlPlane, Document, running_control_plane
from tests.support.gce.gce_fake import FakeGce, open_fake_gce
from tests.support.gce.gce_fake_bill import bill_microusd
from tests.support.gce.gce_fake_engine import World
from tests.support.gce.gce_fake_state import PROJECT, Vm
from tests.support.object_stores.scoped_gcs import DATA_ACCOUNT, ScopedGcs
from tests.support.object_stores.scoped_s3 import DATA_ROLE, ScopedS3
from tests.support.outgoing_guard.outgoing_traffic import OutgoingTraffic, watched_traffic
from tests.support.servers.free_port import free_port

AWS_REGION, GCP_REGION = "us-east-1", "us-central1"
_QUICK = {
    "LOWTIDE_REPORT_INTERVAL_SECONDS": "0.5",
    "LOWTIDE_DESCRIBE_PERIOD_SECONDS": "2",
    "LOWTIDE_DESCRIBE_SOON_SECONDS": "0.5",
    "LOWTIDE_ABSENCE_AGE_SECONDS": "10",
    "LOWTIDE_ABSENCE_GAP_SECONDS": "1",
    "LOWTIDE_SWEEP_PERIOD_SECONDS": "5",
    "LOWTIDE_PRICE_PERIOD_SECONDS": "10",
    "LOWTIDE_NEXT_LOOK_SECONDS": "1",
    "LOWTIDE_ACCRUAL_PERIOD_SECONDS": "2",
    "LOWTIDE_REGISTRATION_TIMEOUT_SECONDS": "90",
    "LOWTIDE_DRAIN_SECONDS": "5",
    "LOWTIDE_BOOT_SECONDS": "5",
}
# What the fake sells an L4 machine for, of its own list of SKUs: 8 cores, 32 GB, one GPU.
_G2_NANOS = {
    "SPOT": 8 * 9_995_000 + 32 * 1_171_000 + 224_000_000,
    "STANDARD": 8 * 24_988_000 + 32 * 2_927_000 + 560_040_000,
}


@dataclass
class CloudDeployment:
    """Everything of it. `plane` is the product; the rest is the world around it."""

    plane: ControlPlane
    aws: AwsFake
    gce: FakeGce
    on_aws: AwsMachines
    on_gce: GceMachines
    hall: MachineHall
    traffic: OutgoingTraffic
    s3: ScopedS3
    gcs: ScopedGcs
    google_store_uri: str

    def machine(self, instance: Document) -> RentedMachine:
        """The processes of one of the product's instances, once they are there."""
        machine_id = str(instance["provider_instance_id"])
        self.plane.wait(lambda: machine_id in self.hall.machines, f"the machine {machine_id}")
        return self.hall.machines[machine_id]

    def script(self, instance: Document) -> str:
        """The boot script that the machine was rented with."""
        return (self.machine(instance).root / "user-data").read_text("utf-8")

    def bills(self) -> dict[str, int]:
        """What both clouds charge for every machine they ever started, in micro-USD."""
        return {**self.aws.world.bill(), **bill_microusd(self.gce.engine.all, _per_hour)}

    def launches_per_token(self) -> Counter[str]:
        """How many launches each token has made."""
        made = Counter(self.aws.world.launches)
        made.update(vm.body["labels"]["lowtide_token"] for vm in self.gce.engine.all)
        return made

    def living(self) -> list[str]:
        """Machines that the clouds still charge for."""
        ours = [one.machine_id for one in self.aws.world.machines.values() if one.lives]
        return [*ours, *(vm.name for vm in self.gce.engine.live.values())]

    def volumes(self) -> list[str]:
        """Disks that no machine holds any more."""
        return [one.id for one in self.aws.records(AWS_REGION).describe_volumes()
                if one.status == "available"]  # fmt: skip


@contextmanager
def running_on_fake_clouds(folder: Path) -> Iterator[CloudDeployment]:
    """Start all of it below `folder`; at the end nothing of it runs."""
    with ExitStack() as stack:
        traffic = stack.enter_context(watched_traffic(folder / "sockets"))
        aws = stack.enter_context(open_aws_fake())
        world = World({GCP_REGION: ("us-central1-a", "us-central1-b")}, ("g2-standard-8",))
        gce = stack.enter_context(open_fake_gce(world))
        s3 = stack.enter_context(closing(ScopedS3("lowtide-checkpoints")))
        gcs = stack.enter_context(closing(ScopedGcs("lowtide-store")))
        on_aws = stack.enter_context(closing(AwsMachines(aws, _without_keys(s3))))
        aws.assume = s3.assume
        gce.tokens = gcs.serve
        on_gce = GceMachines(gce, {**_without_keys(s3), "GOOGLE_BASE_URL": gcs.url})
        hall = stack.enter_context(
            closing(MachineHall(folder / "machines", [on_aws, on_gce], traffic.environment))
        )
        port = free_port()
        settings = {
            **_QUICK,
            **traffic.environment,
            **ENVIRONMENT,
            **s3.environment(),
            **gcs.environment(),
            "LOWTIDE_PROVIDERS": "aws,gcp",
            "LOWTIDE_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "LOWTIDE_OBJECT_STORE_URI": gcs.uri,
            "LOWTIDE_CHECKPOINT_URI": f"{s3.uri}/checkpoints",
            "LOWTIDE_CHECKPOINT_BUCKETS": f"{gcs.uri}/mine",
            "LOWTIDE_AWS_REGIONS": AWS_REGION,
            "LOWTIDE_AWS_IMAGE": IMAGE_PARAMETER,
            "LOWTIDE_AWS_ENDPOINT_URL": aws.url,
            "LOWTIDE_AWS_DATA_ROLE": DATA_ROLE,
            "LOWTIDE_GCP_DATA_ACCOUNT": DATA_ACCOUNT,
            "LOWTIDE_AWS_QUEUE_URL": aws.queue_url,
            "LOWTIDE_GCP_PROJECT": PROJECT,
            "LOWTIDE_GCP_REGIONS": GCP_REGION,
            "LOWTIDE_GCP_ENDPOINT": gce.endpoint,
            "LOWTIDE_GCP_CATALOG_URL": gce.endpoint,
        }
        plane = stack.enter_context(running_control_plane(settings, port=port))
        yield CloudDeployment(plane, aws, gce, on_aws, on_gce, hall, traffic, s3, gcs, gcs.uri)


def _without_keys(s3: ScopedS3) -> dict[str, str]:
    """Machines know where S3 is; their keys come with answers to reports, the region from us."""
    secret = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ALLOW_HTTP", "AWS_REGION")
    return {name: value for name, value in s3.environment().items() if name not in secret}


def _per_hour(vm: Vm) -> int:
    """Micro-USD an hour."""
    return round(_G2_NANOS[vm.model] / 1_000)
