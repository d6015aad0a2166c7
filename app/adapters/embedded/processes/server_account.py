"""The account the embedded servers run as, and folders that this account can reach.

PostgreSQL refuses to run as root, so under root both servers run as `nobody`, who may find the
way to a folder shut by a parent that only root may enter. Not here: what lies in those folders.
"""

from __future__ import annotations

import os
import pwd
import secrets
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from app.adapters.embedded.embedded_errors import EmbeddedServerError
from app.adapters.embedded.processes.state_folder import kept_line, write_atomically

_ACCOUNT_NAME = "nobody"
_HOME_RECORD = "server_home"
_INSIDE = "."
_SYSTEM_FOLDERS = (Path("/var/lib/lowtide"), Path("/var/tmp/lowtide-root"))


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """An operating-system account by number."""

    uid: int
    gid: int


def server_account() -> ServerAccount | None:
    """Whom to run servers as: `nobody` under root, else None (stay who we are)."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(_ACCOUNT_NAME)
    except KeyError as error:
        raise EmbeddedServerError(
            f"as root the embedded servers run as the account '{_ACCOUNT_NAME}', which this "
            "system lacks; run as another user, or set LOWTIDE_DATABASE_URL and LOWTIDE_REDIS_URL"
        ) from error
    return ServerAccount(entry.pw_uid, entry.pw_gid)


def can_use(account: ServerAccount | None, path: Path, wanted: int = os.X_OK) -> bool:
    """True when `account` may enter every parent of `path` and has `wanted` (os.R_OK …) on it.

    Looks at owner, group and other bits only; None (our own account) may use everything.
    """
    if account is None:
        return True
    real = path.resolve()
    return all(_allows(account, parent, os.X_OK) for parent in real.parents) and _allows(
        account, real, wanted
    )


def _allows(account: ServerAccount, path: Path, wanted: int) -> bool:
    facts = path.stat()
    if facts.st_uid == account.uid:
        granted = facts.st_mode >> 6
    elif facts.st_gid == account.gid:
        granted = facts.st_mode >> 3
    else:
        granted = facts.st_mode
    return granted & wanted == wanted


def system_folder(account: ServerAccount, preferred: Path | None = None) -> Path:
    """A folder of ours outside every state folder that `account` can enter but not change.

    `preferred` replaces the usual places, /var/lib/lowtide first. Raises EmbeddedServerError when
    no place will do.
    """
    places = (
        (preferred,)
        if preferred is not None
        else (*_SYSTEM_FOLDERS, Path(tempfile.gettempdir()) / "lowtide-root")
    )
    for place in places:
        if _made_safely(place) and can_use(account, place):
            return place.resolve()
    raise EmbeddedServerError(
        "found no folder that the server account can reach; tried "
        + ", ".join(map(str, places))
        + "; make one of them (owner root, mode 0711), or keep the state folder where every "
        "parent folder may be entered by all (chmod o+x)"
    )


def _made_safely(place: Path) -> bool:
    """Make `place` unless it exists; True when it is a real folder that only we may change."""
    try:
        place.mkdir(mode=0o711)
        place.chmod(0o711)
    except FileExistsError:
        pass
    except OSError:
        return False
    facts = place.lstat()
    shared = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not shared


def has_home(state_dir: Path) -> bool:
    """Whether a server of `state_dir` was ever started."""
    return (state_dir / _HOME_RECORD).exists()


def recorded_home(state_dir: Path) -> Path | None:
    """Where the servers of `state_dir` have their data; None before their first start."""
    try:
        written = kept_line(state_dir / _HOME_RECORD)
    except EmbeddedServerError:
        return None  # whoever starts the servers says so
    if written is None:
        return None
    return state_dir if written == _INSIDE else Path(written)


def server_home(
    state_dir: Path, account: ServerAccount | None, system_dir: Path | None = None
) -> Path:
    """The folder that holds the servers' data for `state_dir`: itself wherever possible.

    The first choice is written to `state_dir`/server_home and kept, so that a later change of
    modes cannot make the data seem to vanish. Raises EmbeddedServerError when the account has
    lost its way to the recorded place.
    """
    record = state_dir / _HOME_RECORD
    recorded = kept_line(record)
    if recorded is not None:
        written = recorded
    elif can_use(account, state_dir):
        written = _INSIDE
    else:
        assert account is not None  # our own account can use everything
        homes = system_folder(account, system_dir)
        written = str(homes / f"home-{secrets.token_hex(8)}")
    if recorded is None:
        write_atomically(record, written + "\n", 0o644)
    home = state_dir if written == _INSIDE else Path(written)
    if not home.exists():
        home.mkdir(parents=True)
        home.chmod(0o711)
    if not can_use(account, home):
        raise EmbeddedServerError(
            f"the servers' data is in {home}, but the account '{_ACCOUNT_NAME}' can no longer "
            "enter it; give every parent folder back its o+x permission, or start as the folder's "
            "owner"
        )
    return home
