"""Where an S3 bucket is. Source: S3 API, GetBucketLocation.

Not here: reading and writing objects (`app.adapters.object_stores`).
"""

from __future__ import annotations

from typing import Final

from app.adapters.providers.aws.client.clients import AwsClients

_OLD_NAMES: Final = {None: "us-east-1", "": "us-east-1", "EU": "eu-west-1"}
"""S3 names no region for its first one, and has an old name for another."""


def locate_bucket(clients: AwsClients, bucket: str, region: str) -> str:
    """The bucket's region; `region` is any of ours, where S3 is asked. Raises ProviderError."""
    told = clients.ask("s3", region, "get_bucket_location", Bucket=bucket)
    constraint = told.get("LocationConstraint")
    return _OLD_NAMES.get(constraint) or str(constraint)
