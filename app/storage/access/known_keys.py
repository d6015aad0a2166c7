"""Which key a digest belongs to, as a `Principal`: for requests, sign-ins and sessions.

Lives here: what makes a key good, once as text for the async pool and once for SQLAlchemy. Not
here: making and revoking keys (`key_repository`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, and_, func, or_, select

from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.storage.schema import tables

KEY_OF_DIGEST: Final = """
SELECT api_keys.id, api_keys.name, api_keys.project_id, projects.name, api_keys.role,
    projects.archived_at IS NULL, coalesce(projects.rules_version, 0),
    coalesce(api_keys.last_used_at < %(use_is_old_at)s, true)
FROM api_keys JOIN projects ON projects.id = api_keys.project_id
WHERE (api_keys.key_hash = %(key_hash)s
        OR (api_keys.former_hash = %(key_hash)s AND api_keys.former_until_at > %(now)s))
    AND api_keys.revoked_at IS NULL
    AND (api_keys.expires_at IS NULL OR api_keys.expires_at > %(now)s)
"""
"""The columns of a `Principal`, and whether its last use is to be written again."""

USE_KEY: Final = """
UPDATE api_keys SET last_used_at = %(now)s
WHERE id = %(key_id)s AND (last_used_at IS NULL OR last_used_at < %(use_is_old_at)s)
"""

PROJECT_OF_NAME: Final = """
SELECT id, archived_at IS NULL, coalesce(rules_version, 0) FROM projects WHERE name = %(name)s
"""
"""A project's id, whether it takes jobs, and the number of its rules."""

RULES_OF_PROJECT: Final = """
SELECT coalesce(rules_version, 0), rules FROM projects WHERE id = %(project_id)s
"""

_KEYS: Final = tables.api_keys
_PROJECTS: Final = tables.projects

PRINCIPALS: Final = select(
    _KEYS.c.id,
    _KEYS.c.name,
    _KEYS.c.project_id,
    _PROJECTS.c.name,
    _KEYS.c.role,
    _PROJECTS.c.archived_at.is_(None),
    func.coalesce(_PROJECTS.c.rules_version, 0),
).join(_PROJECTS, _PROJECTS.c.id == _KEYS.c.project_id)
"""The columns of a `Principal`, for every key."""


def is_good(now: datetime) -> ColumnElement[bool]:
    """Whether a key is neither revoked nor over."""
    expires_at = _KEYS.c.expires_at
    return and_(_KEYS.c.revoked_at.is_(None), or_(expires_at.is_(None), expires_at > now))


def principal_of(row: tuple[Any, ...] | Row[Any]) -> Principal:
    """The principal of a row that begins with the columns of one."""
    key_id, key_name, project_id, project_name, role, takes_jobs, rules_version = row[:7]
    return Principal(
        key_id, key_name, project_id, project_name, Role(role), takes_jobs, rules_version
    )
