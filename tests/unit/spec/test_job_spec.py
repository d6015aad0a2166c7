"""The job spec: what is accepted, what is filled in, and the sentence each refusal carries."""

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.market.gpu_choice import GpuChoice
from app.domain.spec.infra_choice import InfraChoice
from app.domain.spec.job_spec import JobSpec, parse_spec, spec_digest
from app.domain.spec.job_spec_fields import Trainer
from app.domain.spec.names import DEFAULT_NAME_COUNT, default_name
from app.domain.units.errors import ProblemKind, SpecError, SpecProblem
from trainer.protocol.run_config import TRAINING_DATA_INPUT
from trainer.training.config import TrainConfig, parse_config

TRAINER = {"model": "cnn", "data": "digits", "epochs": 3}
ESTIMATE = {"hours": 26, "gpu": "H100:8", "nodes": 4}
DIGEST = "sha256:" + "0a" * 32


def problems_of(data: object) -> tuple[SpecProblem, ...]:
    with pytest.raises(SpecError) as caught:
        parse_spec(data)
    return caught.value.problems


def only_problem(**fields: Any) -> SpecProblem:
    (problem,) = problems_of({"trainer": TRAINER, **fields})
    return problem


def test_three_words_are_a_complete_job() -> None:
    spec = parse_spec({"trainer": {"model": "resnet18", "data": "digits", "epochs": 20}})
    assert (spec.name, spec.project, spec.priority, spec.node_count) == (None, None, 50, 1)
    assert (spec.retries, spec.retry_on_exit_codes, spec.stall_timeout_seconds) == (3, (), 900)
    assert (spec.on_deadline, spec.max_price_ratio, spec.effective_market()) == (
        "finish", 0.9, "spot",
    )  # fmt: skip
    assert (spec.checkpoint.interval_seconds, spec.checkpoint.keep) == (None, 3)
    assert (spec.gpu_choices, spec.gpus_per_node, spec.infra) == ((), 1, None)
    assert (spec.deadline, spec.budget_microusd, spec.max_wait_seconds) == (None, None, None)
    assert spec.command_kind == "trainer"


def test_every_working_field_is_read() -> None:
    spec = parse_spec({
        "name": "gpt-350m", "project": "nlp", "priority": 70, "run": "torchrun train.py",
        "workdir": DIGEST, "setup": "pip install -r r.txt", "nodes": 4,
        "resources": {"gpu": ["a100:80gb:8", "40GB..:8", "H100:8"]}, "market": "on-demand",
        "infra": ["aws", "gcp/us-central1", "aws/us-east-1/us-east-1a"], "max_price_ratio": 0.5,
        "deadline": "36h", "on_deadline": "stop", "estimate": ESTIMATE, "budget_usd": "$1800",
        "max_duration": "2d", "max_wait": "15m", "retries": 0, "retry_on_exit_codes": [137, 1, 1],
        "stall_timeout": "1h30m", "checkpoint": {"uri": "file:///srv/ckpt/", "interval": "10m",
        "keep": 5}, "env": {"WANDB_MODE": "offline", "N": 4}, "labels": {"cost_center": "0471"},
    })  # fmt: skip
    assert spec.gpu_choices == (
        GpuChoice(None, 40, 8), GpuChoice("A100", 80, 8), GpuChoice("H100", None, 8),
    )  # fmt: skip
    assert spec.infra == (
        InfraChoice("aws"), InfraChoice("aws", "us-east-1", "us-east-1a"),
        InfraChoice("gcp", "us-central1"),
    )  # fmt: skip
    assert (spec.gpus_per_node, spec.node_count, spec.market) == (8, 4, "on_demand")
    assert (spec.budget_microusd, spec.deadline) == (1_800_000_000, timedelta(hours=36))
    assert (spec.max_duration_seconds, spec.max_wait_seconds) == (172_800, 900)
    assert (spec.retry_on_exit_codes, spec.stall_timeout_seconds) == ((1, 137), 5_400)
    assert (spec.checkpoint.uri, spec.checkpoint.interval_seconds) == ("file:///srv/ckpt", 600)
    assert spec.env == {"WANDB_MODE": "offline", "N": "4"}
    assert spec.estimate is not None
    assert (spec.estimate.seconds, spec.estimate.gpu) == (93_600, GpuChoice("H100", None, 8))
    assert spec.command_kind == "run"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keep_on_failure", "30m"),
        ("resources.gpu", ["V100:1", "L4:2"]),
    ],
)
def test_known_fields_of_later_are_refused_by_name(field: str, value: object) -> None:
    section, _, key = field.rpartition(".")
    base: dict[str, Any] = {"trainer": dict(TRAINER)}
    base.setdefault(section, {})[key] = value
    if not section:
        base = {"trainer": TRAINER, field: value}
    (problem,) = problems_of(base)
    assert problem.kind is ProblemKind.NOT_AVAILABLE
    assert problem.field == field
    assert problem.message.startswith(f"{field}: not available yet")


