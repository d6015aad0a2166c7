"""What describes one option: a dataclass field with bounds, choices and a sentence about it.

The type of the field says its kind: ``int``, ``float``, ``bool``, ``str``, ``tuple[T, ...]`` (a
list), ``Mapping[str, T]`` (a small mapping), ``Plain`` (any number, text or flag), each with
``| None`` when it may be left open and with ``| Literal["auto"]`` when a word may stand for it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Plain = str | int | float | bool
OptionKind = Literal["whole number", "number", "flag", "text", "list", "mapping", "plain"]

TEXT_MOST = 4_096
ENTRIES_MOST = 64
_KEY = "option"
_KINDS: dict[object, OptionKind] = {bool: "flag", int: "whole number", float: "number", str: "text"}


class OptionError(ValueError):
    """A configuration cannot be used. ``key`` names the option at fault, "" when none alone is."""

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(f"{key}: {sentence}" if key else sentence)
        self.key = key
        self.sentence = sentence


@dataclass(frozen=True)
class Rules:
    """What ``option`` puts on a field. ``low`` and ``high`` are inclusive and hold for each entry
    of a list or mapping, as ``choices`` and ``pattern`` do.

    ``pattern`` is a regular expression for the whole text, accepted beside the ``choices``; ``how``
    says it in words. ``length`` is the exact number of entries of a list. ``identity``: a resumed
    run must have the same value. ``in_spec`` False: the job spec writes it elsewhere.
    """

    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    how: str = ""
    length: int | None = None
    about: str = ""
    identity: bool = False
    in_spec: bool = True


@dataclass(frozen=True)
class FieldType:
    """The type of a field, taken apart. ``entry`` is the kind of a list's or mapping's entries."""

    kind: OptionKind
    optional: bool = False
    words: tuple[str, ...] = ()
    entry: OptionKind | None = None


@dataclass(frozen=True)
class Option:
    """One option as every reader of the table sees it; ``default`` is ``REQUIRED`` if none."""

    name: str
    section: str
    shape: FieldType
    rules: Rules
    default: Any


REQUIRED: Any = dataclasses.MISSING


def option(
    default: Any = REQUIRED, *, factory: Callable[[], Any] | None = None, about: str, **rules: Any
) -> Any:
    """A dataclass field with the ``Rules`` given; ``factory`` makes a default that is mutable."""
    metadata = {_KEY: Rules(about=about, **rules)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(section: type) -> tuple[Option, ...]:
    """The options that a dataclass declares or inherits, in the order of its fields."""
    hints = typing.get_type_hints(section)
    owners = {
        name: owner
        for owner in reversed(section.__mro__)
        for name in vars(owner).get("__annotations__", {})
    }
    return tuple(
        Option(
            name=field.name,
            section=owners[field.name].__name__,
            shape=_shape(hints[field.name]),
            rules=field.metadata[_KEY],
            default=(
                field.default
                if field.default_factory is dataclasses.MISSING
                else field.default_factory()
            ),
        )
        for field in dataclasses.fields(section)
    )


def _shape(hint: Any) -> FieldType:
    """Takes a type apart. Raises ``TypeError`` for one that no option may have."""
    parts = list(typing.get_args(hint)) if _is_union(hint) else [hint]
    optional = types.NoneType in parts
    words: tuple[str, ...] = ()
    rest = []
    for part in parts:
        if typing.get_origin(part) is Literal:
            words += typing.get_args(part)
        elif part is not types.NoneType:
            rest.append(part)
    if set(rest) == set(typing.get_args(Plain)):
        return FieldType("plain", optional, words)
    if len(rest) == 1:
        origin, arguments = typing.get_origin(rest[0]), typing.get_args(rest[0])
        if origin is tuple:
            return FieldType("list", optional, words, _shape(arguments[0]).kind)
        if origin is Mapping:
            return FieldType("mapping", optional, words, _shape(arguments[1]).kind)
        if rest[0] in _KINDS:
            return FieldType(_KINDS[rest[0]], optional, words)
    raise TypeError(f"an option cannot have the type {hint}")


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)
