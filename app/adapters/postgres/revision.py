"""Which revision a database has and which one this release brings, without loading Alembic.

What every start asks, and almost every time finds in order. Not here: migrating (`migrate`).
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import psycopg

_CONNECT_TIMEOUT_SECONDS = 5
# A migration's file is called by its revision, as `migrations.regenerate` and its template do.
_FILE = re.compile(r"([0-9]{4})_\w+\.py")


@functools.cache
def newest_revision() -> str:
    """The newest revision this release brings. Raises RuntimeError when it brings none."""
    found = [_FILE.fullmatch(path.name) for path in (scripts_folder() / "versions").iterdir()]
    revisions = [match[1] for match in found if match is not None]
    if not revisions:
        raise RuntimeError("the package 'migrations' holds no migration; install lowtide again")
    return max(revisions)


def prepared_revision(url: str) -> str | None:
    """The revision of a database (`postgresql+psycopg://…`) that has its first rows; None for any
    other, and when it does not answer, which the migration will say better."""
    driver_url = url.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        with psycopg.connect(driver_url, connect_timeout=_CONNECT_TIMEOUT_SECONDS) as connection:
            row = connection.execute(
                "SELECT version_num FROM alembic_version WHERE EXISTS (SELECT 1 FROM deployment)"
            ).fetchone()
    except psycopg.Error:
        return None
    return None if row is None else str(row[0])


def scripts_folder() -> Path:
    """The installed folder of migrations; RuntimeError when it is missing."""
    # Looked up, not imported: env.py runs only inside Alembic.
    spec = importlib.util.find_spec("migrations")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package 'migrations' is not installed; install lowtide again")
    return Path(next(iter(spec.submodule_search_locations)))
