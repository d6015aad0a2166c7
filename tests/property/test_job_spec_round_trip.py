"""Any accepted spec survives being stored and read again; no bytes at all cause anything but a
clear refusal.
"""

import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.domain.market.machine_need import INTERCONNECT_WORDS
from app.domain.spec.job_spec import JobSpec, parse_spec, spec_digest
from app.domain.spec.spec_text import SpecTextType, parse_spec_text
from app.domain.units.errors import SpecError
from tests.property.examples import in_full
from trainer.training.config import parse_config

MILLION = 10**6


def optional(required: dict[str, Any], others: dict[str, Any]) -> Any:
    return st.fixed_dictionaries(required, optional=others)


names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
shown_characters = st.characters(
    codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"
)
texts = st.text(shown_characters, min_size=1, max_size=40).filter(str.strip)
durations = st.builds(
    "{}{}".format, st.integers(1, 365), st.sampled_from(["s", "m", "h", "d", "m30s", "h 5m"])
)
intervals = st.builds("{}{}".format, st.integers(1, 23), st.sampled_from(["s", "m", "h"]))
money = st.one_of(
    st.integers(1, 10**9),
    st.decimals("0.01", 10**9, places=6, allow_nan=False).map(str),
    st.integers(1, 10**9).map(lambda cents: cents / 100),
    st.integers(1, 10**9).map(lambda dollars: f"${dollars}"),
)
gpus = st.sampled_from(
    ["V100:{n}", "a100:80GB:{n}", "40GB..:{n}", "L4:{n}", "H100:{n}", "RTX-PRO-6000:{n}"]
)
gpu_lists = st.builds(
    lambda forms, count: [form.format(n=count) for form in forms],
    st.lists(gpus, min_size=1, max_size=4, unique=True),
    st.integers(1, 16),
)
gpu_field = st.one_of(
    gpu_lists, gpu_lists.map(lambda several: several[0]), st.just({"V100": 2, "L4": 2})
)
places = st.lists(
    st.sampled_from(["aws", "gcp", "local", "gcp/us-central1", "aws/us-east-1/us-east-1a"]),
    min_size=1, max_size=5, unique=True,
)  # fmt: skip
times = st.datetimes(timezones=st.timezones()).map(lambda time: time.isoformat())
trainers = st.one_of(
    st.integers(1, MILLION).map(lambda n: {"epochs": n}),
    st.integers(1, 10**9).map(lambda n: {"steps": n}),
).flatmap(
    lambda length: optional(
        {
            "model": st.sampled_from(["cnn", "mlp", "resnet18"]),
            "data": st.sampled_from(["digits", "synthetic"]),
            **{key: st.just(value) for key, value in length.items()},
        },
        {
            "batch_size": st.integers(64, MILLION),
            "precision": st.sampled_from(["fp32", "bf16", "fp16"]),
            "learning_rate": st.floats(1e-12, 1_000),
            "weight_decay": st.floats(0, 10),
            "warmup_steps": st.integers(0, MILLION),
            "accumulation": st.integers(1, 64),
            "seed": st.integers(0, 2**32 - 1),
            "optimizer": st.sampled_from(["sgd", "adamw"]),
            "eval_every_epochs": st.integers(0, MILLION),
            "step_delay_seconds": st.one_of(st.floats(0, 60), st.integers(0, 60)),
        },
    )
)
estimates = optional(
    {"hours": st.floats(0.01, 8_760)},
    {"gpu": st.sampled_from(["H100:8", "V100"]), "nodes": st.integers(1, 64)},
)
folders = st.sampled_from(["/data", "/data-2", "/mnt/corpus", "/home/me/x", "/srv/a.b/c"])
addresses = st.sampled_from(["s3://acme/corpus/", "gs://acme", "file:///srv/corpus"])
common = {
    "image": st.sampled_from(["a:1", "nvcr.io/nvidia/pytorch:25.05-py3", "localhost:5000/a/b"]),
    "instance_types": st.lists(
        st.sampled_from(["p4d.24xlarge", "a2-highgpu-8g"]), min_size=1, max_size=3
    ),
    "inputs": st.dictionaries(folders, addresses, max_size=3),
    "outputs": st.dictionaries(st.sampled_from(["out", "a/b"]), addresses, max_size=2),
    "name": names,
    "project": names,
    "priority": st.integers(0, 100),
    "workdir": st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True),
    "setup": texts,
    "nodes": st.integers(1, 64) | st.sampled_from(["2..4", "1..64", "7..7"]),
    "resources": optional(
        {},
        {
            "gpu": gpu_field,
            "cpus": st.one_of(st.integers(1, 1_024), st.integers(1, 1_024).map("{}+".format)),
            "memory": st.builds(
                "{}{}{}".format,
                st.integers(1, 64),
                st.sampled_from(["GB", "TB", "gb"]),
                st.sampled_from(["", "+"]),
            ),
            "interconnect": st.sampled_from(INTERCONNECT_WORDS),
            "disk": st.integers(10, 16_384).map("{}GB".format),
            "shm_size": st.integers(1, 16_000_000).map("{}MB".format),
        },
    ),
    "market": st.sampled_from(["auto", "spot", "on_demand", "on-demand"]),
    "infra": st.one_of(places, st.just("aws")),
    "max_price_ratio": st.floats(0.001, 2),
    "deadline": st.one_of(durations, times),
    "on_deadline": st.sampled_from(["finish", "stop"]),
    "estimate": estimates,
    "budget_usd": money,
    "max_duration": durations,
    "max_wait": durations,
    "patience": st.just("0s"),
    "retries": st.integers(0, 100),
    "retry_on_exit_codes": st.lists(st.integers(1, 255), max_size=5),
    "stall_timeout": durations,
    "checkpoint": optional(
        {},
        {
            "uri": st.sampled_from(
                ["file:///srv/checkpoints", "s3://acme/ckpt", "gs://acme-eu/a/b/"]
            ),
            "interval": st.one_of(st.just("auto"), intervals),
            "keep": st.integers(1, 1_000),
        },
    ),
    "env": st.dictionaries(
        st.from_regex(r"[A-KM-Za-km-z_][A-Za-z0-9_]{0,9}", fullmatch=True),
        st.one_of(st.just(""), texts, st.integers(-(10**17), 10**17)),
        max_size=4,
    ),
    "notify": st.lists(st.sampled_from(["team", "ops", "a-1"]), max_size=3),
    "labels": st.dictionaries(names, st.one_of(texts, st.integers(0, 10**17)), max_size=4),
}
specs = st.one_of(
    optional({"trainer": trainers}, common),
    optional(
        {"run": texts, "estimate": estimates},
        {key: values for key, values in common.items() if key != "estimate"},
    ),
)


