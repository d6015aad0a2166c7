"""The settings of AWS as environment variables: part of `app.settings.Settings`.

Loads no client of Amazon's. Not here: what the provider works with (`aws_settings`), and the
credentials, which the SDK finds in its own way.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.machine_images import read_named_images

_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-\d", re.ASCII)

_ROLE_ARN: Final = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]{1,512}", re.ASCII)


def _words(value: object) -> Any:
    """`"us-east-1, us-west-2"` as names in their order."""
    if not isinstance(value, str):
        return value
    return tuple(word.strip() for word in value.split(",") if word.strip())


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Images = Annotated[tuple[tuple[str, str], ...], NoDecode, BeforeValidator(read_named_images)]


class AwsVariables(BaseSettings):
    """`LOWTIDE_AWS_…`."""

    aws_regions: Words = Field(
        default=(),
        description="Regions of AWS to rent in, separated by commas; required by `aws`",
        json_schema_extra={"default": None},
    )
    aws_network_tag: str = Field(
        default="lowtide:network=default",
        description="Tag, `KEY=VALUE`, of the subnets and security groups of the machines",
    )
    aws_subnets: Words = Field(
        default=(),
        description="Subnet ids instead of those with the tag, separated by commas",
        json_schema_extra={"default": None},
    )
    aws_security_groups: Words = Field(
        default=(),
        description="Security group ids instead of those with the tag, separated by commas",
        json_schema_extra={"default": None},
    )
    aws_image: str = Field(
        default=AwsSettings.image,
        description="Image with NVIDIA's driver: an AMI id, or an SSM parameter that holds one",
        json_schema_extra={"default": "AWS's deep-learning base image, Ubuntu 24.04"},
    )
    aws_images: Images = Field(
        default=(),
        description="Images for some GPUs instead of that one, `V100=ami-…`, separated by "
        "commas; V100 (p3) is offered only with one",
        json_schema_extra={"default": None},
    )
    aws_instance_profile: str | None = Field(
        default=None,
        description="Name of the machines' instance profile, for rights of your own (ECR)",
    )
    aws_data_role: str | None = Field(
        default=None,
        description="ARN of the role of jobs' data, which is limited to each job's own folders; "
        "without it machines use their instance profile's rights on whole buckets",
    )
    aws_kms_key: str | None = Field(
        default=None, description="KMS key that encrypts root volumes; none: the account's own"
    )
    aws_root_volume_gb: int = Field(
        default=AwsSettings.root_volume_gb,
        ge=30,
        le=16_384,
        description="Size of the root volume in GB, if a job names none",
    )
    aws_volume_throughput: int = Field(
        default=AwsSettings.volume_throughput_mbps,
        ge=125,
        le=750,
        description="Throughput of the root volume in MB/s; each above 125 costs as much as 0.5 GB",
    )
    aws_public_ip: bool = Field(
        default=False, description="Give machines a public address; without it they need a NAT"
    )
    aws_queue_url: Words = Field(
        default=(),
        description="SQS queue with EventBridge's interruption events, one for each region, "
        "separated by commas; without it only the machines' agents notice interruptions",
        json_schema_extra={"default": None},
    )
    aws_endpoint_url: str | None = Field(
        default=None, description="Address of AWS's APIs, if it is not Amazon's (for tests)"
    )

    @field_validator("aws_regions")
    @classmethod
    def _region_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if _REGION.fullmatch(name) is None:
                raise ValueError(f"{name!r} is not a region; write names like us-east-1")
        return value

    @field_validator("aws_network_tag")
    @classmethod
    def _tag(cls, value: str) -> str:
        key, separator, word = value.partition("=")
        if not separator or not key or not word:
            raise ValueError("must have the form KEY=VALUE")
        return value

    @field_validator("aws_data_role")
    @classmethod
    def _role_arn(cls, value: str | None) -> str | None:
        if value is not None and _ROLE_ARN.fullmatch(value) is None:
            raise ValueError("must be a role's ARN like arn:aws:iam::123456789012:role/NAME")
        return value

    @field_validator("aws_queue_url")
    @classmethod
    def _queues(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            region, separator, address = entry.partition("=")
            named = separator and _REGION.fullmatch(region) is not None
            if not (address if named else entry).startswith(("https://", "http://")):
                raise ValueError(
                    f"{entry[:80]!r} must begin with https://, or with REGION=https://"
                )
        return value

    @field_validator("aws_endpoint_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError("must begin with https://")
        return value


def aws_problem(variables: AwsVariables) -> str | None:
    """A sentence saying why the provider cannot be used as it is set, else None."""
    if not variables.aws_regions:
        return "aws is off: set LOWTIDE_AWS_REGIONS to the regions to rent in, as us-east-1"
    return None


def aws_settings_of(variables: AwsVariables) -> AwsSettings:
    """What the provider works with."""
    key, _, value = variables.aws_network_tag.partition("=")
    return AwsSettings(
        regions=tuple(dict.fromkeys(variables.aws_regions)),
        network_tag=(key, value),
        subnet_ids=variables.aws_subnets,
        security_group_ids=variables.aws_security_groups,
        image=variables.aws_image,
        images=variables.aws_images,
        instance_profile=variables.aws_instance_profile,
        kms_key_id=variables.aws_kms_key,
        root_volume_gb=variables.aws_root_volume_gb,
        volume_throughput_mbps=variables.aws_volume_throughput,
        public_ip=variables.aws_public_ip,
        queue_urls=variables.aws_queue_url,
        endpoint_url=variables.aws_endpoint_url,
    )
