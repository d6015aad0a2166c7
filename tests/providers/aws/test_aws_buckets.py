"""Where S3's buckets are, asked through the real client."""

from __future__ import annotations

import boto3
import pytest

from app.ports.bucket_places import BucketPlaceSource
from app.ports.cloud_provider import ProviderError
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import provider_for, shared_session


@pytest.mark.parametrize("region", ["us-east-1", "us-west-2", "eu-west-1"])
def test_a_bucket_is_where_it_was_made(fake: AwsFake, region: str) -> None:
    session: boto3.Session = shared_session()
    client = session.client("s3", region_name=region, endpoint_url=fake.url)
    where = {} if region == "us-east-1" else {"LocationConstraint": region}
    more = {"CreateBucketConfiguration": where} if where else {}
    client.create_bucket(Bucket=f"acme-{region}", **more)
    provider = provider_for(fake)
    assert isinstance(provider, BucketPlaceSource)
    assert provider.bucket_scheme == "s3"
    assert provider.locate_bucket(f"acme-{region}") == region


def test_what_s3_does_not_tell_is_an_error_with_its_reason(fake: AwsFake) -> None:
    provider = provider_for(fake)
    with pytest.raises(ProviderError, match="NoSuchBucket"):
        provider.locate_bucket("nobodys-bucket")
