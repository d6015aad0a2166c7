"""Answers as JSON, written by orjson straight from plain values; no model in between.

Not here: what is answered (the routes) and errors (`error_responses`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

import orjson
from starlette.responses import Response

from app.domain.market.offer import Pool

JSON = "application/json"
# Dataclasses come to `_plain`, because a pool is written as its key.
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer. Instants become ISO 8601 with their zone, money stays whole micro-dollars."""
    return Response(dumps(value), status, headers, JSON)


def dumps(value: Any) -> bytes:
    """JSON bytes. Raises TypeError for values that have no JSON form."""
    return orjson.dumps(value, default=_plain, option=_OPTIONS)


def page(items: list[Any], next_cursor: str | None) -> Response:
    """A part of a list, and where the next part begins: None at its end."""
    return as_json({"items": items, "next": next_cursor})


def _plain(value: Any) -> Any:
    if isinstance(value, Pool):
        return value.key
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")