@pytest.mark.parametrize(
    ("field", "value"),
    [("keep_on_failure", "soon"),
     ("resources", {"cpus": 0}), ("checkpoint", {"uri": "s3://"})],
)  # fmt: skip
def test_fields_of_later_are_judged_by_shape_first(field: str, value: object) -> None:
    assert only_problem(**{field: value}).kind is ProblemKind.INVALID


@pytest.mark.parametrize(
    ("written", "names"), [("team", ("team",)), (["b", "a", "b"], ("a", "b")), ([], None)]
)
def test_notify_names_channels(written: object, names: tuple[str, ...] | None) -> None:
    spec = parse_spec({"trainer": TRAINER, "notify": written})
    assert spec.notify == names
    assert parse_spec(spec.to_json()).notify == names
    assert ("notify" in spec.to_json()) is (names is not None), "digests stay those of before"


@pytest.mark.parametrize(
    "written", ["https://hooks.example.com/x", {"slack": "#x"}, [7], ["A b"], ["a"] * 11]
)
def test_notify_is_no_address_and_an_address_is_not_repeated(written: object) -> None:
    problem = only_problem(notify=written)
    assert (problem.kind, problem.field) == (ProblemKind.INVALID, "notify")
    assert "hooks" not in problem.message


@pytest.mark.parametrize(
    ("written", "least", "most", "stored"),
    [(1, 1, 1, 1), ("2..4", 2, 4, "2..4"), (" 1..64 ", 1, 64, "1..64"), ("3..3", 3, 3, 3)],
)
def test_a_gang_has_a_number_of_machines_or_a_range(
    written: object, least: int, most: int, stored: object
) -> None:
    spec = parse_spec({"trainer": TRAINER, "nodes": written})
    assert (spec.nodes.least, spec.nodes.most, spec.node_count) == (least, most, most)
    assert spec.nodes.is_elastic == (least < most)
    assert spec.to_json()["nodes"] == stored
    assert parse_spec(spec.to_json()) == spec


def test_an_empty_field_of_later_leaves_no_trace() -> None:
    bare = parse_spec({"trainer": TRAINER})
    assert parse_spec({"trainer": TRAINER, "keep_on_failure": 0}) == bare


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"trainer": {**TRAINER, "epocs": 2}},
         "unknown field 'epocs' in trainer; did you mean 'epochs'?"),
        ({"trainer": TRAINER, "budjet_usd": 2},
         "unknown field 'budjet_usd'; did you mean 'budget_usd'?"),
        ({"trainer": TRAINER, "command": "x"}, "unknown field 'command'; did you mean 'run'?"),
        ({"trainer": TRAINER, "on_oom": "adapt"},
         "unknown field 'on_oom'; did you mean 'trainer.on_oom'?"),
        ({"trainer": TRAINER, "gpu": "V100"},
         "unknown field 'gpu'; did you mean 'resources.gpu'?"),
        ({"trainer": TRAINER, "resources": {"infra": "aws"}},
         "unknown field 'infra' in resources; 'infra' stands at the top level of the spec"),
        ({"trainer": TRAINER, "zzzzzz": 1}, "unknown field 'zzzzzz'"),
        ({"trainer": TRAINER, "num_nodes": 2},
         "unknown field 'num_nodes'; in Lowtide it is `nodes` (see docs/from-skypilot.md)"),
        ({"trainer": TRAINER, "envs": {}}, "unknown field 'envs'; in Lowtide it is `env` "
         "(see docs/from-skypilot.md)"),
        ({"trainer": TRAINER, "resources": {"accelerators": "A100:8"}},
         "unknown field 'accelerators' in resources; in Lowtide it is `resources.gpu` "
         "(see docs/from-skypilot.md)"),
        ({"trainer": TRAINER, "stall_timeout_seconds": 1},
         "unknown field 'stall_timeout_seconds'; did you mean 'stall_timeout'?"),
    ],
)  # fmt: skip
def test_an_unknown_key_names_the_nearest(data: dict[str, Any], message: str) -> None:
    (problem,) = problems_of(data)
    assert (problem.kind, problem.message) == (ProblemKind.UNKNOWN_FIELD, message)


