"""Cursors of lists that are ordered by an instant and an id: callers send them back unchanged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from app.domain.units.errors import InvalidValue

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_cursor(cursor: str) -> tuple[datetime, UUID]:
    """The instant and the id that a part of the list ended on. Raises InvalidValue."""
    try:
        microseconds, _, row_id = cursor.partition("-")
        return _EPOCH + timedelta(microseconds=int(microseconds)), UUID(row_id)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(
            "cursor: use the `next` of the page before, unchanged", "cursor"
        ) from error


def cursor_of(at: datetime, row_id: UUID) -> str:
    """What `read_cursor` reads, as the statement of the list of jobs writes it."""
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{row_id}"
