"""The last admin stays, whatever is changed: a key, a membership, or a person.

Who changes any of them does it inside `an_admin_stays`, changes of whole groups too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.units.errors import CommandRefused
from app.storage.unit_of_work import UnitOfWork


@contextmanager
def an_admin_stays(uow: UnitOfWork) -> Iterator[None]:
    """Around a change that may take an admin away: one after the other, in every process.

    Raises CommandRefused, which undoes the change, where no admin's key without an end is left.
    """
    uow.keys.lock_admins()
    yield
    if not uow.keys.good_admins(uow.now):
        raise CommandRefused(
            "This would leave no admin with a key without an end, and so nobody who could make "
            "another one. Make a second key with the role admin first."
        )