def test_an_unknown_model_or_data_lists_the_known_ones() -> None:
    model, data = problems_of({"trainer": {"model": "resnet80", "data": "digit", "epochs": 1}})
    assert model.message == (
        "trainer.model: unknown model 'resnet80'; known: cnn, mlp, resnet18, resnet50, resnet152, "
        "vit_small, vit_base, gpt_tiny, gpt_small, module:factory, timm:NAME or torchvision:NAME; "
        "did you mean 'resnet50'?"
    )
    assert data.message == (
        "trainer.data: unknown data 'digit'; known: digits, synthetic, a path with a / in it, "
        "s3://bucket/path or gs://bucket/path; did you mean 'digits'?"
    )


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ({}, "", "give `trainer`"),
        ({"trainer": TRAINER, "run": "x"}, "run", "not both"),
        ({"trainer": {"model": "cnn", "data": "digits"}}, "trainer.epochs", "epochs or steps"),
        ({"trainer": {**TRAINER, "steps": 5}}, "trainer.epochs", "not both"),
        ({"trainer": {"data": "digits", "epochs": 1}}, "trainer.model", "is required"),
        ({"run": "x", "deadline": "1h"}, "estimate", "a deadline needs an estimate"),
        ({"run": "x", "budget_usd": 5}, "estimate", "a budget needs an estimate"),
        ({"run": "x", "estimate": {}}, "estimate.hours", "is required"),
        ({"trainer": {**TRAINER, "accumulation": 65}}, "trainer.accumulation", "batch_size (64)"),
        ({"trainer": {**TRAINER, "checkpoint_interval_steps": 5}, "checkpoint": {"interval": "1m"}},
         "checkpoint.interval", "not both"),
        ([1], "", "must be a mapping"),
        ({"trainer": "cnn"}, "trainer", "must be a mapping, not the text 'cnn'"),
        ({1: 2, "run": "x"}, "1", "names must be text"),
    ],
)  # fmt: skip
def test_rules_between_fields(data: object, field: str, words: str) -> None:
    (problem,) = problems_of(data)
    assert problem.field == field
    assert words in problem.message


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("nodes", 0, "between 1 and 64"), ("nodes", 65, "between 1 and 64"),
        ("nodes", "4..2", "rising range within 1..64"), ("nodes", "2..", "number of machines"),
        ("nodes", "0..2", "rising range"), ("nodes", "2..65", "rising range"),
        ("estimate", {"hours": 2, "nodes": "2..4"}, "write a whole number, like 2"),
        ("nodes", "2..3..4", "write a whole number, like 2"), ("nodes", "3", "write 3 without"),
        ("nodes", "4-8", "write 4..8 for a gang whose size may change"),
        ("resources", "V100", "must be a mapping, not the text 'V100'; write {gpu: V100}"),
        ("nodes", "two", "number of machines"), ("nodes", True, "not true"),
        ("priority", 101, "at most 100"), ("priority", "high", "whole number"),
        ("retries", -1, "at least 0"), ("retries", 10**40, "more than 18 digits"),
        ("retries", 1.5, "whole number, not the number 1.5"),
        ("retry_on_exit_codes", [0], "1 to 255"), ("retry_on_exit_codes", [True], "1 to 255"),
        ("budget_usd", 0, r"at least $0.01"), ("budget_usd", -5, "negative"),
        ("budget_usd", 1e300, "at most"), ("budget_usd", "lots", "write dollars as"),
        ("max_duration", 90, "without a unit"), ("max_wait", "-1h", "negative"),
        ("stall_timeout", "0s", "at least 1s"), ("max_price_ratio", 0, "more than 0"),
        ("max_price_ratio", float("nan"), "finite"),
        ("name", "No_Caps", "lower-case"), ("name", "-a", "lower-case"), ("name", "a" * 64, "63"),
        ("name", "a\n", "control characters"), ("project", "", "must not be empty"),
        ("market", "sport", "did you mean 'spot'"), ("on_deadline", "halt", "finish, stop"),
        ("infra", ["awz"], "did you mean 'aws'"), ("infra", ["aws/US"], "is not a place"),
        ("infra", [], "1 to 64 places"), ("infra", ["aws", "aws"], "twice"),
        ("deadline", "2031-01-01T00:00:00", "no time zone"),
        ("deadline", "2031-13-01", "not a time"),
        ("deadline", "9999-12-31T23:59:59-23:00", "is not a date"),
        ("workdir", "./here", "lowtide submit"), ("workdir", "sha256:12", "64 hex"),
        ("setup", "a\x00b", "control characters"), ("setup", "x" * 32_769, "at most 32,768"),
        ("env", {"LOWTIDE_FENCE": "1"}, "set by Lowtide"), ("env", {"9A": "1"}, "variable name"),
        ("env", {"A": None}, "quote it"), ("env", {"A": 0.5}, "must be text, not the number 0.5"),
        ("env", {"A": True}, "must be text, not true; quote it"),
        ("env", {"A": "\x00"}, "control characters"),
        ("env", {"A": "x" * 8_193}, "at most 8,192"), ("env", ["A=1"], "mapping of variables"),
        ("env", {f"A{i}": "1" for i in range(65)}, "at most 64 variables"),
        ("env", {f"A{i}": "x" * 8_000 for i in range(5)}, "32,768 characters in all"),
        ("labels", {"team": "a\nb"}, "line breaks"), ("labels", {"a b": "c"}, "label name"),
        ("labels", {"team": 1.10}, "quote it"), ("labels", {"team": ""}, "must not be empty"),
    ],
)  # fmt: skip
def test_values_out_of_bounds_get_a_sentence(field: str, value: object, words: str) -> None:
    problem = only_problem(**{field: value})
    assert problem.kind is ProblemKind.INVALID
    assert problem.field.split(".")[0] == field
    assert words in problem.message


