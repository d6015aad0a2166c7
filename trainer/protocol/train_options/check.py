"""One value against the description of its option, and the sentence for what is not accepted."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from trainer.protocol.train_options.option import (
    ENTRIES_MOST,
    TEXT_MOST,
    FieldType,
    Option,
    OptionError,
    OptionKind,
    Rules,
)

_NAME_MOST = 128


def checked(option: Option, value: object) -> Any:
    """``value`` as the option's type has it (a list becomes a tuple, a whole number a float where
    a number is meant). Raises ``OptionError``.
    """
    shape = option.shape
    if (value is None and shape.optional) or (isinstance(value, str) and value in shape.words):
        return value
    try:
        if shape.kind == "list":
            return _list(shape, option.rules, value)
        if shape.kind == "mapping":
            return _mapping(shape, option.rules, value)
        return _one(shape.kind, option.rules, shape.words, value)
    except ValueError as error:
        raise OptionError(option.name, str(error)) from None


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """`; did you mean 'x'?` for the nearest known word, ``otherwise`` when none is near."""
    near = difflib.get_close_matches(word[:_NAME_MOST], list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else otherwise


def accepted(option: Option) -> str:
    """What may be written, in words: "a whole number 1 to 10", "one of fp32, bf16"."""
    shape, rules = option.shape, option.rules
    if shape.kind == "list":
        count = f"{rules.length} " if rules.length else ""
        one = _accepted(shape.entry or "plain", rules, ())
        return f"a list of {count}" + re.sub("^a (whole number|number)", r"\1s", one)
    if shape.kind == "mapping":
        return f"a mapping of names to {_accepted(shape.entry or 'plain', rules, ())}"
    return _accepted(shape.kind, rules, shape.words)


def _accepted(kind: OptionKind, rules: Rules, words: tuple[str, ...]) -> str:
    others = "".join(f" or {json.dumps(word)}" for word in words)
    if kind == "flag":
        return f"true or false{others}"
    if kind == "whole number":
        return f"a whole number{_bounds(rules, 'd')}{others}"
    if kind == "number":
        return f"a number{_bounds(rules, 'g')}{others}"
    if kind == "plain":
        return f"a number, text, true or false{others}"
    choices = f"one of {', '.join((*rules.choices, *words))}" if rules.choices else ""
    free = rules.how or "text"
    return f"{choices}, or {free}" if choices and rules.pattern else choices or f"{free}{others}"


def _bounds(rules: Rules, form: str) -> str:
    if rules.low is None:
        return "" if rules.high is None else f" of at most {rules.high:{form}}"
    return f" {rules.low:{form}} " + (
        "or more" if rules.high is None else f"to {rules.high:{form}}"
    )


def _list(shape: FieldType, rules: Rules, value: object) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"expected a list, got {shown(value)}")
    if rules.length is not None and len(value) != rules.length:
        raise ValueError(f"expected a list of {rules.length} entries, got {len(value)}")
    if len(value) > ENTRIES_MOST:
        raise ValueError(f"expected at most {ENTRIES_MOST} entries, got {len(value)}")
    return tuple(_one(shape.entry or "plain", rules, (), entry) for entry in value)


def _mapping(shape: FieldType, rules: Rules, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping, got {shown(value)}")
    if len(value) > ENTRIES_MOST:
        raise ValueError(f"expected at most {ENTRIES_MOST} entries, got {len(value)}")
    for name in value:
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_MOST or not name.isprintable():
            raise ValueError(f"{shown(name)} cannot be a name; write 1 to {_NAME_MOST} characters")
    return {name: _one(shape.entry or "plain", rules, (), each) for name, each in value.items()}


def _one(kind: OptionKind, rules: Rules, words: tuple[str, ...], value: object) -> Any:
    if kind == "plain" and isinstance(value, (str, bool)):
        kind = "text" if isinstance(value, str) else "flag"
    if kind == "text":
        return _text(rules, words, value)
    if kind == "flag":
        if isinstance(value, bool):
            return value
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and _within(rules, value):
        if kind == "number":
            return float(value)
        if kind == "plain" or isinstance(value, int):
            return value
    raise ValueError(f"expected {_accepted(kind, rules, words)}, got {shown(value)}")


def _within(rules: Rules, number: float) -> bool:
    low = -math.inf if rules.low is None else rules.low
    high = math.inf if rules.high is None else rules.high
    return low <= number <= high and number not in (-math.inf, math.inf)


def _text(rules: Rules, words: tuple[str, ...], value: object) -> str:
    if isinstance(value, str) and (value in rules.choices or _free_text(rules, value)):
        return value
    wanted = _accepted("text", rules, words)
    if not rules.choices:
        raise ValueError(f"expected {wanted}, got {shown(value)}")
    near = nearest(value, rules.choices) if isinstance(value, str) else ""
    raise ValueError(f"{shown(value)} is not known; {wanted}{near}")


def _free_text(rules: Rules, value: str) -> bool:
    if rules.pattern:
        return len(value) <= TEXT_MOST and re.fullmatch(rules.pattern, value, re.ASCII) is not None
    return not rules.choices and 0 < len(value) <= TEXT_MOST and value.isprintable()


def shown(value: object) -> str:
    """A value of JSON as it was written, cut after 60 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
