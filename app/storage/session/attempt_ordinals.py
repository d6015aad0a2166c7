"""Which one of a job's attempts each is: the count that people read, computed where rows are read.

Not here: what is made of it in words (`app.domain.wording.attempt_words`).
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Subquery, func, select

from app.storage.schema.job_tables import attempts

ORDINAL = func.row_number().over(order_by=attempts.c.fence).label("ordinal")
"""Of an attempt, where all attempts of one job are read; from 1."""


def ordinals_of(job_id: UUID) -> Subquery:
    """Rows of (fence, ordinal) of one job, to be joined with what has the fence as its key."""
    return select(attempts.c.fence, ORDINAL).where(attempts.c.job_id == job_id).subquery()
