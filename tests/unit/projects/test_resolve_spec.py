"""What rules make of a spec: filled where its author left it out, refused where it was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.projects.project_rules import NO_RULES
from app.domain.projects.read_rules import parse_rules
from app.domain.projects.resolve_spec import ResolvedSpec, resolve_spec
from app.domain.projects.spec_defaults import without_fields
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import ProblemKind, SpecError

TRAINER = {"model": "mlp", "data": "digits", "steps": 100}
RUN = {"run": "python train.py"}


def resolved(rules: dict[str, Any], spec: dict[str, Any]) -> ResolvedSpec:
    return resolve_spec(parse_rules(rules), "vision", parse_spec(spec), 3)


def stored(rules: dict[str, Any], spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    found = resolved(rules, spec)
    return {**found.spec.to_json()}, {field: str(one) for field, one in found.sources.items()}


def refused(rules: dict[str, Any], spec: dict[str, Any]) -> list[tuple[str, str, ProblemKind]]:
    with pytest.raises(SpecError) as failure:
        resolved(rules, spec)
    return [(one.field, one.message, one.kind) for one in failure.value.problems]


def test_without_rules_a_spec_stays_as_it_is():
    spec = parse_spec(RUN)
    found = resolve_spec(NO_RULES, "vision", spec)
    assert (found.spec, found.sources, found.sources_json()) == (spec, {}, None)


def test_credentials_are_for_the_image_that_the_project_gives():
    spec = {**RUN, "image_secret": "REGISTRY"}
    found = resolved({"defaults": {"image": "registry.example.com/acme/a:1"}}, spec)
    assert (found.spec.image, found.spec.image_secret) == (
        "registry.example.com/acme/a:1", "REGISTRY",
    )  # fmt: skip
    told = "image_secret: has the credentials for an `image`; name one, or remove it"
    assert refused({}, spec) == [("image_secret", told, ProblemKind.INVALID)]


def test_defaults_go_under_what_the_author_wrote():
    rules = {
        "defaults": {
            "priority": 70,
            "budget_usd": 20,
            "labels": {"team": "vision", "stage": "dev"},
            "checkpoint": {"keep": 5},
            "env": {"A": "1"},
        }
    }
    spec, sources = stored(
        rules, {"trainer": TRAINER, "priority": 50, "labels": {"team": "speech"}}
    )
    assert (spec["priority"], spec["budget_usd"]) == (50, "20.00")
    assert spec["labels"] == {"stage": "dev", "team": "speech"}
    assert spec["checkpoint"]["keep"] == 5
    assert sources == dict.fromkeys(
        ["budget_usd", "labels.stage", "checkpoint.keep", "env.A"], "project_default"
    )


def test_a_default_gives_way_to_what_cannot_be_with_it():
    assert (
        "patience"
        not in stored({"defaults": {"patience": "30m"}}, {"trainer": TRAINER, "deadline": "8h"})[1]
    )
    assert (
        "deadline"
        not in stored({"defaults": {"deadline": "8h"}}, {"trainer": TRAINER, "patience": "30m"})[1]
    )
    interval = {"defaults": {"checkpoint": {"interval": "5m"}}}
    steps = {"trainer": {**TRAINER, "checkpoint_interval_steps": 10}}
    assert stored(interval, {"trainer": TRAINER})[1] == {"checkpoint.interval": "project_default"}
    assert stored(interval, steps)[1] == stored(interval, RUN)[1] == {}


def test_a_default_that_needs_more_says_where_it_is_from():
    problems = refused({"defaults": {"budget_usd": 20}}, RUN)
    assert [field for field, _, _ in problems] == ["estimate", ""]
    assert "the project 'vision' has added `budget_usd`" in problems[1][1]


def test_what_an_author_left_open_is_restricted_in_the_spec_itself():
    rules = {
        "infra": ["aws/us-east-1", "local"],
        "markets": ["spot"],
        "gpu_models": ["A100:80GB", "V100", "T4"],
    }
    spec, sources = stored(rules, {**RUN, "deadline": "8h", "estimate": {"hours": 1}})
    assert spec["infra"] == ["aws/us-east-1", "local"]
    assert spec["market"] == "spot"
    # A command gets a GPU with 16 GB at least, and one variant of A100 is allowed.
    assert set(spec["resources"]["gpu"]) >= {"V100:16GB:1", "A100:80GB:1"}
    assert "A100:40GB:1" not in spec["resources"]["gpu"]
    assert sources == dict.fromkeys(["infra", "market", "resources.gpu"], "project_rule")


def test_a_market_that_is_as_the_job_would_have_it_is_not_written():
    assert stored({"markets": ["spot"]}, RUN)[1] == {}
    assert stored({"markets": ["on_demand"]}, RUN)[1] == {"market": "project_rule"}


def test_regions_are_those_of_each_cloud():
    rules = parse_rules({"regions": ["us-east-1", "us-central1"]})
    assert [str(place) for place in rules.places] == [
        "aws/us-east-1", "gcp/us-central1", "local/us-central1", "local/us-east-1",
    ]  # fmt: skip
    both = parse_rules({"regions": ["us-east-1"], "infra": ["aws", "gcp/us-central1"]})
    assert [str(place) for place in both.places] == ["aws/us-east-1"]
    with pytest.raises(SpecError, match="no region of a place in infra"):
        parse_rules({"regions": ["us-east-1"], "infra": ["gcp"]})


@pytest.mark.parametrize(
    ("rules", "spec", "field", "words"),
    [
        ({"infra": ["aws/us-east-1"]}, {"infra": ["aws"]}, "infra", "(infra: aws/us-east-1)"),
        ({"infra": ["aws"]}, {"infra": ["aws/us-east-1", "gcp"]}, "infra", "gcp is not within"),
        ({"regions": ["us-east-1"]}, {"infra": "aws"}, "infra", "(regions: aws/us-east-1"),
        ({"markets": ["spot"]}, {"market": "auto"}, "market", "(markets: spot)"),
        ({"markets": ["on_demand"]}, {"market": "spot"}, "market", "(markets: on_demand)"),
        (
            {"gpu_models": ["A100:80GB"]},
            {"resources": {"gpu": "A100"}},
            "resources.gpu",
            "(gpu_models: A100:80GB)",
        ),
        ({"gpu_models": ["V100"]}, {"resources": {"gpu": "16GB.."}}, "resources.gpu", "V100"),
        ({"ceilings": {"nodes": 4}}, {"nodes": "2..8"}, "nodes", "8 is too much"),
        (
            {"ceilings": {"gpus": 8}},
            {"nodes": 2, "resources": {"gpu": "V100:8"}},
            "resources.gpu",
            "16 GPUs in all is too much",
        ),
        ({"ceilings": {"priority": 60}}, {"priority": 61}, "priority", "(ceilings.priority)"),
        ({"ceilings": {"retries": 1}}, {"retries": 2}, "retries", "at most 1"),
        (
            {"ceilings": {"max_price_ratio": 0.5}},
            {"max_price_ratio": 0.6},
            "max_price_ratio",
            "at most 0.5",
        ),
        (
            {"ceilings": {"budget_usd": 100}},
            {"budget_usd": 101, "estimate": {"hours": 1}},
            "budget_usd",
            "$101.00 is too much: the project 'vision' allows at most $100.00",
        ),
        (
            {"ceilings": {"max_duration": "24h"}},
            {"max_duration": "25h"},
            "max_duration",
            "at most 24h",
        ),
        (
            {"ceilings": {"disk": "500GB"}},
            {"resources": {"disk": "1TB"}},
            "resources.disk",
            "at most 500GB",
        ),
        (
            {"required_labels": {"team": ["a", "b"]}},
            {"labels": {"team": "c"}},
            "labels.team",
            "use one of a, b",
        ),
    ],
)
def test_what_an_author_wrote_is_refused_and_not_cut(
    rules: dict[str, Any], spec: dict[str, Any], field: str, words: str
):
    [(refused_field, message, kind)] = refused(rules, {**RUN, **spec})
    assert (refused_field, kind) == (field, ProblemKind.NOT_ALLOWED)
    assert message.startswith(f"{field}: ")
    assert words in message
    assert "'vision'" in message


@pytest.mark.parametrize("limit", ["budget_usd", "max_duration"])
def test_no_limit_is_more_than_a_ceiling(limit: str):
    ceilings = {"budget_usd": 100, "max_duration": "24h"}
    [(field, message, kind)] = refused({"ceilings": {limit: ceilings[limit]}}, RUN)
    assert (field, kind) == (limit, ProblemKind.MISSING)
    assert f"(ceilings.{limit})" in message


def test_a_label_that_is_missing_is_named_with_its_values():
    rules = {"required_labels": {"team": ["vision", "speech"], "owner": []}}
    problems = refused(rules, {**RUN, "labels": {}})
    assert [(field, kind) for field, _, kind in problems] == [
        ("labels.owner", ProblemKind.MISSING),
        ("labels.team", ProblemKind.MISSING),
    ]
    assert "one of speech, vision" in problems[1][1]


def test_a_ceiling_of_gpus_holds_where_none_is_named():
    spec, sources = stored({"ceilings": {"gpus": 2}}, {**RUN, "nodes": 2})
    assert spec["resources"]["gpu"] == ["16GB..:1"]
    assert sources == {"resources.gpu": "project_rule"}
    assert refused({"ceilings": {"gpus": 2}}, {**RUN, "nodes": 3})[0][0] == "resources.gpu"


def test_every_problem_is_told_at_once():
    rules = {"ceilings": {"nodes": 1, "priority": 10}, "markets": ["spot"]}
    fields = [one[0] for one in refused(rules, {**RUN, "nodes": 2, "market": "on_demand"})]
    assert fields == ["market", "nodes", "priority"]


_RULES = st.fixed_dictionaries(
    {},
    optional={
        "infra": st.sampled_from([["aws"], ["local", "gcp/us-central1"]]),
        "regions": st.sampled_from([["us-east-1", "us-central1"]]),
        "markets": st.sampled_from([["spot"], ["on_demand"], ["spot", "on_demand"]]),
        "gpu_models": st.sampled_from([["V100"], ["A100:80GB", "T4"]]),
        "defaults": st.fixed_dictionaries(
            {},
            optional={
                "priority": st.integers(0, 60),
                "labels": st.just({"team": "a"}),
                "deadline": st.just("8h"),
                "patience": st.just("10m"),
                "budget_usd": st.integers(1, 50),
                "max_duration": st.just("5h"),
            },
        ).filter(lambda found: not {"deadline", "patience"} <= found.keys()),
        "ceilings": st.fixed_dictionaries(
            {}, optional={"gpus": st.integers(1, 4), "budget_usd": st.just(40)}
        ),
    },
)
_SPECS = st.fixed_dictionaries(
    {"trainer": st.just(TRAINER)},
    optional={
        "deadline": st.just("6h"),
        "patience": st.just("5m"),
        "priority": st.integers(0, 100),
        "labels": st.just({"team": "b"}),
        "nodes": st.integers(1, 3),
        "market": st.sampled_from(["spot", "auto", "on_demand"]),
    },
).filter(lambda found: not {"deadline", "patience"} <= found.keys())


@given(_RULES, _SPECS)
def test_what_is_written_stays_and_what_was_resolved_stays_so(
    rules: dict[str, Any], written: dict[str, Any]
):
    try:
        found = resolved(rules, written)
    except SpecError:
        return
    document: dict[str, Any] = {**found.spec.to_json()}
    for field, value in parse_spec(written).to_written_json().items():
        if isinstance(value, dict):
            assert {**document[field], **value} == document[field]
        else:
            assert document[field] == value
    again = resolved(rules, document)
    assert (again.spec, again.sources) == (found.spec, {})
    # Without what the project gave, the copy gets the same again.
    copied = without_fields(document, found.sources)
    assert resolved(rules, copied).spec == found.spec
