"""What the deployment knows of itself, in PostgreSQL: sweeps, stale results, hearing."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from app.adapters.postgres import tables
from app.ports.unit_of_work import Hearing

# First half of the advisory lock's key, so that ours never meet those of another program.
_SINGLE_FLIGHT = 0x10DE


class OperationsRepository:
    """Implements `app.ports.unit_of_work.Operations`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def hearing(self) -> Hearing:
        """Whether, and since when, agents could have been heard."""
        table = tables.deployment
        row = self._session.execute(select(table.c.listening_at, table.c.hearing_since_at)).one()
        return Hearing(row.listening_at, row.hearing_since_at)

    def deployment_secret(self) -> str:
        """Key from which credentials are derived."""
        return str(self._session.execute(select(tables.deployment.c.secret)).scalar_one())

    def deployment_id(self) -> UUID:
        """Tag on every machine of this deployment."""
        found = self._session.execute(select(tables.deployment.c.deployment_id)).scalar_one()
        return UUID(str(found))

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

    def record_sweep(
        self, provider: str, region: str, at: datetime, complete: bool, machines: int
    ) -> None:
        """Remember the last list of a region."""
        values = {"swept_at": at, "complete": complete, "machines": machines}
        statement = upsert(tables.sweeps).values(provider=provider, region=region, **values)
        self._session.execute(
            statement.on_conflict_do_update(index_elements=["provider", "region"], set_=values)
        )

    def last_sweep_at(self, provider: str, region: str) -> datetime | None:
        """When the region was last listed."""
        table = tables.sweeps
        return self._session.scalar(
            select(table.c.swept_at).where(table.c.provider == provider, table.c.region == region)
        )

    def try_single_flight(self, name: str) -> bool:
        """Take a transaction-long advisory lock; False when another holder has it."""
        key = zlib.crc32(name.encode()) & 0x7FFFFFFF
        return bool(
            self._session.scalar(select(func.pg_try_advisory_xact_lock(_SINGLE_FLIGHT, key)))
        )