@pytest.mark.parametrize(
    "written", ["2031-12-01", "2031-12-01 18:00", "2031-12-01T18:00:00", "2031-12-01T18:00:07"]
)
def test_a_deadline_without_a_zone_is_refused_with_two_that_are_accepted(written: str) -> None:
    advised = re.findall(r"2031-12-01T\S+", only_problem(deadline=written).message.split("; ")[1])
    assert len(advised) == 2
    at, abroad = (parse_spec({"trainer": TRAINER, "deadline": one}).deadline for one in advised)
    assert at == datetime.fromisoformat(written).replace(tzinfo=UTC)
    assert abroad == at - timedelta(hours=2)


@pytest.mark.parametrize(
    ("gpu", "words"),
    [("cpu", "leave resources.gpu out"), ("V100:0", "1 to 16"), ("V100:99999", "is not a GPU"),
     ({"V100": 17}, "1 to 16"), ({"V100": "1"}, "as a mapping"), (2, "must be text"),
     ("80GB", "write 80GB.."), ("A100:80GB..:1", "memory range"), ("A100:80GB:1:1", "not a GPU"),
     ([], "1 to 16 kinds"), (["V100", "v100:1"], "twice"), ("A100:0GB", "memory must be")],
)  # fmt: skip
def test_gpus_that_cannot_be_read(gpu: object, words: str) -> None:
    problem = only_problem(resources={"gpu": gpu})
    assert problem.field == "resources.gpu"
    assert words in problem.message


@pytest.mark.parametrize("bad", ["\ud800", "a\ud800"])
def test_lone_surrogates_are_refused_everywhere(bad: str) -> None:
    for data in ({bad: 1}, {"run": bad}, {"run": "x", "env": {"A": bad}}, {"env": {bad: 1.5}}):
        for problem in problems_of(data):
            problem.message.encode("utf-8")
            problem.field.encode("utf-8")


def test_every_problem_is_listed_up_to_a_bound() -> None:
    few = problems_of({"trainer": {**TRAINER, "epochs": -1}, "nodes": 0, "notify": "A", "x": 1})
    assert [p.field for p in few] == ["trainer.epochs", "nodes", "notify", "x"]
    many = problems_of({f"k{i}": 1 for i in range(1_000)})
    assert len(many) == 21
    assert "980 more problems" in many[-1].message


def test_env_values_are_never_shown() -> None:
    problem = only_problem(env={"TOKEN": "hunter2\x00"})
    assert "hunter2" not in problem.message


