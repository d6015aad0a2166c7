"""A right that the worker's policy lacks is named by its own name, with the statement to add."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from app.adapters.providers.aws.diagnosing.permission_checks import READS, STATEMENTS
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.ports.provider_diagnosis import CheckResult
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import DEPLOYMENT, a_volume, aws_order, provider_for
from tests.support.aws.aws_world import IMAGE
from tests.support.aws.iam_policy import shipped_policy

_SHIPPED: list[dict[str, Any]] = shipped_policy(deployment=DEPLOYMENT)["Statement"]
_SPOT_REQUEST = "arn:aws:ec2:*:*:spot-instances-request/*"
PROFILE = "lowtide-machine"


def policy() -> list[dict[str, Any]]:
    """The shipped one, bound to the deployment."""
    return copy.deepcopy(_SHIPPED)


def statement(statements: list[dict[str, Any]], sid: str) -> dict[str, Any]:
    return next(one for one in statements if one["Sid"] == sid)


def without(right: str) -> list[dict[str, Any]]:
    """The policy without one action, wherever it is."""
    statements = policy()
    for one in statements:
        actions = [one["Action"]] if isinstance(one["Action"], str) else one["Action"]
        one["Action"] = [each for each in actions if each != right]
    return statements


def findings(fake: AwsFake, **settings: Any) -> dict[str, CheckResult]:
    given = {"regions": ("us-east-1",), "instance_profile": PROFILE, **settings}
    return {one.name: one for one in provider_for(fake, **given).diagnose()}


def wrong(found: dict[str, CheckResult]) -> dict[str, CheckResult]:
    return {name: one for name, one in found.items() if not one.ok and "quota" not in name}


def test_a_policy_may_ask_for_the_deployment_itself(ours: AwsFake) -> None:
    """Two deployments in one account: a condition on the tag's value holds for dry runs, too."""
    statements = policy()
    for one in statements:
        null = one.get("Condition", {}).pop("Null", None)
        if null is not None:
            (key,) = null
            one["Condition"]["StringEquals"] = {key: DEPLOYMENT}
    ours.policy = statements
    assert wrong(findings(ours, image=IMAGE)) == {}
    provider = provider_for(ours, regions=("us-east-1",), image=IMAGE)
    provider._read_deployment_id = _unknown
    found = {one.name: one for one in provider.diagnose()}
    assert not found["launch spot us-east-1"].ok, "without its id it can only be tried as another"


def _unknown() -> str:
    raise ProviderError(RefusalKind.UNAVAILABLE, "the database is away")


@pytest.fixture
def ours(fake: AwsFake) -> AwsFake:
    """An account in which a launch has left a machine, a template and a volume of ours."""
    (_,) = provider_for(fake, regions=("us-east-1",)).launch(aws_order()).accepted
    a_volume(fake)
    return fake


def test_the_shipped_policy_passes(ours: AwsFake) -> None:
    ours.policy = policy()
    machines, templates = dict(ours.world.machines), templates_of(ours)
    found = findings(ours, image=IMAGE)
    assert wrong(found) == {}
    for market in ("spot", "on-demand"):
        told = found[f"launch {market} us-east-1"].sentence
        assert "with the role of lowtide-machine (iam:PassRole)" in told
    assert ours.world.machines == machines
    assert templates_of(ours) == templates
    assert all(one.lives for one in ours.world.machines.values())


def test_nothing_of_ours_is_said_not_to_be_tried(fake: AwsFake) -> None:
    fake.policy = policy()
    found = findings(fake, image=IMAGE)
    assert wrong(found) == {}
    assert "TerminateInstances" in found["permissions us-east-1"].sentence
    assert "`lowtide doctor --launch` does" in found["permissions us-east-1"].sentence


