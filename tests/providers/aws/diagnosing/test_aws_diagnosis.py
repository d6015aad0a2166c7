"""What a provider finds about its own account, and the types that the account may rent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.provider import AwsProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.machine_catalog import make_catalog
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.ports.provider_diagnosis import CheckResult, MachineTypeSource, ProviderDiagnosis
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import a_script, provider_for, settings_for, shared_session
from tests.support.aws.aws_world import IMAGE


def findings(fake: AwsFake, **settings: object) -> dict[str, CheckResult]:
    provider = provider_for(fake, regions=("us-east-1",), **settings)
    assert isinstance(provider, ProviderDiagnosis)
    found = provider.diagnose()
    assert all((one.ok and not one.warns) == (one.remedy == "") for one in found)
    return {one.name: one for one in found}


def test_a_new_account_lacks_quota_and_a_group_open_to_itself(fake: AwsFake) -> None:
    (group, *_) = fake.records("us-east-1").describe_security_groups()
    for one in fake.records("us-east-1").describe_security_groups():
        one.ingress_rules.clear()
    found = findings(fake)
    assert not found["quota spot us-east-1"].ok
    assert "0 vCPUs" in found["quota spot us-east-1"].sentence
    groups = found["security groups us-east-1"]
    assert (groups.ok, groups.warns) == (True, True), "one machine alone needs no such rule"
    assert group.id in groups.sentence
    assert {name for name, one in found.items() if not one.ok} == {
        "quota spot us-east-1",
        "quota on-demand us-east-1",
    }


def test_quota_of_one_market_alone_is_worth_a_word(fake: AwsFake) -> None:
    fake.world.quotas["P5", True] = 192
    found = findings(fake)
    assert found["quota spot us-east-1"].sentence.endswith("P5 Spot Instance Requests: 192 vCPUs")
    lacks = found["quota on-demand us-east-1"]
    assert (lacks.ok, lacks.warns) == (True, True)
    assert "no on-demand machine can be launched" in lacks.sentence


def test_a_set_up_account_is_found_whole(fake: AwsFake) -> None:
    for key in (("G and VT", True), ("G and VT", False)):
        fake.world.quotas[key] = 64
    found = findings(fake)
    assert {name for name, one in found.items() if not one.ok} == set()
    assert "123456789012" in found["credentials"].sentence
    assert "us-east-1a" in found["subnets us-east-1"].sentence
    assert "us-east-1 7 of 10" in found["placement scores"].sentence
    assert fake.world.machines == {}
    assert fake.records("us-east-1").describe_launch_templates() == []


def test_every_image_that_a_launch_could_ask_for_is_looked_at(fake: AwsFake) -> None:
    """Each by itself: one of some GPUs stops nobody who rents others."""
    fake.world.quotas["G and VT", True] = fake.world.quotas["G and VT", False] = 64
    found = findings(fake, images=(("H100", IMAGE), ("V100", "ami-00000000000000000")))
    assert {name for name, one in found.items() if not one.ok} == {"image V100 us-east-1"}
    assert "ami-00000000000000000" in found["image V100 us-east-1"].sentence
    assert found["image V100 us-east-1"].remedy == "set LOWTIDE_AWS_IMAGES"
    assert found["image H100 us-east-1"].sentence.endswith(", for H100")
    assert "launch spot us-east-1" in found


def test_wrong_credentials_hide_the_rest(fake: AwsFake) -> None:
    fake.fail("GetCallerIdentity", "InvalidClientTokenId", 403, times=2)
    found = findings(fake)
    assert list(found) == ["credentials"]
    assert "does not know the access key" in found["credentials"].sentence


def test_a_region_that_is_not_enabled_does_not_hide_good_credentials(fake: AwsFake) -> None:
    fake.world.region_faults["us-east-1"] = ("OptInRequired", 403, 0.0)
    found = {one.name: one for one in provider_for(fake).diagnose()}
    assert found["credentials"].ok
    assert "subnets us-west-2" in found
    fake.world.region_faults["us-west-2"] = fake.world.region_faults["us-east-1"]
    (only,) = provider_for(fake).diagnose()
    assert (only.name, only.ok) == ("credentials", False)


@pytest.mark.parametrize(
    ("region", "address"),
    [
        ("us-east-1", "https://sts.us-east-1.amazonaws.com"),
        ("af-south-1", "https://sts.af-south-1.amazonaws.com"),
        ("cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_sts_of_a_region_is_asked_in_that_region(region: str, address: str) -> None:
    """The global one cannot check keys of China, nor sessions of a region that is enabled late."""
    clients = AwsClients(AwsSettings(regions=(region,)), shared_session())
    assert clients._client("sts", region, False).meta.endpoint_url == address


def test_each_lack_is_told_by_itself(fake: AwsFake) -> None:
    fake.world.quotas["P5", True] = fake.world.quotas["G and VT", False] = 192
    fake.fail("GetProducts", "AccessDeniedException", times=2)
    found = findings(fake, image="ami-00000000000000000", queue_url=f"{fake.url}/1/nowhere")
    lacking = {name for name, one in found.items() if not one.ok}
    assert lacking == {"image us-east-1", "interruption queue", "price list"}
    assert "LOWTIDE_AWS_IMAGE" in found["image us-east-1"].remedy
    assert found["price list"].sentence == "missing: pricing:GetProducts"
    assert "statement Look" in found["price list"].remedy


def test_a_deployment_that_nobody_can_tell_hides_nothing_else(fake: AwsFake) -> None:
    """The database does not answer; anything else that goes wrong there is no such finding."""

    def tells(error: Exception) -> Callable[[], str]:
        def tell() -> str:
            raise error

        return tell

    def provider_without(error: Exception) -> AwsProvider:
        return AwsProvider(
            settings_for(fake, regions=("us-east-1",)),
            deployment_id=tells(error),
            render=a_script,
            catalog=shipped_catalog("aws"),
            session=shared_session(),
        )

    away = ProviderError(RefusalKind.UNAVAILABLE, "the database is away")
    first, *others = provider_without(away).diagnose()
    assert (first.name, first.ok) == ("deployment", False)
    assert "the database is away" in first.sentence
    assert {"credentials", "permissions us-east-1"} <= {one.name for one in others if one.ok}
    with pytest.raises(ZeroDivisionError):
        provider_without(ZeroDivisionError()).diagnose()


def test_a_region_that_is_not_enabled_is_one_line(fake: AwsFake) -> None:
    provider = provider_for(fake, regions=("us-east-1", "af-south-1"))
    found = [one for one in provider.diagnose() if "af-south-1" in one.name]
    assert [one.name for one in found] == ["region af-south-1"]
    assert not found[0].ok
    assert "take it out of LOWTIDE_AWS_REGIONS" in found[0].remedy


def test_a_clock_an_hour_off_is_the_first_line(fake: AwsFake) -> None:
    """By the date of the very answer that refuses the signature."""
    fake.world.clock_ahead = timedelta(hours=1)
    found = findings(fake)
    assert list(found) == ["clock", "credentials"]
    assert "ahead of this machine" in found["clock"].sentence
    assert "NTP" in found["clock"].remedy
    fake.world.clock_ahead = timedelta(0)
    assert findings(fake)["clock"].ok


@pytest.mark.parametrize(
    ("state", "code", "ok", "warns"),
    [
        pytest.param("Enabled", "", True, False, marks=pytest.mark.full),
        ("PendingDeletion", "", False, False),
        pytest.param("", "NotFoundException", False, False, marks=pytest.mark.full),
        ("", "AccessDeniedException", True, True),
    ],
)
def test_a_key_of_one_s_own_is_looked_at(
    fake: AwsFake, state: str, code: str, ok: bool, warns: bool
) -> None:
    fake.keys["alias/lowtide"] = state
    if code:
        fake.fail("DescribeKey", code, times=2)
    found = findings(fake, kms_key_id="alias/lowtide")["key us-east-1"]
    assert (found.ok, found.warns) == (ok, warns), found


def test_the_types_of_a_region_make_a_catalog_like_the_shipped_one(fake: AwsFake) -> None:
    provider = provider_for(fake, regions=("us-east-1",))
    assert isinstance(provider, MachineTypeSource)
    types = provider.machine_types()
    shipped = shipped_catalog("aws")
    fresh = make_catalog("aws", shipped.as_of, "test", types)  # checks every entry
    for name in ("g5.xlarge", "p4d.24xlarge", "p5en.48xlarge", "p6-b300.48xlarge", "g6e.48xlarge"):
        assert fresh.get(name) == shipped.get(name)
    assert fresh.get("g4ad.xlarge") is None  # not NVIDIA's
    assert fresh.get("g6f.large") is None  # a part of a GPU
