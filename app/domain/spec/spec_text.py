"""The text of a job spec (YAML or JSON bytes) to a plain mapping, within bounds.

Nothing here knows a field of the spec: only size, depth, number of values, characters, numbers and
doubled keys are judged. The rules of the fields live in job_spec.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Literal, NoReturn

from app.domain.spec.spec_yaml import MAX_INTEGER_DIGITS, read_yaml
from app.domain.units.errors import SpecError

MAX_SPEC_BYTES = 256 * 1024
MAX_DEPTH = 20
MAX_VALUES = 5_000

SpecTextType = Literal["yaml", "json"]

_CONTAINERS = (dict, list)

# Control characters except tab, newline and return; lone surrogates; the two non-characters. NUL
# and lone surrogates cannot be stored by PostgreSQL, the others hide text from whoever reads it.
_BAD_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def parse_spec_text(text: bytes, content_type: SpecTextType) -> dict[str, object]:
    """The mapping that `text` writes; values are dict, list, str, int, float, bool or None.

    Raises SpecError, and nothing else, whatever the bytes are. Refused: more than 256 KiB, 5,000
    values or 20 levels, anything that is not UTF-8, control characters, doubled keys, NaN and
    infinity, integers beyond 18 digits, and in YAML aliases, anchors, tags and second documents.
    """
    if len(text) > MAX_SPEC_BYTES:
        _refuse(f"the spec is {len(text):,} bytes; at most {MAX_SPEC_BYTES:,} are accepted")
    decoded = _decode(text)
    if not decoded.strip():
        _refuse("the spec is empty; it needs at least `trainer` or `run`")
    if content_type == "json":
        value = _read_json(decoded)
    else:
        value = read_yaml(decoded, max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    # Only an escape can hide a character from the look at the whole text above.
    _check_tree(value, texts="\\" in decoded)
    if not isinstance(value, dict):
        _refuse(f"the spec must be a mapping of fields, not {_kind_of(value)}")
    return value


def has_bad_character(text: str) -> bool:
    """Whether `text` holds NUL, another control character (not tab, newline, return) or a lone
    surrogate: such text is refused everywhere in a spec.
    """
    return _BAD_CHARACTER.search(text) is not None


def _decode(text: bytes) -> str:
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        _refuse(f"line {line}: the spec is not UTF-8 text; save it as UTF-8")
    bad = _BAD_CHARACTER.search(decoded)
    if bad is not None:
        line = decoded.count("\n", 0, bad.start()) + 1
        column = bad.start() - decoded.rfind("\n", 0, bad.start())
        _refuse(
            f"line {line}, column {column}: control character U+{ord(bad[0]):04X} is not allowed; "
            "remove it"
        )
    return decoded


def _read_json(text: str) -> object:
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_doubles,
            parse_constant=_refuse_constant,
            parse_int=_bounded_int,
        )
    except json.JSONDecodeError as error:
        _refuse(f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}")
    except RecursionError:
        _refuse_depth()


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                _refuse(f"the key {key[:40]!r} is written twice in one mapping; keep one of them")
            seen.add(key)
    return mapping


def _refuse_constant(name: str) -> NoReturn:
    _refuse(f"{name} is not a number that can be used; write a finite one")


def _bounded_int(digits: str) -> int:
    # Before int(): turning very long digits into a number is slow, and Python refuses it itself.
    if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
        _refuse(f"the number {digits[:20]}… is too large; at most {MAX_INTEGER_DIGITS} digits")
    return int(digits)


def _check_tree(root: object, *, texts: bool) -> None:
    """Bounds on a parsed value, without recursion; `texts`: look at each key and text, too."""
    waiting: list[tuple[object, int]] = [(root, 1)]
    values = 0
    while waiting:
        value, depth = waiting.pop()
        values += 1
        if values > MAX_VALUES:
            _refuse(f"the spec holds more than {MAX_VALUES:,} values; make it smaller")
        if isinstance(value, str):
            if texts:
                _check_text(value)
        elif isinstance(value, float) and not math.isfinite(value):
            _refuse_constant("a number beyond the range of floats")
        elif isinstance(value, _CONTAINERS):
            if depth > MAX_DEPTH:
                _refuse_depth()
            items: Iterable[object] = value
            if isinstance(value, dict):
                if texts:
                    for key in value:
                        _check_text(key)
                items = value.values()
            waiting += [(item, depth + 1) for item in items]


def _check_text(text: str) -> None:
    bad = _BAD_CHARACTER.search(text)
    if bad is not None:
        shown = ascii(text[max(0, bad.start() - 10) : bad.start() + 1])
        _refuse(f"control character U+{ord(bad[0]):04X} in text near {shown}; remove it")


def _refuse_depth() -> NoReturn:
    _refuse(f"the spec is nested more than {MAX_DEPTH} levels deep; make it flatter")


def _kind_of(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "text" if isinstance(value, str) else f"{value!r}"


def _refuse(message: str) -> NoReturn:
    raise SpecError.of(message)