@settings(max_examples=in_full(150), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(specs)
def test_storing_and_reading_gives_the_same_spec(data: dict[str, Any]) -> None:
    spec = parse_spec(data)
    stored = spec.to_json()
    text = json.dumps(stored)
    for again in (stored, parse_spec_text(text.encode(), "json"), json.loads(text)):
        read = parse_spec(again)
        assert read == spec
        assert read.to_json() == stored
        assert spec_digest(read) == spec_digest(spec)
    assert JobSpec.model_validate(stored) == spec
    if spec.trainer is not None:
        parse_config(spec.trainer_config())


class QuotedTexts(yaml.SafeDumper):
    """Quotes every text, since `0e0` or `1_0` unquoted is a number to one YAML and not another."""


QuotedTexts.add_representer(
    str, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"')
)


@settings(max_examples=in_full(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(specs)
def test_yaml_and_json_texts_mean_the_same(data: dict[str, Any]) -> None:
    as_json = json.dumps(data, ensure_ascii=False).encode()
    as_yaml = yaml.dump(data, Dumper=QuotedTexts, allow_unicode=True).encode()
    spec = parse_spec(parse_spec_text(as_json, "json"))
    assert parse_spec(parse_spec_text(as_yaml, "yaml")) == spec
    assert parse_spec(parse_spec_text(as_json, "yaml")) == spec


def check_refusal(error: SpecError) -> None:
    """Each problem is a short sentence that can be sent and stored."""
    for problem in error.problems:
        assert 0 < len(problem.message.encode("utf-8")) < 1_000
        assert len(problem.field.encode("utf-8")) < 1_000


def refuse_or_read(text: bytes, content_type: SpecTextType) -> None:
    try:
        spec = parse_spec(parse_spec_text(text, content_type))
    except SpecError as error:
        check_refusal(error)
    else:
        assert parse_spec(spec.to_json()) == spec


fragments = st.lists(
    st.sampled_from(
        [
            *(b": ", b"- ", b"{", b"}", b"[", b"]", b",", b"&x ", b"*x", b"!!int ", b"!<", b">"),
            *(b"'", b'"', b"\\", b"? ", b"<<", b"# ", b"@", b"`"),
            *(b"a", b"trainer", b"run", b"1", b"1e9", b".inf", b"null", b"\n", b"  ", b"|"),
            *(b"%YAML 1.2\n", b"%TAG ! x\n", b"---\n", b"...\n", b"\t", b"\r", b"\x00", b"\x85"),
            *(b"\\x", b"\\U00110000", b"\\ud800", b"\xff", "\u2028é".encode()),
        ]
    ),
    max_size=40,
).map(b"".join)


@settings(max_examples=in_full(400), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.one_of(st.binary(max_size=200), fragments))
@example(b"%YAML 99999999999999999999.1\n---\na: 1\n")
@example(b"%YAML 1.2\n%YAML 1.2\n---\na: 1\n")
@example(b'a: "\\xZZ"')
@example(b"a: |99\n  x")
def test_any_bytes_are_read_or_refused_with_a_sentence(text: bytes) -> None:
    refuse_or_read(text, "yaml")
    refuse_or_read(text, "json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
field_names = st.sampled_from([info.alias or name for name, info in JobSpec.model_fields.items()])


# The first draw of free text builds a table of all characters, which is slow on a fresh checkout.
@settings(max_examples=in_full(300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(field_names, json_values, max_size=4))
def test_any_value_in_any_field_is_read_or_refused(data: dict[str, Any]) -> None:
    data = {"trainer": {"model": "cnn", "data": "digits", "epochs": 1}, **data}
    try:
        spec = parse_spec(data)
    except SpecError as error:
        check_refusal(error)
    else:
        assert parse_spec(spec.to_json()) == spec


_JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=6), _JSON_VALUES, max_size=6), st.booleans())
def test_the_quick_reading_of_json_and_the_slow_one_agree(
    value: dict[str, Any], ascii_only: bool
) -> None:
    """A space before a colon makes a text take the slow way."""
    quick = json.dumps(value, ensure_ascii=ascii_only)
    slow = json.dumps(value, ensure_ascii=ascii_only, separators=(",", " : "))

    def read(text: str) -> object:
        try:
            return repr(parse_spec_text(text.encode("utf-8", "surrogatepass"), "json"))
        except SpecError as error:
            return type(error)

    assert read(quick) == read(slow)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":":"}}',
        '{"a":12345678901234567890123}',
        '{"a":1e999}',
        '{"a":[' + "[" * 30 + "]" * 31 + "}",
        '{"a":NaN}',
        '{"a":"\\u0000"}',
    ],
)
def test_what_the_quick_reading_must_not_let_through(text: str) -> None:
    with pytest.raises(SpecError):
        parse_spec_text(text.encode(), "json")
