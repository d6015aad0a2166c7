"""How rules and the file of projects are read, refused and compared."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.projects.projects_file import FieldChange, parse_projects, rule_changes
from app.domain.projects.read_rules import parse_rules
from app.domain.projects.rules_document import RulesDocument
from app.domain.spec.job_spec_problems import MAX_PROBLEMS
from app.domain.units.errors import SpecError

WHOLE: dict[str, Any] = {
    "required_labels": {"cost-centre": [], "team": ["speech", "vision"]},
    "infra": ["aws/us-east-1", "gcp"],
    "regions": ["us-central1", "us-east-1"],
    "markets": ["spot", "on_demand"],
    "gpu_models": ["A100:80GB", "V100"],
    "defaults": {"priority": 60, "checkpoint": {"keep": 5}, "budget_usd": "25.50"},
    "ceilings": {
        "nodes": 4, "gpus": 16, "priority": 70, "budget_usd": "200.00", "max_duration": "24h",
        "retries": 5, "max_price_ratio": 0.8, "disk": "500GB",
    },
}  # fmt: skip


def refused(data: object) -> list[tuple[str, str]]:
    with pytest.raises(SpecError) as failure:
        parse_rules(data)
    return [(one.field, one.message) for one in failure.value.problems]


def test_the_stored_form_is_read_back():
    rules = parse_rules(WHOLE)
    assert rules.to_json() == WHOLE
    assert parse_rules(rules.to_json()) == rules
    assert parse_rules({}).to_json() == {}


def test_short_forms_are_taken():
    rules = parse_rules(
        {"required_labels": ["team"], "markets": "on-demand", "gpu_models": "v100", "infra": "aws"}
    )
    assert rules.to_json() == {
        "required_labels": {"team": []},
        "markets": ["on_demand"],
        "gpu_models": ["V100"],
        "infra": ["aws"],
    }


def test_an_unknown_key_names_those_that_there_are():
    [(field, message)] = refused({"quotas": {}})
    assert field == "quotas"
    known = "required_labels, infra, regions, markets, gpu_models, defaults, ceilings, limits"
    assert f"known: {known}" in message
    [(field, message)] = refused({"limits": {"machine": 2}})
    assert field == "limits.machine"
    assert "known: machines, gpus, max_hourly_spend_usd, queued_jobs" in message
    [(field, message)] = refused({"ceilings": {"node": 2}})
    assert field == "ceilings.node"
    assert "did you mean 'nodes'?" in message
    assert "max_price_ratio, disk" in message


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"defaults": {"name": "a"}}, "defaults.name"),
        ({"defaults": {"trainer": {}}}, "defaults.trainer"),
        ({"defaults": {"notify": "https://x.example"}}, "defaults.notify"),
        ({"defaults": {"priority": 101}}, "defaults.priority"),
        ({"defaults": {"deadline": "2031-05-01T18:00:00Z"}}, "defaults.deadline"),
        ({"defaults": {"deadline": "8h", "patience": "1h"}}, "defaults.patience"),
        ({"defaults": []}, "defaults"),
        ({"gpu_models": ["V100:2"]}, "gpu_models"),
        ({"gpu_models": ["40GB.."]}, "gpu_models"),
        ({"gpu_models": []}, "gpu_models"),
        ({"markets": ["auto"]}, "markets"),
        ({"markets": []}, "markets"),
        ({"regions": ["aws/us-east-1"]}, "regions"),
        ({"infra": []}, "infra"),
        ({"required_labels": {"bad name": []}}, "required_labels"),
        ({"required_labels": {"team": 3}}, "required_labels"),
        ({"required_labels": 3}, "required_labels"),
        ({"ceilings": {"budget_usd": 0}}, "ceilings.budget_usd"),
        ({"ceilings": {"nodes": 65}}, "ceilings.nodes"),
        (3, ""),
    ],
)
def test_what_is_wrong_is_told_with_its_place(rules: object, field: str):
    assert [found for found, _ in refused(rules)] == [field]


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"ceilings": {"priority": 10}, "defaults": {"priority": 20}}, "defaults.priority"),
        ({"infra": ["aws"], "defaults": {"infra": ["gcp"]}}, "defaults.infra"),
        (
            {"required_labels": {"team": ["a"]}, "defaults": {"labels": {"team": "b"}}},
            "defaults.labels.team",
        ),
    ],
)
def test_defaults_that_the_rules_refuse_are_refused_with_them(rules: object, field: str):
    assert [found for found, _ in refused(rules)] == [field]


def test_a_file_of_projects():
    [vision, speech] = parse_projects(
        {"projects": {"vision": {"rules": {"infra": "aws"}, "archived": False}, "speech": None}}
    )
    assert (vision.name, vision.archived, speech.archived, speech.rules) == (
        "vision", False, None, None,
    )  # fmt: skip
    assert vision.rules is not None
    assert vision.rules.to_json() == {"infra": ["aws"]}


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ({"project": {}, "projects": {"a": {}}}, "project", "known: projects"),
        ({"projects": []}, "projects", "by name"),
        ({"projects": {}}, "projects", "by name"),
        ({"projects": {"A": {}}}, "projects.A", "cannot name a project"),
        ({"projects": {"a": {"people": []}}}, "projects.a.people", "known: archived, rules, m"),
        ({"projects": {"a": {"members": []}}}, "projects.a.members", "like {una: maintainer}"),
        ({"projects": {"a": {"members": {}}}}, "projects.a.members", "1 to 1,000 names"),
        ({"projects": {"a": {"members": {"u": "boss"}}}}, "projects.a.members.u", "use viewer"),
        ({"projects": {"a": {"members": {7: "viewer"}}}}, "projects.a.members.7", "in quotes"),
        ({"projects": {"a": {"archived": "no"}}}, "projects.a.archived", "true or false"),
        ({"projects": {"a": {"rules": {"market": []}}}}, "projects.a.rules.market", "markets"),
        ({"projects": {"a": 3}}, "projects.a", "a mapping with archived, rules, members"),
        (3, "", "must be a mapping"),
    ],
)
def test_a_file_that_is_wrong_says_where(data: object, field: str, words: str):
    with pytest.raises(SpecError) as failure:
        parse_projects(data)
    [problem] = failure.value.problems
    assert problem.field == field
    assert words in problem.message


def test_a_file_that_is_wrong_in_many_places_names_the_first():
    for data, most in (
        ({"projects": {f"_{number}": None for number in range(30)}}, MAX_PROBLEMS),
        ({f"field{number}": 1 for number in range(30)}, MAX_PROBLEMS + 1),
    ):
        with pytest.raises(SpecError) as failure:
            parse_projects(data)
        assert len(failure.value.problems) == most


def test_what_differs_is_told_field_by_field():
    before: RulesDocument = {"infra": ["aws"], "ceilings": {"nodes": 4, "gpus": 8}}
    after: RulesDocument = {"infra": ["aws", "gcp"], "ceilings": {"nodes": 4}, "markets": ["spot"]}
    assert rule_changes(before, after) == [
        FieldChange("ceilings.gpus", 8, None),
        FieldChange("infra", ["aws"], ["aws", "gcp"]),
        FieldChange("markets", None, ["spot"]),
    ]
    assert rule_changes(before, before) == []


def test_secrets_of_clouds_are_allowed_by_prefix_and_read_by_an_account():
    account = "vision-secrets@acme-prod.iam.gserviceaccount.com"
    written = {"secret_prefixes": ["gcp-sm:vision-", "aws-sm:vision/"], "secret_account": account}
    rules = parse_rules(written)
    stored = {"secret_prefixes": ["aws-sm:vision/", "gcp-sm:vision-"], "secret_account": account}
    assert rules.to_json() == stored
    assert parse_rules(stored) == rules
    assert parse_rules({"secret_prefixes": "aws-sm:one"}).to_json() == {
        "secret_prefixes": ["aws-sm:one"]
    }
    wrong = {"secret_prefixes": ["vision/"], "secret_account": "ada@example.com"}
    with pytest.raises(SpecError) as refused:
        parse_rules(wrong)
    told = {one.field: one.message for one in refused.value.problems}
    assert "'vision/' must begin with aws-sm: or gcp-sm:" in told["secret_prefixes"]
    assert "must be the e-mail of a service account" in told["secret_account"]
