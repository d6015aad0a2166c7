"""The OpenTofu modules, read offline: what they say is what their providers take.

Not here: applying them, which only an account can show.
"""

from __future__ import annotations

import copy
import json
import re

import hcl2
import pytest

from app.settings import PREFIX, Settings
from tests.support.sources.opentofu_modules import (
    DEPLOY,
    MODULES,
    Block,
    argument_faults,
    local_values,
    named,
    plain,
    references,
    resources,
    schema_of,
    schemas_source,
    text_of,
)

every_module = pytest.mark.parametrize("module", MODULES)
_FILE = re.compile(r"\$\{path\.module\}/([\w.-]+)")
_ROOTS = ("aws", "gcp")
# Whose API a resource of Google's provider calls, by the beginning of its type.
_APIS = (
    ("google_compute_", "compute"),
    ("google_project_iam_custom_role", "iam"),
    ("google_project_iam_member", "cloudresourcemanager"),
    ("google_project_service", "serviceusage"),
    ("google_service_account", "iam"),
    ("google_storage_", "storage"),
)
# One for the whole account, whatever region the provider is told.
_ACCOUNT_WIDE = ("aws_iam_", "aws_s3_", "aws_ce_")


@every_module
def test_every_variable_is_described_and_used(module: str):
    declared = named(module, "variable")
    for name, body in declared.items():
        assert plain(body.get("description", "")), name
    assert set(re.findall(r"\bvar\.(\w+)", text_of(module))) == set(declared)


@every_module
def test_every_reference_leads_to_something_that_has_it(module: str):
    there = {(one.is_data, one.kind, one.name) for one in resources(module)}
    assert len(there) == len(resources(module)) > 5
    found = list(references(text_of(module)))
    assert len(found) > 5
    for is_data, kind, name, attribute in found:
        assert (is_data, kind, name) in there, f"{kind}.{name}"
        known = schema_of(kind)
        assert attribute in ("", *known["arguments"], *known["attributes"]), f"{kind}.{attribute}"
    for name in re.findall(r"\blocal\.(\w+)", text_of(module)):
        assert name in local_values(module), f"local.{name}"


@every_module
def test_the_providers_take_every_argument(module: str):
    for one in resources(module):
        assert argument_faults(one) == []


def test_an_argument_that_is_misspelt_or_left_out_is_found():
    [queue] = [one for one in resources("aws/region") if one.kind == "aws_sqs_queue_policy"]
    body = copy.deepcopy(queue.body)
    body["queue_uri"] = body.pop("queue_url")
    told = argument_faults(Block(queue.kind, queue.name, body))
    assert [one.partition(": ")[2] for one in told] == [
        "queue_uri is no argument",
        "queue_url is required",
    ]


@pytest.mark.parametrize("module", _ROOTS)
def test_the_files_that_a_module_reads_are_there(module: str):
    found = _FILE.findall(text_of(module))
    assert found
    for name in found:
        assert (DEPLOY / module / name).is_file(), name


@every_module
def test_a_provider_is_pinned_and_something_comes_out(module: str):
    assert re.search(r"required_providers\s*{", text_of(module))
    assert re.search(r'version\s*=\s*"~> \d', text_of(module))
    for body in named(module, "output").values():
        assert plain(body["description"])
    assert named(module, "output")


@every_module
def test_a_module_asks_for_the_provider_that_it_was_checked_against(module: str):
    """`~> 6.50` takes 6.50 and later, and no 7."""
    recorded = re.findall(r"hashicorp/(\w+) (\d+)\.(\d+)", schemas_source())
    checked = {name: (int(major), int(minor)) for name, major, minor in recorded}
    pin = r'"hashicorp/(\w+)"\s*version\s*=\s*"~> (\d+)\.(\d+)"'
    [(name, major, minor)] = re.findall(pin, text_of(module))
    assert checked[name] >= (int(major), int(minor))
    assert checked[name][0] == int(major)


@pytest.mark.parametrize("module", _ROOTS)
def test_the_outputs_are_settings(module: str):
    names = set(re.findall(rf"\b({PREFIX}[A-Z_]+)\s*=", text_of(module)))
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    assert {f"{PREFIX}PROVIDERS", f"{PREFIX}OBJECT_STORE_URI"} < names
    assert names <= known


@pytest.mark.parametrize("module", _ROOTS)
def test_the_example_gives_what_must_be_given_and_nothing_unknown(module: str):
    declared = named(module, "variable")
    text = (DEPLOY / module / "terraform.tfvars.example").read_text("utf-8")
    given = {name for name in hcl2.loads(text) if not name.startswith("__")}
    commented = set(re.findall(r"^# (\w+) += ", text, re.MULTILINE))
    assert {name for name, body in declared.items() if "default" not in body} <= given
    assert given | commented <= set(declared)


def test_several_regions_of_aws_do_not_clash():
    """What is one for the account is made once; all else says its region."""
    [call] = named("aws", "module").values()
    assert "var.regions" in call["for_each"]
    assert plain(call["source"]) == "./region"
    assert {key for key in call if not key.startswith("__")} - {"source", "for_each"} == set(
        named("aws/region", "variable")
    )
    for one in resources("aws/region"):
        if not one.is_data:
            assert not one.kind.startswith(_ACCOUNT_WIDE), one.kind
            assert one.body["region"] == "${var.region}", one.kind
    for one in resources("aws"):
        assert one.is_data or one.kind.startswith(_ACCOUNT_WIDE), one.kind