def test_a_policy_that_denies_every_spot_launch_is_seen(fake: AwsFake) -> None:
    """CreateFleet cannot tag the spot request, so that a condition on its tag denies it."""
    statements = policy()
    into, tagged = (
        statement(statements, "LaunchIntoTheNetwork"),
        statement(statements, "LaunchOnlyWhatCarriesOurTag"),
    )
    into["Resource"].remove(_SPOT_REQUEST)
    tagged["Resource"] = sorted({*tagged["Resource"], _SPOT_REQUEST})
    fake.policy = statements
    found = findings(fake, image=IMAGE)
    assert set(wrong(found)) == {"launch spot us-east-1"}
    spot = found["launch spot us-east-1"]
    assert "ec2:RunInstances on spot-instances-request is not allowed" in spot.sentence
    assert "statement LaunchIntoTheNetwork" in spot.remedy


FEW = (
    ("iam:PassRole", "launch spot us-east-1"),
    ("ec2:CreatePlacementGroup", "permissions us-east-1"),
    ("ec2:TerminateInstances", "permissions us-east-1"),
    ("sqs:DeleteMessage", "interruption queue"),
)
MANY = (
    ("ec2:RunInstances", "launch spot us-east-1"),
    ("ec2:CreateFleet", "launch on-demand us-east-1"),
    ("ec2:CreateTags", "launch spot us-east-1"),
    ("ec2:CreateLaunchTemplate", "permissions us-east-1"),
    ("ec2:DeletePlacementGroup", "permissions us-east-1"),
    ("ec2:DeleteVolume", "permissions us-east-1"),
    ("ec2:DeleteLaunchTemplate", "permissions us-east-1"),
    ("ec2:DescribeInstances", "permissions us-east-1"),
    ("ec2:DescribeVolumes", "permissions us-east-1"),
    ("ec2:DescribeSpotPriceHistory", "permissions us-east-1"),
    ("ec2:DescribeSubnets", "subnets us-east-1"),
    ("ec2:DescribeImages", "image us-east-1"),
    ("servicequotas:ListServiceQuotas", "quota spot us-east-1"),
    ("pricing:GetProducts", "price list"),
    ("ec2:GetSpotPlacementScores", "placement scores"),
    ("sqs:ReceiveMessage", "interruption queue"),
    ("sqs:GetQueueAttributes", "interruption queue"),
)


@pytest.mark.parametrize("rights", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_each_right_is_missed_by_its_name(
    ours: AwsFake, rights: tuple[tuple[str, str], ...]
) -> None:
    for right, where in rights:
        ours.policy = without(right)
        finding = findings(ours, image=IMAGE)[where]
        assert not finding.ok, right
        assert right in finding.sentence, finding
        assert right in finding.remedy
        # A launch's rights stand in two statements, by what they are on.
        sids = [one["Sid"] for one in _SHIPPED if right in one["Action"]]
        assert any(sid in finding.remedy for sid in sids), finding


def test_several_missing_rights_are_one_finding(ours: AwsFake) -> None:
    statements = without("ec2:CreatePlacementGroup")
    look = statement(statements, "Look")
    look["Action"].remove("ec2:DescribeVolumes")
    look["Action"].remove("ec2:DescribePlacementGroups")
    ours.policy = statements
    told = findings(ours, image=IMAGE)["permissions us-east-1"]
    for right in ("DescribeVolumes", "DescribePlacementGroups", "CreatePlacementGroup"):
        assert f"ec2:{right}" in told.sentence
    assert told.remedy.count("statement Look") == 1


def test_the_statements_named_are_those_of_the_policy() -> None:
    for right, sid in STATEMENTS.items():
        assert right in statement(_SHIPPED, sid)["Action"], right
    look = statement(_SHIPPED, "Look")["Action"]
    for read in READS:
        assert f"ec2:{''.join(word.capitalize() for word in read.split('_'))}" in look


def templates_of(fake: AwsFake) -> list[str]:
    return [one.name for one in fake.records("us-east-1").describe_launch_templates()]
