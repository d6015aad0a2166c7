"""What the product sends to AWS, against botocore's own models: more than the SDK itself checks.

The SDK checks names, types, required members and least lengths. Here are checked the closed lists,
greatest lengths and numbers, and patterns that the models hold, and lists of values and lengths
that a model tells in its documentation alone. A call that breaks one fails the test that made it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.validate import ParamValidator

# "Valid values" in the documentation of members whose shape is any text.
_VALUES: Final = {
    "InterfaceType": {"interface", "efa", "efa-only"},
    "ResourceType": {"fleet", "instance", "volume", "network-interface", "launch-template",
                     "placement-group", "spot-instances-request"},
}  # fmt: skip
# "Constraints" there: client tokens, names of templates and groups, tags.
_LENGTHS: Final = {
    "ClientToken": (1, 64),
    "LaunchTemplateName": (3, 128),
    "GroupName": (1, 255),
    "Key": (1, 127),
}
_TEMPLATE_NAME: Final = re.compile(r"[a-zA-Z0-9().\-/_]+")
_VALUE_MAX: Final = 255

SEEN: Final[Counter[str]] = Counter()
"""Calls that were checked, by `service.Operation`."""


def check_requests_of(session: Any) -> None:
    """Check every call of the session's clients made from now on."""
    session.events.register_last("before-parameter-build", _check, unique_id="checked-requests")


def problems_of(params: Mapping[str, Any], model: Any) -> list[str]:
    """What the model says against a call's parameters."""
    if model.input_shape is None:
        return []
    report = ParamValidator().validate(params, model.input_shape)
    told = [report.generate_report()] if report.has_errors() else []
    return told + list(_problems(params, model.input_shape, model.name))


def _check(params: Mapping[str, Any], model: Any, **_: Any) -> None:
    SEEN[f"{model.service_model.service_name}.{model.name}"] += 1
    found = problems_of(params, model)
    if found:
        raise AssertionError(f"{model.name} as its model does not take it: {found}")


def _problems(value: Any, shape: Shape, where: str) -> Iterator[str]:
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        for name, member in shape.members.items():
            if name in value:
                yield from _problems(value[name], member, f"{where}.{name}")
                yield from _documented(name, value[name], where)
    elif isinstance(shape, ListShape) and isinstance(value, list | tuple):
        yield from _in_range(len(value), shape, where)
        for index, one in enumerate(value):
            yield from _problems(one, shape.member, f"{where}[{index}]")
    elif isinstance(shape, MapShape) and isinstance(value, Mapping):
        for key, one in value.items():
            yield from _problems(key, shape.key, f"{where} key")
            yield from _problems(one, shape.value, f"{where}[{key}]")
    elif isinstance(value, str):
        closed = getattr(shape, "enum", [])
        if closed and value not in closed:
            yield f"{where}: {value!r} is none of {closed}"
        pattern = shape.metadata.get("pattern")
        if pattern and re.search(pattern, value) is None:
            yield f"{where}: {value!r} does not fit {pattern}"
        yield from _in_range(len(value), shape, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _in_range(value, shape, where)


def _in_range(size: float, shape: Shape, where: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if (least is not None and size < least) or (most is not None and size > most):
        yield f"{where}: {size} is not within {least} and {most}"


def _documented(name: str, value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, str):
        return
    if name in _VALUES and value not in _VALUES[name]:
        yield f"{where}.{name}: {value!r} is none of {sorted(_VALUES[name])}"
    least, most = _LENGTHS.get(name, (0, 1 << 30))
    if not least <= len(value) <= most:
        yield f"{where}.{name}: {len(value)} characters"
    if name == "ClientToken" and not value.isascii():
        yield f"{where}.{name}: not ASCII"
    if name == "LaunchTemplateName" and _TEMPLATE_NAME.fullmatch(value) is None:
        yield f"{where}.{name}: {value!r} is no name of a template"
    if where.rpartition(".")[2].startswith("Tags[") and name == "Value" and len(value) > _VALUE_MAX:
        yield f"{where}.{name}: {len(value)} characters"
