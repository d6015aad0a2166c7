"""What the deployment knows of itself, in PostgreSQL: id and secret, stale results, hearing."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Integer, bindparam, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import NoResultFound

from app.storage.instances.instance_repository import Hearing
from app.storage.schema import tables
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository

# First half of the advisory lock's key, so that ours never meet those of another program.
_SINGLE_FLIGHT = 0x10DE
_TRY = Ready(
    select(func.pg_try_advisory_xact_lock(_SINGLE_FLIGHT, bindparam("second_half", type_=Integer))),
    frozenset(),
)
_LOOK = upsert(tables.controller_runs).values(
    controller=bindparam("controller"), ran_at=bindparam("ran_at"), worked=0
)
_LOOKED = Ready(
    _LOOK.on_conflict_do_update(
        index_elements=["controller"], set_={"ran_at": _LOOK.excluded.ran_at}
    )
)
_deployment = tables.deployment.c
_HEARING = Ready(select(_deployment.listening_at, _deployment.hearing_since_at))
_SECRET = Ready(select(_deployment.secret))
_ID = Ready(select(_deployment.deployment_id))


class OperationsRepository(Repository):
    """What the deployment knows of itself: its id and secret, stale results, hearing."""

    def hearing(self) -> Hearing:
        """Whether, and since when, agents could have been heard."""
        row = self._session.row(_HEARING)
        if row is None:
            raise NoResultFound("the deployment has no row yet")
        return Hearing(*row)

    def add_deployment(self, deployment_id: UUID, secret: str) -> bool:
        """Store what the deployment is known by; False where it is known already."""
        statement = (
            upsert(tables.deployment)
            .values(id=1, deployment_id=deployment_id, secret=secret)
            .on_conflict_do_nothing()
            .returning(tables.deployment.c.id)
        )
        return self._session.execute(statement).one_or_none() is not None

    def deployment_secret(self) -> str:
        """Key from which credentials are derived."""
        return str(self._session.scalar(_SECRET))

    def deployment_id(self) -> UUID:
        """Tag on every machine of this deployment."""
        return UUID(str(self._session.scalar(_ID)))

    def note_looks(self, controllers: Sequence[str], now: datetime) -> None:
        """A worker has asked whether these have work. controllers: in the order of their names."""
        self._session.write(_LOOKED, [{"controller": one, "ran_at": now} for one in controllers])

    def add_stale_result(
        self,
        record_id: UUID,
        at: datetime,
        controller: str,
        provider: str,
        provider_instance_ids: Sequence[str],
        detail: str,
    ) -> None:
        """Remember machines whose result came too late; the sweep looks for them."""
        self._session.execute(
            insert(tables.stale_results).values(
                id=record_id,
                at=at,
                controller=controller,
                provider=provider,
                provider_instance_ids=list(provider_instance_ids),
                detail=detail,
            )
        )

    def close_stale_results(self, provider: str, before: datetime) -> None:
        """A complete list was made after these: what they left behind has been met."""
        table = tables.stale_results
        self._session.execute(
            update(table)
            .where(table.c.provider == provider, table.c.at <= before, table.c.handled_at.is_(None))
            .values(handled_at=before)
        )

    def try_single_flight(self, name: str) -> bool:
        """Take a transaction-long advisory lock; False when another holder has it."""
        key = zlib.crc32(name.encode()) & 0x7FFFFFFF
        return bool(self._session.scalar(_TRY, {"second_half": key}))
