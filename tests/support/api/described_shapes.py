"""Holds a JSON value against a shape of /openapi.json: the part of JSON Schema that ours has.

Not here: which answers are held against it (tests/integration/api/test_described_answers.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_OF_TYPE: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_UNDERSTOOD: Final = frozenset(
    {"$ref", "type", "anyOf", "enum", "const", "required", "properties", "additionalProperties",
     "items", "propertyNames", "title", "description", "default", "format"}
)  # fmt: skip


def problems(value: Any, shape: Mapping[str, Any], shapes: Mapping[str, Any]) -> list[str]:
    """What is otherwise than described, by place; none where all is. shapes: by name.

    Fails the test at a word of JSON Schema that is not understood here.
    """
    return list(_problems(value, shape, shapes, "answer"))


def _problems(
    value: Any, shape: Mapping[str, Any], shapes: Mapping[str, Any], place: str
) -> Iterator[str]:
    assert not set(shape) - _UNDERSTOOD, f"teach this module {set(shape) - _UNDERSTOOD}"
    if "$ref" in shape:
        yield from _problems(value, shapes[shape["$ref"].rpartition("/")[2]], shapes, place)
        return
    if "anyOf" in shape:
        tried = [list(_problems(value, one, shapes, place)) for one in shape["anyOf"]]
        if all(tried):
            yield min(tried, key=len)[0]
        return
    if not _is_of_type(value, shape.get("type")):
        yield f"{place}: {value!r} is no {shape['type']}"
        return
    if value not in shape.get("enum", [value]) or value != shape.get("const", value):
        yield f"{place}: {value!r} is no described value"
    if isinstance(value, dict):
        yield from _fields(value, shape, shapes, place)
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _problems(one, shape.get("items", {}), shapes, f"{place}[{number}]")


def _fields(
    value: dict[str, Any], shape: Mapping[str, Any], shapes: Mapping[str, Any], place: str
) -> Iterator[str]:
    known, others = shape.get("properties", {}), shape.get("additionalProperties", True)
    for name in set(shape.get("required", ())) - set(value):
        yield f"{place}: {name} is missing"
    for name, one in value.items():
        yield from _problems(name, shape.get("propertyNames", {}), shapes, f"{place}: the name")
        if name in known:
            yield from _problems(one, known[name], shapes, f"{place}.{name}")
        elif others is False:
            yield f"{place}: {name} is not described"
        elif isinstance(others, dict):
            yield from _problems(one, others, shapes, f"{place}.{name}")


def _is_of_type(value: Any, name: str | None) -> bool:
    if name is None:
        return True
    return isinstance(value, _OF_TYPE[name]) and (name == "boolean" or not isinstance(value, bool))
