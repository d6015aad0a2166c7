"""`lowtide login`: gets a key, or checks one, and keeps it with the api's address.

Not here: how a browser gives one (`browser_login`), or where commands look for it
(`app.cli.client.server_address`).
"""

from __future__ import annotations

import re
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from app.cli.access.browser_login import log_in_by_browser
from app.cli.access.login_key import revoke_login_key, stored_login_key
from app.cli.access.project_names import names_in
from app.cli.client import wording
from app.cli.client.api_client import ApiClient
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.server_address import (
    KEYRING,
    AddressSource,
    Server,
    default_config_file,
    folder_of,
    is_loopback,
    local_admin_key,
    without_api_root,
    write_config,
)
from app.settings import load_settings

_KEY_MAX = 4_096
_HOST = re.compile(r"[\w.:-]+")


@api_command(
    "lowtide login https://lowtide.example.com",
    "lowtide login --no-browser",
    "pass lowtide | lowtide login URL --with-key",
)
def login(
    invocation: Invocation,
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="The api's address; default: the one in use."),
    ] = None,
    browser: Annotated[
        bool,
        typer.Option(
            "--browser/--no-browser", help="Open the page here, or ask for the code that it shows."
        ),
    ] = True,
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Store a key that you have, as a service key.")
    ] = False,
    projects: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="The key opens these of your projects alone. Default: all that you sign in to.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask whether the person is right.")
    ] = False,
) -> None:
    """Sign in, and store a key for later commands.

    A page of the api opens in the browser. It shows this machine and the letters that stand here;
    confirm it, and this machine has a key of yours for 30 days. With --no-browser, open the page
    elsewhere, and type the code that it shows. The command names the person who has confirmed it,
    and asks before it stores the key of a person of whom it has none.

    For a `lowtide up` on this machine its admin key is stored, unless --no-browser or --projects
    is given.

    The key is stored in this machine's keyring if the package keyring is installed and finds one,
    else in ~/.config/lowtide/config.toml, mode 0600. A key that comes through a pipe, or is
    asked for with --with-key, is stored once the api has accepted it. There is no option for the
    key itself, because a list of processes shows options. The key that a login before got for
    this address is revoked.
    """
    named = _projects(invocation, projects)
    address = _checked(url or invocation.server().url)
    if address.startswith("http://") and not is_loopback(address):
        invocation.terminal.note(
            "The key is sent unencrypted to this address; use https:// if you can."
        )
    given, login_key, whom = None, "", ""
    if with_key or (browser and not sys.stdin.isatty()):
        given = _asked_key(named)
    elif browser and named is None:
        given = key_of_local_run(invocation, address)
    if given is None:
        with ApiClient(Server(address, None)) as api:
            made = log_in_by_browser(
                api, invocation.terminal, opens_browser=browser, projects=named
            )
        agree(invocation, address, made, yes=yes)
        given, login_key, whom = made["key"], made["name"], f" as {_described(made)}"
    server = Server(address, given, chosen_by=AddressSource.LOGIN, login_key=login_key)
    invocation.connect(server).get("/jobs", {"limit": 1})
    where = _store(invocation, server)
    if invocation.terminal.as_json:
        invocation.terminal.json({"server_url": address, "config": str(default_config_file())})
    else:
        invocation.terminal.line(f"Signed in to {address}{whom}. Stored in {where}.")


def _projects(invocation: Invocation, written: str | None) -> list[str] | None:
    """Those that the key is limited to. Raises CommandFailed for --project, which does not."""
    if invocation.project is not None:
        raise CommandFailed(
            "--project chooses for one command, and LOWTIDE_PROJECT for all: to sign in with a key "
            f"that opens one project alone, use --projects {invocation.project}"
        )
    return None if written is None else names_in(written)


