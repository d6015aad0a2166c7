"""What opens secrets of clouds, from the issuers: narrowed to the names, short, and no more."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.client.aws_variables import AwsVariables
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.job_secret_role import JobSecretRole
from app.adapters.providers.aws.client.secret_policy import secret_policy, secret_policy_problem
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.client.job_secret_token import JobSecretToken
from app.adapters.storage_issuers import secret_grant_problem
from app.domain.deployment.cloud_secrets import CloudSecretName, read_cloud_name
from app.ports.storage_grants import GrantRefused
from tests.support.aws.aws_parts import shared_session
from tests.support.aws.iam_policy import IamRequest, Policy
from tests.support.object_stores.deciding_store import BUCKET, DecidingStore
from tests.support.object_stores.scoped_gcs import DATA_ACCOUNT, SECRET_ACCOUNT
from tests.support.object_stores.scoped_s3 import ACCOUNT, DATA_ROLE, ScopedS3
from trainer.protocol.storage_access import GOOGLE, S3

JOB = UUID(int=7)


def named(*texts: str) -> list[CloudSecretName]:
    return [read_cloud_name(text) for text in texts]


def request(name: str, region: str = "eu-west-1") -> IamRequest:
    arn = f"arn:aws:secretsmanager:{region}:{ACCOUNT}:secret:{name}-AbCd12"
    return IamRequest("secretsmanager:GetSecretValue", arn)


def issuer_of_aws(url: str | None = None, role: str = DATA_ROLE) -> JobSecretRole:
    settings = AwsSettings(regions=("eu-west-1",), endpoint_url=url)
    return JobSecretRole(role, settings, AwsClients(settings, shared_session()))


def test_a_session_opens_exactly_the_named_secrets_and_no_bucket() -> None:
    policy = Policy(
        json.loads(
            secret_policy(named("aws-sm:v/a", "aws-sm:us-east-1:v/b"), DATA_ROLE, "eu-west-1")
        )
    )
    assert policy.grant_of(request("v/a"))
    assert policy.grant_of(request("v/b", "us-east-1"))
    for other in (request("v/b"), request("v/a", "us-east-1"), request("v/a-second"),
                  request("v/ab"), IamRequest("s3:GetObject", f"arn:aws:s3:::{BUCKET}/x"),
                  IamRequest("secretsmanager:DeleteSecret", request("v/a").resource)):  # fmt: skip
        assert not policy.grant_of(other), other
    keys = {"kms:ViaService": "secretsmanager.eu-west-1.amazonaws.com"}
    key = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/x"
    assert policy.grant_of(IamRequest("kms:Decrypt", key, keys))
    of_s3 = {"kms:ViaService": "s3.eu-west-1.amazonaws.com"}
    assert not policy.grant_of(IamRequest("kms:Decrypt", key, of_s3))


def test_more_names_than_a_policy_holds_are_refused_at_submission() -> None:
    few, many = (named(*(f"aws-sm:vision/{i:040}" for i in range(count))) for count in (16, 17))
    assert len(secret_policy(few, DATA_ROLE, "eu-west-1")) <= 2_048
    told = secret_policy_problem(many, DATA_ROLE, "eu-west-1")
    assert told is not None
    assert "17 secrets of AWS need a policy of 2," in told
    assert "AWS takes 2,048: name fewer" in told
    aws = AwsVariables(aws_data_role=DATA_ROLE, aws_regions=("eu-west-1",))
    assert secret_grant_problem(aws, {S3}, few) is None
    assert secret_grant_problem(aws, {S3}, many) == told
    assert "can set LOWTIDE_AWS_DATA_ROLE" in str(secret_grant_problem(aws, {GOOGLE}, few))
    google = named("gcp-sm:a")
    assert secret_grant_problem(aws, {GOOGLE}, google) is None
    assert "can set LOWTIDE_GCP_DATA_ACCOUNT" in str(secret_grant_problem(aws, {S3}, google))
    assert secret_grant_problem(aws, set(), []) is None
    with pytest.raises(GrantRefused, match="need a policy of"):
        issuer_of_aws().issue(many, None, JOB)


def test_machines_ask_where_the_secret_is() -> None:
    aws = issuer_of_aws()
    assert [aws.place_of(one) for one in named("aws-sm:a", "aws-sm:us-east-1:a")] == [
        "eu-west-1", "us-east-1",
    ]  # fmt: skip
    assert aws.endpoint("us-east-1") == "https://secretsmanager.us-east-1.amazonaws.com"
    china = issuer_of_aws(role=DATA_ROLE.replace("arn:aws:", "arn:aws-cn:"))
    assert china.endpoint("cn-north-1") == "https://secretsmanager.cn-north-1.amazonaws.com.cn"
    google = JobSecretToken(DATA_ACCOUNT, GcpSettings("acme-prod", ("us-central1",)))
    assert [google.place_of(one) for one in named("gcp-sm:a", "gcp-sm:other-one:a")] == [
        "acme-prod", "other-one",
    ]  # fmt: skip
    assert google.endpoint("acme-prod") == "https://secretmanager.googleapis.com"


def test_what_is_issued_is_short_and_of_the_right_account(cloud: DecidingStore) -> None:
    if isinstance(cloud.fake, ScopedS3):
        issued = issuer_of_aws(cloud.fake.url).issue(named("aws-sm:v/a"), None, JOB)
        form = cloud.fake.assumed[-1]
        assert (form["DurationSeconds"], form["RoleSessionName"]) == ("900", f"lowtide-{JOB}")
        assert issued.values.keys() == {"access_key_id", "secret_access_key", "token"}
        session = cloud.fake.sessions[issued.values["access_key_id"]]
        at = f"arn:aws:s3:::{BUCKET}"
        for asked in (IamRequest("s3:GetObject", f"{at}/x"), IamRequest("s3:ListBucket", at)):
            assert session.policy.grant_of(asked)
            assert not session.allows(asked), "the role may, this session may not"
        cloud.fake.trouble = ("AccessDenied", 403)
        with pytest.raises(GrantRefused, match="cannot be assumed"):
            issuer_of_aws(cloud.fake.url).issue(named("aws-sm:v/a"), None, JOB)
        return
    settings = GcpSettings("p", ("us-central1",), endpoint=cloud.fake.url)
    issuer = JobSecretToken(DATA_ACCOUNT, settings)
    issued = issuer.issue(named("gcp-sm:a"), SECRET_ACCOUNT, JOB)
    assert issued.values.keys() == {"token"}
    assert (issued.seconds, cloud.fake.lifetimes) == (300.0, ["300s"])
    assert cloud.fake.exchanged == [], "a boundary would open nothing but Cloud Storage"
    with pytest.raises(GrantRefused, match="is the account of jobs' data"):
        issuer.issue(named("gcp-sm:a"), DATA_ACCOUNT, JOB)
    with pytest.raises(GrantRefused, match="no `secret_account`"):
        issuer.issue(named("gcp-sm:a"), None, JOB)
    other = "other@test-project.iam.gserviceaccount.com"
    with pytest.raises(GrantRefused, match=f"of {other} was refused with 403"):
        issuer.issue(named("gcp-sm:a"), other, JOB)
