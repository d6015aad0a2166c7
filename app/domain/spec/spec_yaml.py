"""A small, safe subset of YAML 1.2: mappings, lists and scalars, nothing that expands or executes.

Built on PyYAML's event stream, without its composer and constructor: those recurse, expand aliases
and keep the last of two equal keys. Values are typed by the 1.2 core schema, so `no` and `12:30`
stay text. Refused: aliases, anchors, tags, second documents, doubled keys, keys that are not plain
text. Which fields exist is not known here. libyaml parses where PyYAML was built with it, as its
wheels are: some ten times as fast. Without it PyYAML's own parser gives the same values.
"""

import re
from dataclasses import dataclass, field
from typing import NoReturn

import yaml

from app.domain.units.errors import SpecError

_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False,
             "FALSE": False}  # fmt: skip
# A leading zero stays text: an account number or a colour must not lose it.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)
MAX_INTEGER_DIGITS = 18
_MAX_FLOAT_CHARACTERS = 64


@dataclass(slots=True)
class _Container:
    """A mapping or list being filled; `key` is the mapping's key that waits for its value."""

    value: dict[str, object] | list[object]
    key: str | None = None

    def awaits_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None

    def put(self, item: object) -> None:
        if isinstance(self.value, list):
            self.value.append(item)
        elif self.key is not None:
            self.value[self.key] = item
            self.key = None


@dataclass(slots=True)
class _Builder:
    """Takes events one by one and holds the value built so far."""

    max_depth: int
    max_values: int
    stack: list[_Container] = field(default_factory=list)
    root: object = None
    documents: int = 0
    values: int = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._start_document(event)
        elif isinstance(event, yaml.AliasEvent):
            _refuse(event, "aliases (*name) are not accepted; write the value out")
        elif isinstance(event, yaml.NodeEvent):
            self._start_node(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._place(self.stack.pop().value)

    def _start_document(self, event: yaml.DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            _refuse(event, "only one document is accepted; remove what follows the second `---`")

    def _start_node(self, event: yaml.NodeEvent) -> None:
        self.values += 1
        if self.values > 2 * self.max_values:  # keys count as nodes here, as values later
            _refuse(event, f"more than {self.max_values:,} values; make the text smaller")
        if event.anchor is not None:
            _refuse(event, "anchors (&name) are not accepted; write the value out")
        if getattr(event, "tag", None) is not None:
            _refuse(event, "tags (!name) are not accepted; write the plain value")
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
            return
        if self.stack and self.stack[-1].awaits_key():
            _refuse(event, "a key must be plain text, not a list or a mapping")
        if len(self.stack) >= self.max_depth:
            _refuse(event, f"nested more than {self.max_depth} levels deep; make it flatter")
        self.stack.append(_Container({} if isinstance(event, yaml.MappingStartEvent) else []))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if self.stack and self.stack[-1].awaits_key():
            container = self.stack[-1]
            if event.value in container.value:
                shown = event.value[:40]
                _refuse(event, f"the key {shown!r} is written twice; keep one of them")
            container.key = event.value
        else:
            self._place(_typed(event) if event.implicit[0] else event.value)

    def _place(self, value: object) -> None:
        if self.stack:
            self.stack[-1].put(value)
        else:
            self.root = value


def read_yaml(text: str, *, max_depth: int, max_values: int) -> object:
    """The one value that `text` writes: dict, list, str, int, float, bool or None.

    Raises SpecError with the line and column for anything refused or not YAML. `text` must already
    be free of control characters and bounded in size.
    """
    builder = _Builder(max_depth, max_values)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        where, line = _where(error.problem_mark), _line(error.problem_mark)
        began = _line(error.context_mark)
        told = f"{where}not valid YAML: {error.problem or error.context}"
        if error.problem and error.context and began is not None:
            told = f"{told} ({error.context} that begins in line {began})"
        raise SpecError.of(told, line=line) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets the errors of chr() and int() through for absurd escapes and directives.
        raise SpecError.of(f"not valid YAML: {str(error)[:200]}") from error
    return builder.root


def _typed(event: yaml.ScalarEvent) -> object:
    """A plain scalar by the core schema of YAML 1.2."""
    text = event.value
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        if len(text.lstrip("+-")) > MAX_INTEGER_DIGITS:
            _refuse(event, f"the number {text[:20]}… is too large; quote it if it is text")
        return int(text)
    if _NOT_FINITE.fullmatch(text):
        _refuse(event, f"{text} is not a number that can be used; write a finite one")
    if _is_float(text):
        if len(text) > _MAX_FLOAT_CHARACTERS:
            _refuse(event, f"the number {text[:20]}… is too long; quote it if it is text")
        return float(text)
    return text


def _is_float(text: str) -> bool:
    if _FLOAT.fullmatch(text) is None:
        return False
    digits = text.lstrip("+-")
    # "007" reached here as no integer; it has no point or exponent, so it stays text.
    return not digits.isdigit()


def _refuse(event: yaml.Event, sentence: str) -> NoReturn:
    told = f"{_where(event.start_mark)}{sentence}"
    raise SpecError.of(told, line=_line(event.start_mark))


def _line(mark: object) -> int | None:
    line = getattr(mark, "line", None)
    return None if line is None else line + 1


def _where(mark: object) -> str:
    """`mark` is PyYAML's place in the text, counted from 0, or None."""
    line, column = getattr(mark, "line", None), getattr(mark, "column", None)
    return "" if line is None or column is None else f"line {line + 1}, column {column + 1}: "
