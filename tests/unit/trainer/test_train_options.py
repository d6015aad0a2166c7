"""The table of the trainer's options: every kind is checked, in the trainer and in the job spec."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.units.errors import SpecError
from trainer.protocol.train_options import OptionError
from trainer.protocol.train_options.check import accepted, checked
from trainer.protocol.train_options.option import REQUIRED, Option, Plain, option, options_of
from trainer.protocol.train_options.train_config import OPTIONS


@dataclass(frozen=True, kw_only=True)
class EveryKind:
    """One option of each kind."""

    whole: int = option(1, low=0, high=9, about="whole")
    number: float = option(0.5, low=0, high=1, about="number")
    flag: bool = option(False, about="flag")
    word: str = option("a", choices=("alpha", "beta"), about="word")
    open_word: str = option("a", choices=("alpha",), pattern=r"\w+:\w+", how="m:f", about="open")
    text: str | None = option(None, about="text")
    ratio: tuple[float, ...] = option((), low=0, high=1, length=3, about="ratio")
    steps: tuple[int, ...] = option((), low=1, high=9, about="steps")
    names: Mapping[str, str] = option(factory=dict, about="names")
    plain: Mapping[str, Plain] = option(factory=dict, about="plain")
    auto: float | Literal["auto"] | None = option("auto", low=0, high=1, about="auto")


TABLE = {each.name: each for each in options_of(EveryKind)}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("whole", 9, 9),
        ("number", 1, 1.0),
        ("flag", True, True),
        ("word", "beta", "beta"),
        ("open_word", "my:own", "my:own"),
        ("text", None, None),
        ("text", "über", "über"),
        ("ratio", [0.7, 0.2, 0], (0.7, 0.2, 0.0)),
        ("steps", [3, 4], (3, 4)),
        ("names", {"a": "b"}, {"a": "b"}),
        ("plain", {"a": 1, "b": "x", "c": True}, {"a": 1, "b": "x", "c": True}),
        ("auto", "auto", "auto"),
        ("auto", 0.5, 0.5),
    ],
)
def test_what_is_accepted(name: str, value: object, kept: object) -> None:
    result = checked(TABLE[name], value)
    assert (result, type(result)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("whole", 10, "whole: expected a whole number 0 to 9, got 10"),
        ("whole", True, "whole: expected a whole number 0 to 9, got true"),
        ("whole", None, "whole: expected a whole number 0 to 9, got null"),
        ("number", float("nan"), "number: expected a number 0 to 1, got NaN"),
        ("flag", 1, "flag: expected true or false, got 1"),
        ("word", "bata", "\"bata\" is not known; one of alpha, beta; did you mean 'beta'?"),
        ("open_word", "my own", "is not known; one of alpha, or m:f"),
        ("text", "a\nb", "expected text"),
        ("text", "", "expected text"),
        ("ratio", [1], "expected a list of 3 entries, got 1"),
        ("ratio", [1, 2, 3], "expected a number 0 to 1, got 2"),
        ("ratio", 1, "expected a list, got 1"),
        ("steps", [1] * 65, "expected at most 64 entries, got 65"),
        ("names", ["a"], "expected a mapping"),
        ("names", {"a": 1}, "expected text, got 1"),
        ("names", {"": "a"}, "cannot be a name"),
        ("plain", {"a": [1]}, "expected a number, text, true or false"),
        ("plain", {"a": float("inf")}, "got Infinity"),
        ("auto", "often", 'expected a number 0 to 1 or "auto", got "often"'),
    ],
)
def test_what_is_refused_and_in_which_words(name: str, value: object, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        checked(TABLE[name], value)
    assert sentence in str(caught.value)
    assert caught.value.key == name


def test_a_type_that_no_option_may_have_is_refused() -> None:
    @dataclass(frozen=True)
    class Wrong:
        """An option of bytes."""

        data: bytes = option(b"", about="bytes")

    with pytest.raises(TypeError, match="cannot have the type"):
        options_of(Wrong)


@pytest.mark.parametrize("each", OPTIONS, ids=lambda each: each.name)
def test_every_option_is_described_and_its_default_is_one_it_accepts(each: Option) -> None:
    assert each.rules.about
    assert accepted(each)
    if each.default is not REQUIRED:
        assert checked(each, each.default) == each.default


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("split", "a list of 3 whole numbers 0 to 1000000"),
        ("schedule_drops", "a list of numbers 0 to 1"),
        ("batch_size", "a whole number 1 to 1000000"),
    ],
)
def test_what_a_list_holds_is_said_in_the_plural(name: str, words: str) -> None:
    [described] = [each for each in OPTIONS if each.name == name]
    assert accepted(described) == words


@functools.cache
def _job_spec_schema() -> dict[str, Any]:
    """Made once: it takes 60 ms, and every option looks at it."""
    return JobSpec.model_json_schema()


@pytest.mark.parametrize(
    "each", [each for each in OPTIONS if each.rules.in_spec], ids=lambda each: each.name
)
def test_the_job_spec_has_every_option_at_its_place(each: Option) -> None:
    wrong: dict[str, Any] = {"model": "cnn", "data": "digits", "epochs": 1, each.name: [[]]}
    with pytest.raises(SpecError) as caught:
        parse_spec({"trainer": wrong})
    assert caught.value.problems[0].field == f"trainer.{each.name}"
    fields = _job_spec_schema()["$defs"]["Trainer"]["properties"]
    assert fields[each.name]["description"] == each.rules.about
