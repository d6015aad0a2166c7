"""Plain INSERTs of one flush, joined into one statement where they fit.

A statement more costs the driver and PostgreSQL about as much as the row in it, so the line of a
job's history and the audit's row of the same command go together. Not here: which rows there are
(repositories), or records (`record_session`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from app.storage.session.statement_runner import Statement

PARAMETERS_MAX: Final = 50
"""In one statement: the driver remembers how to send no longer ones."""


def joined(inserts: Iterable[Statement]) -> Iterator[Statement]:
    """The same rows, in as few statements as neighbours allow.

    Each is an INSERT without WITH and RETURNING. PostgreSQL does the parts of one statement in any
    order, so that no part may depend on the row of another. Parts whose parameters have a name in
    common stay apart, as those of the same table do.
    """
    texts: tuple[str, ...] = ()
    given: dict[str, Any] = {}
    for text, own in inserts:
        if texts and (len(given) + len(own) > PARAMETERS_MAX or not own.keys().isdisjoint(given)):
            yield _one_text(texts), given
            texts, given = (), {}
        texts += (text,)
        given.update(own)
    if texts:
        yield _one_text(texts), given


@cache
def _one_text(texts: tuple[str, ...]) -> str:
    """There are as many as rows of history that go with rows of the audit: a handful."""
    *first, last = texts
    parts = ", ".join(f"part_{number} AS ({text})" for number, text in enumerate(first))
    return f"WITH {parts} {last}" if parts else last
