"""Answers that arrive damaged: typed, with machines neither lost nor started twice."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import xform_name

from app.domain.market.offer import Market
from app.ports.cloud_provider import (
    LaunchOutcomeUnknown,
    MachineState,
    ProviderError,
    RefusalKind,
)
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_fake_garble import EMPTY, EVERYWHERE, NO_FLEET_ID
from tests.support.aws.aws_parts import aws_order, aws_pool, provider_for

BUCKET = "lowtide-checkpoints"
# A launch is tried with every kind; the rest with each kind in make test-full.
KINDS = pytest.mark.parametrize(
    "kind",
    [EVERYWHERE[0], *(pytest.param(one, marks=pytest.mark.full) for one in EVERYWHERE[1:])],
)


@pytest.mark.parametrize("kind", [*EVERYWHERE, NO_FLEET_ID])
def test_a_launch_whose_answer_cannot_be_read_is_open_and_the_token_settles_it(
    fake: AwsFake, kind: str
) -> None:
    provider = provider_for(fake)
    fake.garble("CreateFleet", kind)
    with pytest.raises(LaunchOutcomeUnknown):
        provider.launch(aws_order())
    (found,) = provider_for(fake).find_by_token("token-1")
    (machine,) = provider.launch(aws_order()).accepted
    assert machine.provider_instance_id == found.provider_instance_id
    assert fake.world.launches["token-1"] == 1


@pytest.mark.parametrize(
    ("service", "action", "lacks", "more"),
    [
        ("ssm", "GetParameter", "Parameter", {"Name": "/test/deep-learning/ami-id"}),
        ("pricing", "GetProducts", "FormatVersion", {"ServiceCode": "AmazonEC2"}),
        ("service-quotas", "ListServiceQuotas", "Quotas", {"ServiceCode": "ec2"}),
        ("kms", "DescribeKey", "KeyMetadata", {"KeyId": "alias/lowtide"}),
        ("sqs", "GetQueueAttributes", "Attributes", {}),
        ("sqs", "DeleteMessageBatch", "Successful, Failed", {}),
    ],
)
def test_an_object_without_members_is_a_typed_error(
    fake: AwsFake, service: str, action: str, lacks: str, more: dict[str, Any]
) -> None:
    """Each of these actions tells something whenever it answers."""
    fake.keys["alias/lowtide"] = "Enabled"
    if service == "sqs":
        more = {"QueueUrl": fake.queue_url}
    if action == "DeleteMessageBatch":
        more["Entries"] = [{"Id": "0", "ReceiptHandle": "none"}]
    if action == "GetQueueAttributes":
        more["AttributeNames"] = ["ApproximateNumberOfMessages"]
    clients, operation = provider_for(fake).clients, xform_name(action)
    assert clients.ask(service, "us-east-1", operation, **more)
    fake.garble(action, EMPTY, times=2)
    with pytest.raises(ProviderError, match=f"the answer of {action} lacks {lacks}\\)") as refused:
        clients.ask(service, "us-east-1", operation, **more)
    assert refused.value.kind is RefusalKind.UNAVAILABLE


def test_a_queue_without_messages_answers_with_an_empty_object(fake: AwsFake) -> None:
    """So does SQS ("AWS JSON 1.0 protocol": members without a value are left out)."""
    provider = provider_for(fake)
    fake.garble("ReceiveMessage", EMPTY)
    assert provider.receive_announcements() == ()


@KINDS
def test_a_list_that_cannot_be_read_is_no_list(fake: AwsFake, kind: str) -> None:
    fake.world.page_size = 5
    provider = provider_for(fake)
    order = aws_order(aws_pool(market=Market.ON_DEMAND), count=7)
    ids = tuple(one.provider_instance_id for one in provider.launch(order).accepted)
    assert len(ids) == 7
    for ask in (
        lambda: provider.list_deployment("us-east-1"),
        lambda: provider.describe(ids),
        lambda: provider.find_by_token("token-1"),
    ):
        fake.garble("DescribeInstances", kind, times=2)
        with pytest.raises(ProviderError) as refused:
            ask()
        assert refused.value.kind is RefusalKind.UNAVAILABLE
        fake.world.garbled.clear()
    assert len(provider.describe(ids)) == 7


@KINDS
def test_a_list_with_a_page_that_cannot_be_read_is_not_complete(fake: AwsFake, kind: str) -> None:
    fake.world.page_size = 5
    provider = provider_for(fake)
    for number in range(7):
        provider.launch(aws_order(aws_pool(market=Market.ON_DEMAND), token=f"token-{number}"))
    answered, seen = fake.answer, 0

    def damages_the_second(*asked: object) -> object:
        nonlocal seen
        if b"Action=DescribeInstances" in asked[-1]:  # type: ignore[operator]
            seen += 1
            if seen >= 2:
                fake.garble("DescribeInstances", kind)
        return answered(*asked)  # type: ignore[arg-type]

    fake.answer = damages_the_second  # type: ignore[assignment]
    listed = provider.list_deployment("us-east-1")
    assert (len(listed.machines), listed.complete) == (5, False)


@KINDS
def test_a_termination_that_cannot_be_read_keeps_no_other_machine_alive(
    fake: AwsFake, kind: str
) -> None:
    provider = provider_for(fake)
    ids = [
        provider.launch(aws_order(aws_pool(zone), token=zone)).accepted[0].provider_instance_id
        for zone in ("us-east-1a", "us-west-2a")
    ]
    fake.garble("TerminateInstances", kind)
    with pytest.raises(ProviderError) as refused:
        provider.terminate(tuple(ids))
    assert refused.value.kind is RefusalKind.UNAVAILABLE
    assert {one.state for one in provider.describe(tuple(ids))} == {MachineState.TERMINATED}


@KINDS
@pytest.mark.parametrize(
    ("service", "action", "operation", "more"),
    [
        ("sqs", "ReceiveMessage", "receive_message", {"QueueUrl": "QUEUE"}),
        ("ssm", "GetParameter", "get_parameter", {"Name": "/test/deep-learning/ami-id"}),
        ("pricing", "GetProducts", "get_products", {"ServiceCode": "AmazonEC2"}),
        (
            "service-quotas",
            "ListServiceQuotas",
            "list_service_quotas",
            {"ServiceCode": "ec2"},
        ),
        ("sts", "GetCallerIdentity", "get_caller_identity", {}),
        ("s3", "GetBucketLocation", "get_bucket_location", {"Bucket": BUCKET}),
    ],
)
def test_no_service_passes_a_damaged_answer_for_an_empty_one(
    fake: AwsFake, kind: str, service: str, action: str, operation: str, more: dict[str, str]
) -> None:
    clients = provider_for(fake).clients
    if service == "s3":
        place = {"LocationConstraint": "us-west-2"}
        clients.change(
            "s3", "us-west-2", "create_bucket", Bucket=BUCKET, CreateBucketConfiguration=place
        )
    if service == "sqs":
        more = {"QueueUrl": fake.queue_url}
    assert clients.ask(service, "us-east-1", operation, **more)
    fake.garble(action, kind, times=2)
    with pytest.raises(ProviderError) as refused:
        clients.ask(service, "us-east-1", operation, **more)
    assert refused.value.kind is RefusalKind.UNAVAILABLE