def test_deadline_from_submission_or_at_a_time() -> None:
    submitted_at = datetime(2030, 1, 1, tzinfo=UTC)
    relative = parse_spec({"trainer": TRAINER, "deadline": "36h"})
    absolute = parse_spec({"trainer": TRAINER, "deadline": "2030-01-02T02:00:00+02:00"})
    assert relative.deadline_at(submitted_at) == submitted_at + timedelta(hours=36)
    assert absolute.deadline_at(submitted_at) == submitted_at + timedelta(days=1)
    assert relative.effective_market() == absolute.effective_market() == "auto"
    absolute.require_deadline_ahead(submitted_at)
    for moment, words in ((submitted_at + timedelta(days=1), "has passed"),
                          (datetime(2015, 1, 1, tzinfo=UTC), "ten years")):  # fmt: skip
        with pytest.raises(SpecError, match=words):
            absolute.require_deadline_ahead(moment)
    with pytest.raises(ValueError, match="aware"):
        relative.deadline_at(submitted_at.replace(tzinfo=None))


def test_the_trainer_accepts_what_the_spec_accepts_at_its_bounds() -> None:
    low = {"model": "mlp", "data": "synthetic", "steps": 1, "batch_size": 1, "accumulation": 1,
           "learning_rate": 1e-12, "weight_decay": 0, "warmup_steps": 0, "seed": 0,
           "eval_every_epochs": 0, "step_delay_seconds": 0, "precision": "fp32"}  # fmt: skip
    high = {"model": "cnn", "data": "digits", "epochs": 10**6, "batch_size": 10**6,
            "accumulation": 10**4, "learning_rate": 1_000, "weight_decay": 10, "seed": 2**32 - 1,
            "warmup_steps": 10**6, "eval_every_epochs": 10**6, "step_delay_seconds": 60,
            "optimizer": "sgd", "precision": "fp16",
            "checkpoint_interval_steps": 10**9}  # fmt: skip
    for section in (low, high, TRAINER, {**TRAINER, "accumulation": 64}):
        spec = parse_spec({"trainer": section})
        config = parse_config(spec.trainer_config())
        assert config.seed == section.get("seed", 0)
    assert parse_spec({"run": "x"}).trainer_config() is None
    assert set(Trainer.model_fields) == {f.name for f in dataclasses.fields(TrainConfig)} - {
        "checkpoint_interval_seconds"
    }


def test_training_data_of_a_bucket_is_brought_like_an_input() -> None:
    """The trainer's user has no rights in buckets; a path is read where it is."""
    for data, brought in (
        ("s3://acme/flowers", {TRAINING_DATA_INPUT: "s3://acme/flowers"}),
        ("flowers/small", {}),
        ("digits", {}),
    ):
        spec = parse_spec({"trainer": {**TRAINER, "data": data}, "inputs": {"/x": "gs://bucket/x"}})
        assert spec.brought_folders() == {"/x": "gs://bucket/x", **brought}
        assert (spec.trainer_config() or {})["data"] == data


def test_equal_specs_have_one_digest_however_written() -> None:
    one = parse_spec({"trainer": TRAINER, "deadline": "90m", "budget_usd": 25.5,
                      "resources": {"gpu": {"V100": 1, "L4": 1}}})  # fmt: skip
    two = parse_spec({"budget_usd": "$25.50", "deadline": "1h 30m", "trainer": TRAINER, "nodes": 1,
                      "resources": {"gpu": ["l4", "V100"]}})  # fmt: skip
    assert one == two
    assert spec_digest(one) == spec_digest(two)
    assert spec_digest(one) != spec_digest(parse_spec({"trainer": TRAINER}))
    assert len(spec_digest(one)) == 64


def test_the_schema_shows_the_written_names() -> None:
    schema = JobSpec.model_json_schema()
    assert {"budget_usd", "stall_timeout", "max_wait", "trainer", "image"} <= set(
        schema["properties"]
    )
    assert "budget_microusd" not in schema["properties"]
    assert schema["additionalProperties"] is False
    assert "epochs" in schema["$defs"]["Trainer"]["properties"]


def test_default_names_are_names_and_differ_by_seed() -> None:
    names = {default_name(seed) for seed in range(0, DEFAULT_NAME_COUNT, 97)}
    assert len(names) == len(range(0, DEFAULT_NAME_COUNT, 97))
    assert default_name(7) == default_name(7 + DEFAULT_NAME_COUNT)
    for name in sorted(names)[:50]:
        assert parse_spec({"trainer": TRAINER, "name": name}).name == name
