"""Which api a command talks to, and with which key.

Lives here: the order in which the environment, the file of `lowtide login` and the state folder of
a local `lowtide up` are asked. Not here: the talking (`api_client`).
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from app.cli.client.failures import CommandFailed
from app.cli.client.key_store import keep_key, kept_key
from app.cli.client.local_run import is_starting, read_address, wait_for_start

if TYPE_CHECKING:
    from app.settings import Settings

_ADMIN_KEY_FILE = "admin.key"
_KEY_BYTES_MAX = 4_096
_IN_KEYRING = "key_in_keyring"
_LOGIN_KEY = "login_key"
API_ROOT: Final = "/api/v1"
"""Where the api's routes begin, below its address."""
KEYRING: Final = "this machine's keyring"
_PLAIN_TEXT = frozenset('"\\')


class AddressSource(StrEnum):
    """What the user set that names an address, as sentences call it; empty if nothing does."""

    VARIABLE = "LOWTIDE_SERVER_URL"
    LOGIN = "`lowtide login`"
    NOTHING = ""

    @property
    def remedy(self) -> str:
        """What to do where another address is meant. `lowtide login` does not go over a variable
        that is set.
        """
        return _REMEDIES[self]


_REMEDIES: Final = {
    AddressSource.VARIABLE: "correct LOWTIDE_SERVER_URL, or unset it",
    AddressSource.LOGIN: "run `lowtide login` with another URL, or set LOWTIDE_SERVER_URL",
    AddressSource.NOTHING: "set LOWTIDE_SERVER_URL, or run `lowtide login URL`",
}


@dataclass(frozen=True, slots=True)
class Server:
    """The api's address without a slash at its end, and the key (None: nothing to sign in with).

    folders: state folders whose `lowtide up` the address may mean. key_in_variable: the key is
    LOWTIDE_API_KEY's.
    key_in_keyring: it is in the operating system's keyring, and not read yet. key_file: the file
    that has the key, or the address of which the keyring has it; None for another origin.
    login_key: the key's name, where `lowtide login` got it from the page; else "".
    """

    url: str
    key: str | None = field(repr=False)
    folders: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    chosen_by: AddressSource = field(default=AddressSource.NOTHING, repr=False, compare=False)
    key_in_variable: bool = field(default=False, repr=False, compare=False)
    key_in_keyring: bool = field(default=False, repr=False, compare=False)
    key_file: Path | None = field(default=None, repr=False, compare=False)
    login_key: str = field(default="", repr=False, compare=False)


def find_server(
    settings: Settings, config_file: Path | None = None, here: Path | None = None
) -> Server:
    """The server to talk to. Raises CommandFailed when a file that should hold a key does not, and
    where only a `lowtide up` can tell the address that is still starting after some seconds.

    Address: LOWTIDE_SERVER_URL, else the one of `lowtide login`, else that of a `lowtide up` that
    runs here, else the default. Key: LOWTIDE_API_KEY, else that of `lowtide login` for the same
    address, else, on this machine only, the admin key of `lowtide up`. The state folders looked
    into are that of the settings, then `.lowtide` in `here`.
    """
    path = config_file or default_config_file()
    known = read_config(path)
    folders = (settings.state_dir, folder_of(here or Path.cwd()))
    chosen_by = AddressSource.NOTHING
    if "server_url" in settings.model_fields_set:
        url, chosen_by = without_api_root(settings.server_url), AddressSource.VARIABLE
    elif known is not None:
        url, chosen_by = known.url, AddressSource.LOGIN
    else:
        url = _address_of_run(folders) or settings.server_url
    if settings.api_key is not None:
        key = settings.api_key.get_secret_value()
        return Server(url, key, folders, chosen_by, key_in_variable=True)
    if known is not None and known.url == url and (known.key or known.key_in_keyring):
        kept = kept_key(url) if known.key_in_keyring else known.key
        return Server(url, kept, folders, chosen_by, key_file=path, login_key=known.login_key)
    local, file = local_admin_key(url, folders)
    return Server(url, local, folders, chosen_by, key_file=file)


