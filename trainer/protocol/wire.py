"""Strict conversion between frozen dataclasses and JSON-able dictionaries.

Lives here: `encode` and `decode`, used by every shape of the protocol. Not here: any shape.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

T = TypeVar("T")


class WireError(ValueError):
    """A received document does not have the shape it should; the message names the field."""


def encode(value: Any) -> Any:
    """Turn a dataclass (or a tuple, list or dict of them) into plain JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    return value


def decode(shape: type[T], document: Any, where: str = "") -> T:
    """Build `shape` from a JSON document.

    Unknown fields are ignored, so that a newer peer may say more; a missing field without a
    default, or a value of another type, raises WireError with the path of the field.
    """
    if not isinstance(document, dict):
        raise WireError(f"{where or 'document'}: expected an object")
    hints = _hints(typing.cast(Any, shape))
    given: dict[str, Any] = {}
    for field in dataclasses.fields(shape):  # type: ignore[arg-type]
        path = f"{where}.{field.name}" if where else field.name
        if field.name in document:
            given[field.name] = _convert(hints[field.name], document[field.name], path)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise WireError(f"{path}: missing")
    return shape(**given)


@functools.cache
def _hints(shape: Any) -> dict[str, Any]:
    """The types of a shape's fields; resolved once, for every report is decoded with them."""
    return typing.get_type_hints(shape)


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(hint, value, where)
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise WireError(f"{where}: expected a list")
        item = get_args(hint)[0]
        converted = [_convert(item, part, f"{where}[{i}]") for i, part in enumerate(value)]
        return tuple(converted) if origin is tuple else converted
    if origin is dict:
        if not isinstance(value, dict):
            raise WireError(f"{where}: expected an object")
        item = get_args(hint)[1]
        return {str(key): _convert(item, part, f"{where}.{key}") for key, part in value.items()}
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, where)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in hint)
            raise WireError(f"{where}: expected one of {allowed}") from None
    return _scalar(hint, value, where)


def _convert_union(hint: Any, value: Any, where: str) -> Any:
    options = get_args(hint)
    if value is None and type(None) in options:
        return None
    solid = [option for option in options if option is not type(None)]
    if len(solid) != 1:
        raise TypeError(f"{where}: only optional unions can cross the wire")
    return _convert(solid[0], value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, bool):
        raise WireError(f"{where}: expected a whole number")
    if not isinstance(value, hint):
        raise WireError(f"{where}: expected {hint.__name__}")
    if isinstance(value, str) and "\x00" in value:
        raise WireError(f"{where}: a NUL character is not allowed")
    return value
