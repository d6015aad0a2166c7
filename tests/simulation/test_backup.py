"""A world's database goes back to its backup, and the watches read what is in it."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Engine, StaticPool, create_engine, text

from app.simulation.engine.backup import Backup
from app.simulation.engine.scratch_database import ScratchDatabases
from app.simulation.simulated.world import SIMULATED_LIMITS
from app.simulation.watches.budget_watch import BudgetWatch
from app.storage.session.record_session import RecordSession

NOBODY = UUID(int=7)
_ADD = text("INSERT INTO projects (id, name, created_at) VALUES (:id, :name, '2031-01-01Z')")
_NAMES = text("SELECT name FROM projects ORDER BY name")


def _add(engine: Engine, number: int) -> None:
    with engine.begin() as connection:
        connection.execute(_ADD, {"id": UUID(int=number), "name": f"project-{number}"})


def _names(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(_NAMES))


def test_what_was_written_after_the_backup_is_gone(database_url: str) -> None:
    engine = create_engine(database_url, poolclass=StaticPool)
    try:
        _add(engine, 1)
        backup = Backup(engine)
        _add(engine, 2)
        assert _names(engine) == ["project-1", "project-2"]
        backup.put_back()
        backup.remove()
        assert _names(engine) == ["project-1"]
        reader = RecordSession(engine, autocommit=True)
        BudgetWatch(SIMULATED_LIMITS).check(reader, NOBODY)
        reader.close()
    finally:
        engine.dispose()


def test_scratch_databases_are_empty_and_go(database_url: str) -> None:
    databases = ScratchDatabases(database_url)
    try:
        with databases.one() as url:
            engine = create_engine(url)
            assert _names(engine) == []
            engine.dispose()
        with databases.one() as other:
            assert other != url
    finally:
        databases.close()
