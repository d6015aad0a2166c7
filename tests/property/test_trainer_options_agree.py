"""The job spec and the trainer accept the same options: both are made from one table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import SpecError
from tests.property.examples import in_full
from trainer.protocol.train_options import OptionError, parse_options
from trainer.protocol.train_options.option import Option, OptionKind, Rules
from trainer.protocol.train_options.train_config import OPTIONS

MOST = 10**6
NUMBERS: tuple[OptionKind, ...] = ("whole number", "number")


def values(option: Option) -> st.SearchStrategy[Any]:
    """Values that may be right, and some that are not."""
    shape, rules = option.shape, option.rules
    right: st.SearchStrategy[Any]
    if shape.kind == "list":
        size = rules.length or 2
        right = st.lists(one(shape.entry or "plain", rules), min_size=size, max_size=size)
    elif shape.kind == "mapping":
        names = st.text("abc_", min_size=1, max_size=4)
        right = st.dictionaries(names, one(shape.entry or "plain", rules), max_size=2)
    else:
        right = one(shape.kind, rules)
    wrong = st.sampled_from([[], "", -1, 10**400, {"a": 1}, "no such word", float("nan"), True])
    others = st.sampled_from([*shape.words, None]) if shape.optional else st.just(None)
    return st.one_of(right, right, right, others, wrong)


def one(kind: OptionKind, rules: Rules) -> st.SearchStrategy[Any]:
    low = -MOST if rules.low is None else rules.low
    high = MOST if rules.high is None else rules.high
    if kind == "whole number":
        return st.integers(int(low), int(high))
    if kind == "number":
        return st.floats(low, high)
    if kind == "flag":
        return st.booleans()
    if kind == "plain":
        return st.one_of(st.integers(-9, 9), st.booleans(), st.just("word"))
    return (
        st.sampled_from(rules.choices) if rules.choices else st.sampled_from(["a", "/a/b", "a:b"])
    )


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(OPTIONS), max_size=4, unique_by=lambda each: each.name))
    document: dict[str, Any] = {"model": "mlp", "data": "digits", "steps": 5}
    document.update({option.name: draw(values(option)) for option in chosen})
    return {name: value for name, value in document.items() if value is not None}


@settings(max_examples=in_full(300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(documents())
def test_what_the_spec_accepts_the_trainer_accepts_and_the_other_way_round(
    document: dict[str, Any],
) -> None:
    elsewhere = {option.name for option in OPTIONS if not option.rules.in_spec}
    document = {name: value for name, value in document.items() if name not in elsewhere}
    try:
        config = parse_options(document)
    except OptionError:
        with pytest.raises(SpecError) as caught:
            parse_spec({"trainer": document})
        assert all(problem.field.startswith("trainer") for problem in caught.value.problems)
        return
    spec = parse_spec({"trainer": document})
    written = spec.trainer_config()
    assert written is not None
    if document.get("checkpoint_interval_steps") is None:
        assert written.pop("checkpoint_interval_seconds") == "auto"
    assert parse_options(written) == config
    assert parse_spec(spec.to_json()) == spec
