"""Which revision a database has and which one this release brings, without loading Alembic.

What every start asks, and almost every time finds in order. Two versions of Lowtide may mean
different tables by one revision, as long as no release has frozen it; so a database also remembers
the fingerprint of the migrations that made it. Not here: migrating (`migrate`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg

_CONNECT_TIMEOUT_SECONDS = 5
# A migration's file is called by its revision, NNNN_verb_noun.py.
_FILE = re.compile(r"([0-9]{4})_\w+\.py")


@dataclass(frozen=True)
class SchemaMark:
    """A migrated database's revision, and the fingerprint of the migrations that made it.

    The fingerprint is the comment on Alembic's own table; None: a version that left none.
    """

    revision: str
    fingerprint: str | None

    @property
    def is_ours(self) -> bool:
        """Whether this version's migrations up to that revision are the ones that made it.

        True for a revision that this version does not know: that of a newer one.
        """
        ours = fingerprint_of(self.revision)
        return ours is None or self.fingerprint == ours


@dataclass(frozen=True)
class FoundSchema:
    """A database before it is prepared; mark: None for an empty one."""

    mark: SchemaMark | None
    has_first_rows: bool


def mark_of(connection: psycopg.Connection[tuple[object, ...]]) -> SchemaMark | None:
    """What a database says of its schema; None before the first migration."""
    if not _one(connection, "SELECT to_regclass('alembic_version') IS NOT NULL"):
        return None
    revision = _one(connection, "SELECT version_num FROM alembic_version")
    told = _one(connection, "SELECT obj_description('alembic_version'::regclass, 'pg_class')")
    return (
        None if revision is None else SchemaMark(str(revision), None if told is None else str(told))
    )


@functools.cache
def newest_revision() -> str:
    """The newest revision this release brings. Raises RuntimeError when it brings none."""
    return max(_files())


def serves_this_release(revision: str) -> bool:
    """Whether a database of that revision has all that this release needs.

    A newer one has: each release's migrations leave what the release before it uses, so that
    programs of both run during an upgrade, and those of the former can be put back.
    """
    return revision >= newest_revision()


@functools.cache
def fingerprint_of(revision: str) -> str | None:
    """SHA-256 over the migrations up to a revision; None when there is no such revision here."""
    files = _files()
    if revision not in files:
        return None
    digest = hashlib.sha256()
    for number in sorted(files):
        if number <= revision:
            digest.update(files[number].read_bytes())
    return digest.hexdigest()


def found_schema(url: str) -> FoundSchema:
    """What is in a database (`postgresql+psycopg://…`); nothing when it does not answer, which the
    migration will say better.
    """
    driver_url = url.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        with psycopg.connect(driver_url, connect_timeout=_CONNECT_TIMEOUT_SECONDS) as connection:
            mark = mark_of(connection)
            return FoundSchema(mark, mark is not None and _has_first_rows(connection))
    except psycopg.Error:
        return FoundSchema(None, has_first_rows=False)


def _has_first_rows(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    # A database that stopped at an early revision has no such table.
    if not _one(connection, "SELECT to_regclass('deployment') IS NOT NULL"):
        return False
    return bool(_one(connection, "SELECT EXISTS (SELECT 1 FROM deployment)"))


def _one(connection: psycopg.Connection[tuple[object, ...]], query: LiteralString) -> object:
    row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def _files() -> dict[str, Path]:
    paths = (scripts_folder() / "versions").iterdir()
    found = {match[1]: path for path in paths if (match := _FILE.fullmatch(path.name))}
    if not found:
        raise RuntimeError("the package 'migrations' holds no migration; install lowtide again")
    return found


def scripts_folder() -> Path:
    """The installed folder of migrations; RuntimeError when it is missing."""
    # Looked up, not imported: env.py runs only inside Alembic.
    spec = importlib.util.find_spec("migrations")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package 'migrations' is not installed; install lowtide again")
    return Path(next(iter(spec.submodule_search_locations)))
