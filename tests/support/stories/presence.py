"""Narrows what may be missing to what a test knows to be there."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """The value itself; AssertionError for None."""
    assert value is not None
    return value