def without_api_root(url: str) -> str:
    """The api's address, of one that may be copied from docs with the root of the routes."""
    return url.rstrip("/").removesuffix(API_ROOT).rstrip("/")


def folder_of(here: Path) -> Path:
    """The state folder of a `lowtide up` in the folder `here`: commands there find it unasked."""
    return here / ".lowtide"


def default_config_file() -> Path:
    """Where `lowtide login` keeps the address and the key."""
    return Path("~/.config/lowtide/config.toml").expanduser()


def read_config(path: Path) -> Server | None:
    """The server that `lowtide login` has stored; None when there is none."""
    try:
        stored = tomllib.loads(path.read_text(encoding="utf-8"))
        url = str(stored["server_url"]).rstrip("/")
        login_key = str(stored.get(_LOGIN_KEY, ""))
        if stored.get(_IN_KEYRING) is True:
            return Server(url, None, key_in_keyring=True, login_key=login_key)
        return Server(url, str(stored["api_key"]), login_key=login_key)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError, tomllib.TOMLDecodeError, KeyError) as error:
        raise CommandFailed(
            f"{path} cannot be read ({error}); repair it, or write it again with `lowtide login`"
        ) from error


def write_config(path: Path, server: Server) -> bool:
    """Store the server for later commands, readable by its owner alone. Returns whether the
    keyring has the key; else it is in the file.
    """
    written = f"{server.url}{server.key}{server.login_key}"
    if _PLAIN_TEXT & set(written) or not written.isprintable():
        raise CommandFailed("the key holds characters that no key has; copy it again")
    path.parent.mkdir(parents=True, exist_ok=True)
    in_keyring = keep_key(server.url, f"{server.key}")
    key = f"{_IN_KEYRING} = true" if in_keyring else f'api_key = "{server.key}"'
    made = f'{_LOGIN_KEY} = "{server.login_key}"\n' if server.login_key else ""
    _write_private(path, f'server_url = "{server.url}"\n{key}\n{made}')
    return in_keyring


def store_secret(server: Server, path: Path, secret: str) -> str:
    """Store another secret of the server's key, which came from this file or the keyring, where the
    one of before is. Returns where that is. Raises CommandFailed as `write_config`, and OSError.
    """
    if path.name == _ADMIN_KEY_FILE:
        _write_private(path, f"{secret}\n")
        return str(path)
    in_keyring = write_config(path, replace(server, key=secret))
    return KEYRING if in_keyring else str(path)


def _write_private(path: Path, text: str) -> None:
    """Made 0600 before anything is in it, and moved into place whole."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def is_loopback(url: str) -> bool:
    """Whether the address can only mean this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def local_address(folders: Sequence[Path]) -> str | None:
    """Where a `lowtide up` from one of the state folders answers; None when none runs."""
    for folder in folders:
        address = read_address(folder)
        if address is not None and is_loopback(address):
            return address
    return None


def _address_of_run(folders: Sequence[Path]) -> str | None:
    """`local_address`, after the start of a `lowtide up` that will tell it."""
    address = local_address(folders)
    if address is not None:
        return address
    for folder in folders:
        if is_starting(folder):
            wait_for_start(folder)
            return local_address(folders)
    return None


def local_admin_key(url: str, folders: Sequence[Path]) -> tuple[str, Path] | tuple[None, None]:
    """The admin key of a `lowtide up` from one of the state folders, and its file; None when there
    is none.

    Never for another host: the key opens everything.
    """
    if not is_loopback(url):
        return None, None
    for folder in folders:
        path = folder / _ADMIN_KEY_FILE
        try:
            with path.open(encoding="ascii") as file:
                key = file.read(_KEY_BYTES_MAX).strip()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeError) as error:
            raise CommandFailed(
                f"the admin key {path} cannot be read ({error}); "
                "set LOWTIDE_API_KEY, or run as the user who started `lowtide up`"
            ) from error
        if key:
            return key, path
    return None, None
