"""The last admin stays, whatever is changed: a key, a membership, or a person.

Every change of one of them is made inside `an_admin_stays`, changes of whole groups too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from app.domain.units.errors import CommandRefused
from app.storage.unit_of_work import UnitOfWork


@contextmanager
def an_admin_stays(uow: UnitOfWork) -> Iterator[None]:
    """Around a change of a key, a membership or a person: one after the other, in every process.

    Locks first, so enter it before a row of the change is locked. Raises CommandRefused, which
    undoes the change, where that takes the last admin's key without an end. Where there was none
    before, as with one key that has an end, nothing is refused.
    """
    uow.keys.lock_admins()
    before = uow.keys.good_admins(uow.now)
    yield
    if before and not uow.keys.good_admins(uow.now):
        raise CommandRefused(
            "This would leave no admin with a key without an end, and so nobody who could make "
            "another one. Make a second key with the role admin first."
        )


def is_last_admin(uow: UnitOfWork, person_id: UUID, project_id: UUID) -> bool:
    """Whether no admin's key without an end would be left without this membership of an admin.

    Holds until this commits only if the caller has locked the admins before (`lock_admins`).
    """
    return not uow.keys.good_admins(uow.now, without=(person_id, project_id))
