"""What a person tells the provider about the AWS account. Not here: where it is read from.

How to fill each field is in docs/aws.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.adapters.providers.machine_images import image_for, shipped_images

PROVIDER: Final = "aws"
CLOUD: Final = "ec2"
"""Whose billing rules hold."""

DEPLOYMENT_TAG: Final = "lowtide:deployment"
TOKEN_TAG: Final = "lowtide:token"
ORDER_TAG: Final = "lowtide:order"


def own_prefix(deployment_id: str) -> str:
    """How names of the deployment's templates and groups begin; no other deployment's do.

    An id begins with the minute of its making, which two deployments may share, and ends at random.
    """
    return f"lowtide-{deployment_id[:8]}{deployment_id[-8:]}-"


DEFAULT_IMAGE: Final = shipped_images(PROVIDER).default


@dataclass(frozen=True)
class AwsSettings:
    """The account as the provider uses it.

    network_tag: subnets and security groups that carry this tag (key, value) are used, unless
    their ids are given. image: an AMI id, or the name of an SSM parameter that holds one, for the
    GPUs that the shipped images serve; images: the same by GPU, where one needs another.
    instance_profile: name of the machines' role; None gives them none. kms_key_id: encrypts root
    volumes; None takes the account's own key for EBS. volume_throughput_mbps: speed of a root
    volume, in MB/s; more than 125 has its price. queue_urls: where EventBridge puts the regions'
    interruption events, each an address or `REGION=ADDRESS`; none when only the machines' own
    watchers tell. endpoint_url: one address for every service, for tests.
    """

    regions: tuple[str, ...]
    network_tag: tuple[str, str] = ("lowtide:network", "default")
    subnet_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    image: str = DEFAULT_IMAGE
    images: tuple[tuple[str, str], ...] = ()
    instance_profile: str | None = None
    kms_key_id: str | None = None
    root_volume_gb: int = 100
    volume_throughput_mbps: int = 125
    public_ip: bool = False
    queue_urls: tuple[str, ...] = ()
    endpoint_url: str | None = None

    def image_for(self, gpu: str) -> str | None:
        """The image for machines with this GPU ("": none), None where nobody named one."""
        general = None if self.image == DEFAULT_IMAGE else self.image
        return image_for(PROVIDER, gpu, general, self.images)
