"""Where `lowtide login` keeps a key: the keyring of the operating system where there is one.

A keyring is used where the package `keyring` is installed and finds one; else the key stands in the
configuration file, mode 0600. Not here: that file (`server_address`).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Final

from app.cli.client.failures import CommandFailed

_SERVICE: Final = "lowtide"
_PACKAGE: Final = "keyring"


def keep_key(url: str, key: str) -> bool:
    """Store the key of this address in the keyring; False where there is none that takes it."""
    keyring = _keyring()
    if keyring is None:
        return False
    try:
        keyring.set_password(_SERVICE, url, key)
    except keyring.errors.KeyringError:
        return False
    return True


def kept_key(url: str) -> str:
    """The key of this address from the keyring. Raises CommandFailed where it gives none."""
    keyring, reason = _keyring(), "there is none now"
    if keyring is not None:
        try:
            found = keyring.get_password(_SERVICE, url)
            if found:
                return str(found)
            reason = "it has none"
        except keyring.errors.KeyringError as error:
            reason = str(error)
    raise CommandFailed(
        f"this machine's keyring should have the key for {url} and does not give it ({reason}): "
        f"unlock it, run `lowtide login {url}` again, or set LOWTIDE_API_KEY"
    )


def forget_key(url: str) -> None:
    """Remove the key of this address from the keyring. Raises CommandFailed where it is kept all
    the same.
    """
    keyring = _keyring()
    if keyring is None:
        return
    try:
        if keyring.get_password(_SERVICE, url) is not None:
            keyring.delete_password(_SERVICE, url)
    except keyring.errors.KeyringError as error:
        raise CommandFailed(
            f"this machine's keyring still has the key for {url}, and does not remove it ({error}):"
            f" remove the entry {_SERVICE!r} there"
        ) from error


def _keyring() -> Any:
    """The package, where it is installed and found a keyring that it would choose by itself."""
    if importlib.util.find_spec(_PACKAGE) is None:
        return None
    keyring = importlib.import_module(_PACKAGE)
    return keyring if keyring.get_keyring().priority > 0 else None
