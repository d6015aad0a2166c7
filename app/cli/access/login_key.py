"""The key that `lowtide login` got from the page: found where it is stored, and revoked.

Not here: how the page gives one (`browser_login`), or who has one revoked (`login`, `logout`).
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import CommandFailed
from app.cli.client.job_lookup import path_part
from app.cli.client.key_store import kept_key
from app.cli.client.server_address import Server, read_config


def stored_login_key(path: Path, url: str) -> Server | None:
    """The key that a login at this address stored; None where the page gave none, or where it
    cannot be read.
    """
    try:
        stored = read_config(path)
        if stored is None or stored.url != url or not stored.login_key:
            return None
        return with_secret(stored)
    except CommandFailed:
        return None


def with_secret(stored: Server) -> Server:
    """The same with its key, which may be in the keyring. Raises CommandFailed."""
    return replace(stored, key=kept_key(stored.url)) if stored.key_in_keyring else stored


def revoke_login_key(server: Server) -> bool:
    """Revoke the key by means of itself. False where the api does not accept it any more. Raises
    CommandFailed for what may have left it good.
    """
    try:
        with ApiClient(server) as api:
            api.post(f"/me/keys/{path_part(server.login_key, 'key')}/revoke", {})
    except CommandFailed as failure:
        if failure.status == HTTPStatus.UNAUTHORIZED:
            return False
        raise
    return True