@every_module
def test_a_second_deployment_in_the_account_can_have_names_of_its_own(module: str):
    for one in resources(module):
        for argument in ("name", "account_id", "role_id"):
            told = str(one.body.get(argument, "var.name"))
            inside = one.kind == "aws_iam_role_policy"  # within its role
            bucket = told == "${var.bucket_name}"
            assert "var.name" in told or bucket or inside, f"{one.kind}.{one.name}: {told}"


def test_events_reach_the_queue_and_wait_there_for_four_days():
    rules = local_values("aws/region")["events"]
    told = {plain(one) for rule in rules.values() for one in rule["detail-type"]}
    adapter = DEPLOY.parent / "app/adapters/providers/aws"
    text = "".join(path.read_text("utf-8") for path in sorted(adapter.rglob("*.py")))
    read = set(re.findall(r'"(EC2 [\w -]+ (?:Warning|Recommendation|Notification))"', text))
    assert len(read) >= 3
    assert read <= told
    assert {"AWS Health Event", "EC2 Capacity Reservation Instance Interruption Warning"} <= told
    assert "EC2 Instance State-change Notification" in told
    [queue] = [one for one in resources("aws/region") if one.kind == "aws_sqs_queue"]
    assert int(queue.body["message_retention_seconds"]) == 4 * 24 * 3600
    [policy] = [one for one in resources("aws/region") if one.name == "queue" and one.is_data]
    assert "aws_cloudwatch_event_rule.told" in policy.text


def test_google_s_apis_are_on_before_anything_uses_them():
    enabled = set(re.findall(r"([a-z]+)\.googleapis\.com", local_values("gcp")["apis"]))
    adapter = DEPLOY.parent / "app/adapters/providers/gcp"
    hosts = {
        host
        for path in sorted(adapter.rglob("*.py"))
        for host in re.findall(r"https://([a-z]+)\.googleapis\.com", path.read_text("utf-8"))
    }
    assert "cloudbilling" in hosts
    assert hosts - {"www"} <= enabled, "www is in the names of scopes"
    blocks = {(one.kind, one.name): one for one in resources("gcp") if not one.is_data}

    def waits(kind: str, name: str) -> bool:
        """Whether it comes after the APIs, by itself or by what it refers to."""
        if kind == "google_project_service":
            return True
        found = references(blocks[kind, name].text)
        return any(waits(*other[1:3]) for other in found if other[1:3] != (kind, name))

    for kind, name in blocks:
        [api] = [api for begin, api in _APIS if kind.startswith(begin)]
        assert api in enabled, kind
        assert waits(kind, name), f"{kind}.{name} does not wait for the APIs"
    [service] = [one for one in blocks.values() if one.kind == "google_project_service"]
    assert service.body["disable_on_destroy"] is False


def test_the_control_plane_has_its_bucket_on_both_clouds():
    policy = (DEPLOY / "aws/control-plane-policy.json").read_text("utf-8")
    for right in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"):
        assert right in policy
    members = [one for one in resources("gcp") if one.kind == "google_storage_bucket_iam_member"]
    assert "google_service_account.control.member" in members[0].text


def test_machines_have_no_rights_of_their_own():
    """They are given credentials of the role, or account, of jobs' data, narrowed to their job."""
    kept = "${var.keep_machine_rights ? 1 : 0}"
    policies = [one for one in resources("aws") if one.kind == "aws_iam_role_policy"]
    assert [one.name for one in policies if one.body.get("count") != kept] == ["job_data"]
    [trust] = [one for one in resources("aws") if one.is_data and one.name == "control_plane"]
    assert "ec2.amazonaws.com" not in trust.text
    assert not [one for one in resources("aws") if one.kind.endswith("role_policy_attachment")]
    granted = [one for one in resources("gcp") if "iam_member" in one.kind]
    assert len(granted) >= 5
    own = [one for one in granted if "google_service_account.machines.member" in one.text]
    assert [one.body.get("count") for one in own] == [kept]
    assert named("aws", "variable")["keep_machine_rights"]["default"] is False
    assert named("gcp", "variable")["keep_machine_rights"]["default"] is False
    [narrows] = [one for one in granted if one.name == "control_narrows_data"]
    assert plain(narrows.body["role"]) == "roles/iam.serviceAccountTokenCreator"
    assert "google_service_account.data.name" in narrows.text


def test_the_control_plane_may_become_nothing_but_the_role_of_jobs_data():
    """Not the machines' role, nor any other one that trusts the account; for an hour at most."""
    policy = json.loads((DEPLOY / "aws/control-plane-policy.json").read_text("utf-8"))
    assumes = [one["Resource"] for one in policy["Statement"] if "AssumeRole" in str(one["Action"])]
    assert assumes == ["arn:aws:iam::*:role/${name}-job-data"]
    [role] = [one for one in resources("aws") if "job-data" in str(one.body.get("name"))]
    assert role.kind == "aws_iam_role"
    assert int(role.body["max_session_duration"]) == 3_600


def test_no_module_is_left_out_here():
    found = {path.parent.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*.tf")}
    assert found == set(MODULES)
