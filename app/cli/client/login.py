"""`lowtide login`: checks a key against an api and keeps both for later commands.

Not here: where commands look for them (`server_address`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.server_address import (
    AddressSource,
    Server,
    default_config_file,
    folder_of,
    is_loopback,
    local_admin_key,
    write_config,
)
from app.settings import load_settings

_KEY_MAX = 4_096
_HOST = re.compile(r"[\w.:-]+")


@api_command(
    "lowtide login https://lowtide.example.com",
    "pass lowtide | lowtide login URL",
)
def login(
    invocation: Invocation,
    url: Annotated[str, typer.Argument(metavar="URL", help="The api's address.")],
) -> None:
    """Store an api's address and your key.

    Both are written to ~/.config/lowtide/config.toml, mode 0600, if the api accepts the key. The
    command asks for the key, or reads it from stdin in a pipe. There is no option for it, because a
    list of processes shows options.
    """
    address = _checked(url)
    key = _key(invocation, address)
    server = Server(address, key, chosen_by=AddressSource.LOGIN)
    invocation.connect(server).get("/jobs", {"limit": 1})
    path = default_config_file()
    write_config(path, server)
    if address.startswith("http://") and not is_loopback(address):
        invocation.terminal.note(
            "The key is sent unencrypted to this address; use https:// if you can."
        )
    if invocation.terminal.as_json:
        invocation.terminal.json({"server_url": address, "config": str(path)})
    else:
        invocation.terminal.line(f"Signed in to {address}. Stored in {path}.")


def _checked(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    usable = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.hostname or "")
    if not usable or parts.query or parts.fragment:
        raise CommandFailed(f"{url!r} is not an address; write it as https://lowtide.example.com")
    if parts.username is not None:
        raise CommandFailed(
            "leave user and password out of the address; the command asks for the key"
        )
    return parts.geturl().rstrip("/")


def _key(invocation: Invocation, address: str) -> str:

    if not sys.stdin.isatty():
        key = sys.stdin.readline(_KEY_MAX).strip()
    else:
        folders = (load_settings().state_dir, folder_of(Path.cwd()))
        local = local_admin_key(address, folders)
        if local is not None:
            invocation.terminal.note("Using the admin key of the `lowtide up` on this machine.")
        key = local or typer.prompt("Key", hide_input=True).strip()
    if not key:
        raise CommandFailed("no key was given; paste it, or pipe it in")
    return key
