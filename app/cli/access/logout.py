"""`lowtide logout`: ends the key that `lowtide login` got, and forgets it on this machine.

Not here: where the key is kept (`app.cli.client.key_store`), or the browsers of a person
(`session_commands`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app.cli.access.login_key import revoke_login_key, with_secret
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.key_store import forget_key
from app.cli.client.server_address import Server, default_config_file, read_config

_ELSEWHERE: Final = (
    "It stays good until it ends, or until you revoke it: on the page under your name, or by "
    "`lowtide key revoke {name} --mine` where you are signed in."
)


@api_command("lowtide logout")
def logout(invocation: Invocation) -> None:
    """Sign this machine out: end its key, and forget it.

    The api revokes the key that `lowtide login` got, so that a copy of it opens nothing either. If
    the api cannot be reached, the key is forgotten here all the same; the command says so, and ends
    with exit code 3. A key that was stored by --with-key, or of a `lowtide up`, is only forgotten:
    others may use it.

    Browsers stay signed in: `lowtide session` lists and ends them.
    """
    path, terminal = default_config_file(), invocation.terminal
    stored = read_config(path)
    if stored is None:
        if not terminal.to_script({"server_url": None, "key": None, "revoked": False}, []):
            terminal.line("No key of `lowtide login` is stored on this machine.")
        return
    failure: CommandFailed | None = None
    told = f"Signed out of {stored.url}."
    name = stored.login_key
    if name:
        try:
            ended = revoke_login_key(with_secret(stored))
            told = f"{told} The key {name} {'is revoked' if ended else 'opened nothing any more'}."
        except CommandFailed as error:
            failure = error
    else:
        told = f"{told} Its key stays good: it is not one that the page gave."
    _forget(path, stored)
    if failure is not None:
        raise CommandFailed(
            f"the key {name} of {stored.url} is forgotten here, and could not be revoked: "
            f"{failure.message}",
            failure.exit_code,
            details=[_ELSEWHERE.format(name=name)],
        )
    document = {"server_url": stored.url, "key": name or None, "revoked": bool(name)}
    if not terminal.to_script(document, [name] if name else []):
        terminal.line(told)
    if "api_key" in invocation.settings().model_fields_set:
        terminal.note("LOWTIDE_API_KEY is set on this machine, and commands go on using it.")


def _forget(path: Path, stored: Server) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be removed: {error.strerror}") from error
    if stored.key_in_keyring:
        forget_key(stored.url)
