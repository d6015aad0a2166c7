"""The one INSERT of an audit row, as text: for sessions, connections and the async pool.

Not here: which action it is (`app.domain.audit.audit_entry`), or seals (`audit_repository`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from app.domain.audit.audit_entry import ENTRY_FIELDS, AuditEntry
from app.storage.schema.audit_tables import audit_entries
from app.storage.session.ready_statement import cast_of

ENTRY_COLUMNS: Final = ", ".join(ENTRY_FIELDS)
INSERT_ENTRY: Final = (
    f"INSERT INTO audit_entries ({ENTRY_COLUMNS}) VALUES ("
    + ", ".join(f"%({name})s::{cast_of(audit_entries.c[name].type)}" for name in ENTRY_FIELDS)
    + ")"
)
_VALUES: Final = attrgetter(*ENTRY_FIELDS)


def entry_parameters(entry: AuditEntry) -> dict[str, Any]:
    """The parameters of INSERT_ENTRY."""
    parameters = dict(zip(ENTRY_FIELDS, _VALUES(entry), strict=True))
    # As plain text, whatever the driver would make of an enum.
    parameters["action"] = entry.action.value
    parameters["subject_kind"] = entry.subject_kind.value
    parameters["outcome"] = entry.outcome.value
    return parameters
