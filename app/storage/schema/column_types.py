"""Column types that turn the domain's words and pools into text and back."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Text, func, type_coerce
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from app.domain.market.offer import Pool


class Word(TypeDecorator[StrEnum]):
    """A member of a closed list, stored as its text."""

    impl = Text
    cache_ok = True

    def __init__(self, words: type[StrEnum]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: StrEnum | str | None, dialect: Dialect) -> str | None:
        """A word on its way to the database; ValueError for one that is not in the list."""
        return None if value is None else str(self.words(value).value)

    def process_result_value(self, value: Any, dialect: Dialect) -> StrEnum | None:
        """A word on its way back."""
        return None if value is None else self.words(value)


class PoolKey(TypeDecorator[Pool]):
    """A pool, stored as its key."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Pool | str | None, dialect: Dialect) -> str | None:
        """A pool on its way to the database."""
        return value.key if isinstance(value, Pool) else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Pool | None:
        """A pool on its way back."""
        return None if value is None else Pool.parse(value)


def region_in(pool: Any) -> ColumnElement[str]:
    """The region that a stored pool's key names; NULL where there is no pool."""
    return func.split_part(type_coerce(pool, Text), "/", 2)
