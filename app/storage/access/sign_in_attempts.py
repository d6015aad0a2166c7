"""How often somebody has failed to sign in, by address and by account, for every api process.

Not here: the limits, or what an address is counted by (`app.domain.access.session_rules`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Engine, case, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from app.domain.access.session_rules import AttemptLimit
from app.storage.schema import tables

_ATTEMPTS: Final = tables.sign_in_attempts
_REMOVED_MAX: Final = 100


class SignInAttempts:
    """Each call is a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, subject: str, limit: AttemptLimit, now: datetime) -> timedelta | None:
        """Count an attempt before it is made; how long to wait once there were too many in this
        window, else None.

        Counted first, so that attempts at once do not all see room for one; read before that, so
        that nothing is written for who goes on trying. A window that lies in the future, as after a
        clock was set back, is over.
        """
        over_at = _ATTEMPTS.c.began_at + limit.window
        full = select(over_at).where(
            _ATTEMPTS.c.subject == subject,
            _ATTEMPTS.c.count >= limit.failures,
            _ATTEMPTS.c.began_at <= now,
            over_at > now,
        )
        with self._engine.connect() as connection:
            until: datetime | None = connection.execute(full).scalar_one_or_none()
        if until is not None:
            return until - now
        starts_anew = (_ATTEMPTS.c.began_at <= now - limit.window) | (_ATTEMPTS.c.began_at > now)
        statement = insert(_ATTEMPTS).values(subject=subject, began_at=now, count=1)
        counted = statement.on_conflict_do_update(
            index_elements=["subject"],
            set_={
                "began_at": case((starts_anew, now), else_=_ATTEMPTS.c.began_at),
                "count": case((starts_anew, 1), else_=_ATTEMPTS.c.count + 1),
            },
        ).returning(_ATTEMPTS.c.count, over_at)
        old = (
            select(_ATTEMPTS.c.subject)
            .where(_ATTEMPTS.c.began_at <= now - limit.window, _ATTEMPTS.c.subject != subject)
            .order_by(_ATTEMPTS.c.began_at, _ATTEMPTS.c.subject)
            .limit(_REMOVED_MAX)
            .with_for_update(skip_locked=True)
        )
        with self._engine.begin() as connection:
            count, until = connection.execute(counted).one()
        # Apart: who held old rows while waiting for its own could wait for somebody like it.
        with self._engine.begin() as connection:
            connection.execute(delete(_ATTEMPTS).where(_ATTEMPTS.c.subject.in_(old)))
        return None if count <= limit.failures else until - now

    def succeeded(self, *subjects: str) -> None:
        """Take back the attempts that were counted: they were no failures."""
        statement = update(_ATTEMPTS).values(count=_ATTEMPTS.c.count - 1)
        for subject in subjects:
            with self._engine.begin() as connection:
                connection.execute(
                    statement.where(_ATTEMPTS.c.subject == subject, _ATTEMPTS.c.count > 0)
                )
