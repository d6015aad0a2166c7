"""A PostgreSQL for simulations run by hand: in a temporary folder, without fsync, gone afterwards.

Not here: the databases of tests, which clone a template of their own server.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.adapters.embedded.postgres_server import EmbeddedPostgres
from app.adapters.postgres.migrate import upgrade


@contextmanager
def scratch_database() -> Iterator[str]:
    """The URL of a migrated, empty database."""
    folder = Path(tempfile.mkdtemp(prefix="lowtide-simulation-"))
    folder.chmod(0o711)
    server = EmbeddedPostgres(folder / "postgres", fsync=False)
    try:
        server.start()
        upgrade(server.url)
        yield server.url
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
