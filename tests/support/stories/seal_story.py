"""A deployment whose time a test moves, and seals over its audit rows.

Here: acting, sealing, verifying, and what a superuser of the database may do to rows and seals. Not
here: which rows a route leaves (`tests.integration.access`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Engine, text

from app.adapters.object_stores.obstore_store import open_object_store
from app.domain.access.principal import Origin, Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.audit.seal import Seal, read_seal, seal_key
from app.domain.audit.seal_check import DifferenceKind
from app.orchestration.audit import seal_audit
from app.orchestration.audit.record_action import record_action
from app.orchestration.audit.seal_audit import SealAudit
from app.orchestration.audit.verify_audit import VerifiedPart, verify_part
from app.orchestration.frame.controller_frame import run_controller
from app.storage.audit.audit_reports import AuditReports
from app.storage.schema import tables
from app.storage.schema.tables import audit_entries
from app.storage.unit_of_work import UnitOfWork
from tests.support.api.agent_api import make_runtime
from tests.support.servers.table_rows import add_row, rows_of

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNTOUCHED = "ALTER TABLE audit_entries DISABLE TRIGGER USER"


class SealStory:
    """A deployment whose time stands until a test moves it, and a folder for seals."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.now = START
        self.deployment_id = uuid4()
        self.store = open_object_store((folder / "seals").as_uri())
        runtime = make_runtime(engine, folder, read_clock=lambda: self.now)
        self.runtime = replace(runtime, seal_store=self.store)
        add_row(engine, tables.deployment, id=1, deployment_id=self.deployment_id, secret="s" * 43)

    def record(self, uow: UnitOfWork, name: str) -> None:
        """A row in an open transaction."""
        ada = Principal(uuid4(), "ada", uuid4(), "alpha", Role.ADMIN)
        ada = ada.from_origin(Origin("203.0.113.9", "a" * 32))
        subject = Subject(SubjectKind.KEY, name, name, ada.project_id)
        entropy = self.runtime.entropy
        record_action(uow, entropy, ada, AuditAction.KEY_CREATE, subject, after={"name": name})

    def act(self, *names: str) -> None:
        """Rows, each in a transaction of its own."""
        for name in names:
            with self.runtime.begin() as uow:
                self.record(uow, name)

    def seal(self) -> int:
        """One run, five seconds later."""
        self.now += seal_audit.BETWEEN_SEALS
        return run_controller(self.runtime, SealAudit(self.runtime))

    def verify(self, after: int = 0) -> VerifiedPart:
        return verify_part(
            AuditReports(self.engine), self.store, self.deployment_id, after, self.runtime.clock
        )

    def kinds(self) -> list[tuple[DifferenceKind, int | None]]:
        """(kind, row) of each difference."""
        return [(one.kind, one.row) for one in self.verify().differences]

    def outside(self, number: int) -> Seal:
        return read_seal(self.store.get(seal_key(self.deployment_id, number)))

    def tamper(self, *statements: str) -> None:
        """What a superuser of the database may do."""
        with self.engine.begin() as connection:
            connection.execute(text(UNTOUCHED))
            connection.execute(text("ALTER TABLE audit_seals DISABLE TRIGGER USER"))
            for statement in statements:
                connection.execute(text(statement))

    def numbers(self) -> dict[str, int | None]:
        return {row.subject_name: row.number for row in rows_of(self.engine, audit_entries)}
