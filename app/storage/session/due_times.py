"""When something is to be looked at next, by a clock that may have jumped.

A look is due at its instant; at once where it has none; and where the instant lies further ahead
than any look is set (the parameter `latest`): then a clock that ran ahead has set it, and went back
since. Lives here: both as SQL. Not here: who looks, and how often (`app.orchestration`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Case, Column, ColumnElement, bindparam, case, or_

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def look_is_due(instant: Column[Any]) -> ColumnElement[bool]:
    """Parameters: by, latest."""
    return or_(instant.is_(None), instant <= bindparam("by"), instant > bindparam("latest"))


def look_at(instant: Column[Any]) -> Case[Any]:
    """The instant; the epoch where the look is due whatever the time. Parameter: latest."""
    return case((or_(instant.is_(None), instant > bindparam("latest")), EPOCH), else_=instant)
