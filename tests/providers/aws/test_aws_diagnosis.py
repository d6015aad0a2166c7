"""What a provider finds about its own account, and the types that the account may rent."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest

from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.machine_catalog import make_catalog
from app.ports.provider_diagnosis import Finding, MachineTypeSource, ProviderDiagnosis
from tests.support.aws_fake import AwsFake
from tests.support.aws_parts import provider_for


def findings(fake: AwsFake, **settings: object) -> dict[str, Finding]:
    provider = provider_for(fake, regions=("us-east-1",), **settings)
    assert isinstance(provider, ProviderDiagnosis)
    found = provider.diagnose()
    assert all(one.ok == (one.remedy == "") for one in found)
    return {one.name: one for one in found}


def test_a_new_account_lacks_quota_and_a_group_open_to_itself(fake: AwsFake) -> None:
    (group, *_) = fake.records("us-east-1").describe_security_groups()
    for one in fake.records("us-east-1").describe_security_groups():
        one.ingress_rules.clear()
    found = findings(fake)
    assert not found["quota spot us-east-1"].ok
    assert "0 vCPUs" in found["quota spot us-east-1"].sentence
    assert not found["security groups us-east-1"].ok
    assert group.id in found["security groups us-east-1"].sentence
    assert {name for name, one in found.items() if not one.ok} == {
        "quota spot us-east-1",
        "quota on-demand us-east-1",
        "security groups us-east-1",
    }


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


def test_wrong_credentials_hide_the_rest(fake: AwsFake) -> None:
    fake.fail("GetCallerIdentity", "InvalidClientTokenId", 403, times=2)
    found = findings(fake)
    assert list(found) == ["credentials"]
    assert "does not know the access key" in found["credentials"].sentence


def test_each_lack_is_told_by_itself(fake: AwsFake) -> None:
    fake.world.quotas["P5", True] = fake.world.quotas["G and VT", False] = 192
    fake.fail("RunInstances", "UnauthorizedOperation", 403)
    fake.fail("GetProducts", "AccessDeniedException", times=2)
    found = findings(fake, image="ami-00000000000000000", queue_url=f"{fake.url}/1/nowhere")
    lacking = {name for name, one in found.items() if not one.ok}
    assert lacking == {
        "image us-east-1",
        "permissions us-east-1",
        "interruption queue",
        "price list",
    }
    assert "LOWTIDE_AWS_IMAGE" in found["image us-east-1"].remedy


@pytest.mark.parametrize("action", ["RunInstances", "CreateLaunchTemplate", "CreateFleet"])
def test_a_missing_permission_is_told_by_its_dry_run(fake: AwsFake, action: str) -> None:
    fake.fail(action, "UnauthorizedOperation", 403)
    found = findings(fake, queue_url=None)
    assert not found["permissions us-east-1"].ok
    assert "control-plane-policy.json" in found["permissions us-east-1"].sentence
    assert found["interruption queue"].ok


def test_dry_runs_carry_the_tag_that_the_policy_asks_for_and_start_nothing(fake: AwsFake) -> None:
    answered = fake.answer
    dry: list[dict[str, str]] = []

    def listen(*asked: Any) -> Any:
        form = dict(parse_qsl(asked[-1].decode("latin-1")))
        if form.get("DryRun") == "true":
            dry.append(form)
        return answered(*asked)

    fake.answer = listen  # type: ignore[method-assign]
    fake.fail("CreateFleet", "InvalidLaunchTemplateName.NotFoundException", 400)
    assert findings(fake)["permissions us-east-1"].ok, "EC2 looked for it, so the call is allowed"
    assert [one["Action"] for one in dry] == [
        "RunInstances",
        "CreateLaunchTemplate",
        "CreateFleet",
    ]
    for form in dry:
        assert form["TagSpecification.1.Tag.1.Key"] == "lowtide:deployment"
    assert fake.world.machines == {}
    assert fake.world.launches == {}


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
