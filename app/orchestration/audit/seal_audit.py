"""Seal audit rows: number them, chain their digests, and write each seal outside the database.

Outside first: only what is written there, and can never be written differently again, gives rows
their numbers. A number outside that the database does not know is taken over as it is: of a run
that died in between, its rows get the numbers that they were to have; after a restore from a
backup its rows are lost, their numbers stay unused, and `verify_audit` names them. Not here: what a
seal is (`app.domain.audit.seal`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from app.domain.audit.seal import Seal, next_seal, read_seal, seal_key
from app.domain.units.errors import InvalidValue
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.schedule import turn_of
from app.ports.object_store import ObjectExists, ObjectStore
from app.storage.unit_of_work import UnitOfWork

ROWS_MAX: Final = 1_000
"""Rows of one seal: some 100 KB outside."""
BETWEEN_SEALS: Final = timedelta(seconds=5)


class SealAudit:
    """The controller. Only committed rows are seen, so that none can come in below a seal."""

    name = "seal_audit"
    # There is one piece at most; a limit of 1 would ring for the next one at once.
    limit = 2

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.queue, self.period_seconds = turn_of(self.name, runtime.limits)

    def select(self, uow: UnitOfWork, limit: int) -> list[Seal]:
        """The next seal, when there are rows for one and the last is old enough."""
        due = self.next_due(uow)
        if due is None or due > uow.now:
            return []
        entries = uow.audit.unsealed(ROWS_MAX)
        deployment_id = uow.operations.deployment_id()
        return [next_seal(deployment_id, uow.audit.sealed_so_far(), entries, uow.now)]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the next seal is due; None while all rows are sealed."""
        if not uow.audit.has_unsealed():
            return None
        last = uow.audit.sealed_so_far().sealed_at
        # A clock that was set back must not stop the seals until it has caught up.
        return uow.now if last is None or last > uow.now else last + BETWEEN_SEALS

    def effect(self, work: Seal) -> Seal:
        """Write it outside; the seal that is there: this one, or one of the same number."""
        store = seal_store(self._runtime)
        key = seal_key(work.deployment_id, work.number)
        try:
            store.put_new(key, work.content)
        except ObjectExists:
            try:
                return read_seal(store.get(key))
            except InvalidValue as error:
                raise InvalidValue(
                    f"{key} in LOWTIDE_AUDIT_SEALS is no seal of ours: {error.message}; nothing "
                    "is sealed until that object is moved away"
                ) from error
        return work

    def apply(self, uow: UnitOfWork, work: Seal, result: Seal) -> None:
        """Store the seal and number its rows, unless another worker has.

        Raises InvalidValue where the seal outside does not follow ours: it is another deployment's,
        or was changed.
        """
        uow.audit.lock_seals()
        so_far = uow.audit.sealed_so_far()
        if so_far.number != work.number - 1:
            return
        follows = (result.deployment_id, result.number, result.previous, result.first_row)
        if follows != (work.deployment_id, work.number, so_far.digest, so_far.last_row + 1):
            raise InvalidValue(
                f"seal {work.number} outside the database does not follow seal {so_far.number}: "
                "one of them was changed, or LOWTIDE_AUDIT_SEALS is another deployment's; "
                "`lowtide audit verify` says which"
            )
        uow.audit.add_seal(result)
        if result != work and uow.audit.has_unsealed():
            uow.notify_after_commit(self.name)


def seal_store(runtime: Runtime) -> ObjectStore:
    """Where seals are written: their own store, else the deployment's."""
    return runtime.seal_store or runtime.object_store
