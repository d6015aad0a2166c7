"""The agent reads secrets of clouds: signed and bounded, with a clear word for each refusal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.adapters.providers.aws.client.secret_policy import secret_policy
from app.domain.deployment.cloud_secrets import read_cloud_name
from tests.support.agent.fake_secret_services import (
    ACCOUNT,
    PROJECT,
    REGION,
    FakeAwsSecrets,
    FakeGoogleSecrets,
)
from trainer.agent.secrets import cloud_secrets
from trainer.agent.secrets.cloud_secrets import CloudSecretReader
from trainer.agent.secrets.secret_requests import SecretUnreadable
from trainer.protocol.run_config import AWS_SECRETS, GOOGLE_SECRETS, CloudSecrets

VALUE = "hunter2-of-a-cloud"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/lowtide-job-data"


@pytest.fixture
def aws() -> Iterator[FakeAwsSecrets]:
    named = [read_cloud_name(f"aws-sm:vision/{one}") for one in ("wandb", "binary", "gone", "big")]
    values: dict[str, str | bytes] = {
        "vision/wandb": VALUE, "vision/binary": b"\xff\x00", "other": VALUE,
        "vision/wandb-second": VALUE, "vision/big": "x" * 65_537,
    }  # fmt: skip
    service = FakeAwsSecrets(values=values, policy=secret_policy(named, ROLE, REGION))
    yield service
    service.close()


@pytest.fixture
def google() -> Iterator[FakeGoogleSecrets]:
    values = {"vision-wandb": VALUE.encode(), "vision-binary": b"\xff", "vision-off": None,
              "vision-nul": b"a\0b", "vision-empty": b"", "other": b"x",
              "vision-big": b"x" * 65_537, "vision-umlaut": "schlüssel".encode()}  # fmt: skip
    service = FakeGoogleSecrets(values=values)
    yield service
    service.close()


def of_aws(service: FakeAwsSecrets, name: str, **changed: str) -> CloudSecrets:
    credential = {**service.credential, **changed}
    return CloudSecrets(AWS_SECRETS, REGION, service.url, {"NAME": name}, credential)


def of_google(service: FakeGoogleSecrets, name: str, token: str | None = None) -> CloudSecrets:
    credential = {"token": service.token if token is None else token}
    return CloudSecrets(GOOGLE_SECRETS, PROJECT, service.url, {"NAME": name}, credential)


def refused(asked: CloudSecrets, waits: list[float] | None = None) -> str:
    reader = CloudSecretReader(wait=(waits if waits is not None else list[float]()).append)
    with pytest.raises(SecretUnreadable) as error:
        reader.read([asked])
    assert VALUE not in str(error.value)
    for secret in asked.credential.values():
        assert secret not in str(error.value)
        assert secret not in repr(asked)
    return str(error.value)


def test_values_of_both_clouds_by_the_names_in_the_job(
    aws: FakeAwsSecrets, google: FakeGoogleSecrets
):
    asked = [of_aws(aws, "vision/wandb"), of_google(google, "vision-umlaut")]
    asked[1].names["OTHER"] = "vision-wandb"
    asked[1].names["LAST"] = asked[1].names.pop("NAME")
    found = CloudSecretReader().read(asked)
    assert found == {"NAME": VALUE, "OTHER": VALUE, "LAST": "schlüssel"}
    assert (aws.asked, google.asked) == (["vision/wandb"], ["vision-wandb", "vision-umlaut"])
    assert CloudSecretReader().read([]) == {}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "vision/gone",
            "NAME: the secret vision/gone of AWS Secrets Manager in eu-west-1 is not th",
        ),
        ("other", "may not be read: the role of jobs' data needs secretsmanager:GetSecretValue"),
        ("vision/wandb-second", "may not be read"),
        ("vision/binary", "is binary, and no variable holds that"),
        ("vision/big", "has 65,537 bytes; at most 65,536"),
    ],
)
def test_each_refusal_of_aws_says_what_to_do(aws: FakeAwsSecrets, name: str, told: str):
    waits: list[float] = []
    assert told in refused(of_aws(aws, name), waits)
    assert (len(aws.asked), waits) == (1, []), "another try would not help"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "vision-gone",
            f"vision-gone of Google Secret Manager in the project {PROJECT} is not ther",
        ),
        ("other", "the project's `secret_account` needs roles/secretmanager.secretAccessor"),
        ("vision-off", "its newest version is disabled"),
        ("vision-binary", "is binary"),
        ("vision-nul", "is binary"),
        ("vision-empty", "is empty"),
        ("vision-big", "has 65,537 bytes; at most 65,536"),
    ],
)
def test_each_refusal_of_google_says_what_to_do(google: FakeGoogleSecrets, name: str, told: str):
    assert told in refused(of_google(google, name))
    assert google.asked == [name]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("DecryptionFailure", "cannot be decrypted: the role of jobs' data needs kms:Decrypt"),
        ("InvalidRequestException", "cannot be read in its state: injected"),
        ("ExpiredTokenException", "is the machine's clock right?"),
        ("InvalidParameterException", "answered with 400 InvalidParameterException: injected"),
    ],
)
def test_other_errors_of_aws_end_the_first_try(aws: FakeAwsSecrets, code: str, told: str):
    aws.troubles = [(400, code)]
    waits: list[float] = []
    assert told in refused(of_aws(aws, "vision/wandb"), waits)
    assert waits == []


def test_credentials_that_are_not_accepted_say_so(aws: FakeAwsSecrets, google: FakeGoogleSecrets):
    for changed in ({"token": "another-token"}, {"secret_access_key": "another-key"}):
        assert "AWS did not accept this machine's cr" in refused(
            of_aws(aws, "vision/wandb", **changed)
        )
    assert "did not accept the token" in refused(of_google(google, "vision-wandb", "another"))


def test_a_service_that_is_busy_is_asked_again_and_not_for_ever(
    aws: FakeAwsSecrets, google: FakeGoogleSecrets
):
    waits: list[float] = []
    aws.troubles = [(500, "InternalServiceError"), (400, "ThrottlingException")]
    reader = CloudSecretReader(wait=waits.append)
    assert reader.read([of_aws(aws, "vision/wandb")]) == {"NAME": VALUE}
    assert waits == [0.5, 1.5]
    google.troubles = [(503, "UNAVAILABLE"), (429, "RESOURCE_EXHAUSTED")] * 2
    waits.clear()
    told = refused(of_google(google, "vision-wandb"), waits)
    assert "answered with 429 RESOURCE_EXHAUSTED: injected" in told
    assert waits == list(cloud_secrets.PAUSES_SECONDS)


def test_one_that_does_not_answer_is_given_up(
    google: FakeGoogleSecrets, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cloud_secrets, "SOCKET_SECONDS", 0.1)
    google.troubles = [0.6] * 4
    assert "cannot be read: 127.0.0.1:" in refused(of_google(google, "vision-wandb"))
    nobody = CloudSecrets(
        GOOGLE_SECRETS, PROJECT, "http://127.0.0.1:1", {"A": "b"}, {"token": "tok-en"}
    )
    times = iter((0.0, 0.0, 0.0, 119.9))
    reader = CloudSecretReader(now=lambda: next(times, 200.0), wait=lambda _: None)
    with pytest.raises(SecretUnreadable, match="Connection refused"):
        reader.read([nobody])


def test_answers_that_are_no_answers(google: FakeGoogleSecrets, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cloud_secrets, "ANSWER_BYTES_MAX", 1_000)
    assert "the answer of its service is too long" in refused(of_google(google, "vision-big"))
    google.troubles = [(302, "FOUND")]
    assert "answered with 302" in refused(of_google(google, "vision-wandb"))
    plain = CloudSecrets(
        GOOGLE_SECRETS, PROJECT, "http://sm.example", {"A": "b"}, {"token": "tok-en"}
    )
    assert "is read by https alone" in refused(plain)
    other = CloudSecrets("azure", "west", "https://x.example", {"A": "b"}, {"token": "tok-en"})
    assert "start a newer one" in refused(other)