def _store(invocation: Invocation, server: Server) -> str:
    """Keep the key for later commands, and revoke that of the login before. Returns where it is."""
    path = default_config_file()
    former = stored_login_key(path, server.url)
    in_keyring = write_config(path, server)
    if former is not None and former.key != server.key:
        _end_former(invocation, former)
    return KEYRING if in_keyring else str(path)


def _end_former(invocation: Invocation, former: Server) -> None:
    """Revoke the key of the login before: nobody on this machine has it any more."""
    name = former.login_key
    try:
        if revoke_login_key(former):
            invocation.terminal.note(f"{name}, the key of the login before, is revoked.")
    except CommandFailed as failure:
        invocation.terminal.note(
            f"{name}, the key of the login before, could not be revoked: {failure.message}. "
            f"Its owner can: `lowtide key revoke {name} --mine`."
        )


def _described(made: dict[str, Any]) -> str:
    """Whose key it is, what it opens, and until when."""
    projects, end = made.get("projects"), wording.clock_time(made["expires_at"])
    alone = "" if projects is None else f", for {', '.join(projects)} alone"
    whose = f"{made['person']}, {made['role']} of the project {made['project']}"
    return f"{whose}{alone}, until {end}"


def agree(invocation: Invocation, address: str, made: dict[str, Any], *, yes: bool) -> None:
    """Ask whether the key is that of who sits here: somebody else may have confirmed the page.

    Raises CommandFailed where it is not, and revokes the key.
    """
    asks = not yes and invocation.terminal.interactive and sys.stdin.isatty()
    if not asks or _stored_person(invocation, address) == made["person"]:
        return
    if typer.confirm(f"{made['person']} has confirmed this login. Is that you?", err=True):
        return
    revoke_login_key(Server(address, made["key"], login_key=made["name"]))
    raise CommandFailed(
        "nothing was stored, and the key is revoked: run `lowtide login` again, and confirm it in "
        "a browser in which you are signed in as yourself"
    )


def _stored_person(invocation: Invocation, address: str) -> str | None:
    """Whose key is stored for this address; None where none is, or none that is good."""
    try:
        server = invocation.server()
        if server.url != address or server.key is None:
            return None
        mine: dict[str, Any] = invocation.connect(server).get("/me")
    except CommandFailed:
        return None
    found: str | None = mine["person"]
    return found


def _checked(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    usable = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.hostname or "")
    if not usable or parts.query or parts.fragment:
        raise CommandFailed(f"{url!r} is not an address; write it as https://lowtide.example.com")
    if parts.username is not None:
        raise CommandFailed(
            "leave user and password out of the address; the command asks for the key"
        )
    return without_api_root(parts.geturl())


def _asked_key(projects: list[str] | None) -> str:
    """A key that is piped or typed in. Raises CommandFailed for none, and for projects, which it
    cannot be limited to.
    """
    if projects is not None:
        raise CommandFailed(
            "--projects limits the key that the page gives, and a key that you have, by --with-key "
            "or a pipe, opens what it opens: leave --projects out, or use --no-browser"
        )
    if sys.stdin.isatty():
        key = str(typer.prompt("Key", hide_input=True)).strip()
    else:
        key = sys.stdin.readline(_KEY_MAX).strip()
    if not key:
        raise CommandFailed("no key was given; paste it, or pipe it in")
    return key


def key_of_local_run(invocation: Invocation, address: str) -> str | None:
    """The admin key of a `lowtide up` on this machine; None where there is none that is good."""
    folders = (load_settings().state_dir, folder_of(Path.cwd()))
    key, _ = local_admin_key(address, folders)
    if key is None:
        return None
    try:
        invocation.connect(Server(address, key)).get("/me")
    except CommandFailed as failure:
        if failure.status != HTTPStatus.UNAUTHORIZED:
            raise
        # After a rotation or a leak the file has a key of before: the page lets a person in.
        invocation.terminal.note("The admin key of the `lowtide up` on this machine has ended.")
        return None
    invocation.terminal.note("Using the admin key of the `lowtide up` on this machine.")
    return key
