"""Where a key is kept: in a keyring where the package finds one, else in the file, mode 0600."""

from __future__ import annotations

import importlib.util
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from app.cli.client.failures import CommandFailed
from app.cli.client.server_address import (
    Server,
    find_server,
    read_config,
    store_secret,
    write_config,
)
from app.settings import Settings
from tests.support.cli.command_line import CommandLine
from tests.support.servers.free_port import free_port

FAR = "https://lowtide.example.com"


class KeyringError(Exception):
    """As the package has it."""


class Keyring(ModuleType):
    """The package `keyring` with a keyring that holds what it is given, or refuses."""

    def __init__(self, priority: float = 5.0, refusal: str = "") -> None:
        super().__init__("keyring")
        self.errors = SimpleNamespace(KeyringError=KeyringError)
        self.kept: dict[tuple[str, str], str] = {}
        self.priority, self.refusal = priority, refusal

    def get_keyring(self) -> SimpleNamespace:
        return SimpleNamespace(priority=self.priority)

    def set_password(self, service: str, user: str, password: str) -> None:
        self._refuse()
        self.kept[service, user] = password

    def get_password(self, service: str, user: str) -> str | None:
        self._refuse()
        return self.kept.get((service, user))

    def delete_password(self, service: str, user: str) -> None:
        self._refuse()
        del self.kept[service, user]

    def _refuse(self) -> None:
        if self.refusal:
            raise KeyringError(self.refusal)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Keyring], Keyring]:
    """Lets the package be found, as if it were installed."""

    def put(keyring: Keyring) -> Keyring:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setitem(sys.modules, "keyring", keyring)
        return keyring

    return put


def found(path: Path) -> Server:
    return find_server(Settings(server_url=FAR, state_dir=path.parent / "s"), path, path.parent)


@pytest.mark.parametrize("keyring", [None, Keyring(priority=0), Keyring(refusal="locked")])
def test_without_a_keyring_the_key_is_in_the_file(
    tmp_path: Path, install: Callable[[Keyring], Keyring], keyring: Keyring | None
):
    if keyring is not None:
        install(keyring)
    path = tmp_path / "config.toml"
    assert write_config(path, Server(FAR, "lt_x")) is False
    assert 'api_key = "lt_x"' in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_config(path) == Server(FAR, "lt_x")


def test_with_a_keyring_the_file_has_the_address_alone(
    tmp_path: Path, install: Callable[[Keyring], Keyring]
):
    keyring = install(Keyring())
    path = tmp_path / "config.toml"
    assert write_config(path, Server(FAR, "lt_x")) is True
    assert "lt_x" not in path.read_text()
    assert found(path).key == "lt_x"
    keyring.refusal = "it is locked"
    with pytest.raises(CommandFailed, match="it is locked"):
        found(path)
    keyring.refusal = ""
    keyring.kept.clear()
    with pytest.raises(CommandFailed, match="it has none"):
        found(path)


def test_another_secret_is_stored_where_the_one_of_before_is(
    tmp_path: Path, install: Callable[[Keyring], Keyring]
):
    path = tmp_path / "config.toml"
    write_config(path, Server(FAR, "lt_old", login_key="laptop-1"))
    assert store_secret(found(path), path, "lt_new") == str(path)
    assert (found(path).key, found(path).login_key) == ("lt_new", "laptop-1")
    keyring = install(Keyring())
    write_config(path, Server(FAR, "lt_old", login_key="laptop-1"))
    assert store_secret(found(path), path, "lt_new") == "this machine's keyring"
    assert list(keyring.kept.values()) == ["lt_new"]
    assert found(path).login_key == "laptop-1"


def test_another_secret_of_the_admin_key_of_a_lowtide_up_is_stored_in_its_file(tmp_path: Path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "admin.key").write_text("lt_old\n")
    server = find_server(Settings(state_dir=state), tmp_path / "config.toml", tmp_path)
    assert server.key_file == state / "admin.key"
    assert store_secret(server, server.key_file, "lt_new") == str(state / "admin.key")
    assert (state / "admin.key").read_text() == "lt_new\n"
    assert stat.S_IMODE((state / "admin.key").stat().st_mode) == 0o600
    assert [one.name for one in state.iterdir()] == ["admin.key"]


def nobody_listens() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_logging_out_forgets_a_key_although_the_api_cannot_be_reached(tmp_path: Path):
    url = nobody_listens()
    path = tmp_path / ".config" / "lowtide" / "config.toml"
    write_config(path, Server(url, "lt_x", login_key="laptop-1"))
    cli = CommandLine(tmp_path, {"LOWTIDE_STATE_DIR": str(tmp_path / "none")})
    told = " ".join(cli.fails(3, "logout").errors.split())
    assert f"the key laptop-1 of {url} is forgotten here, and could not be revoked" in told
    assert "lowtide key revoke laptop-1 --mine" in told
    assert "lt_x" not in told
    assert not path.exists()
    assert "No key" in cli.ok("logout").out


def test_logging_out_removes_the_key_from_the_keyring(
    tmp_path: Path, install: Callable[[Keyring], Keyring]
):
    keyring, url = install(Keyring()), nobody_listens()
    path = tmp_path / ".config" / "lowtide" / "config.toml"
    cli = CommandLine(tmp_path, {"LOWTIDE_STATE_DIR": str(tmp_path / "none")})
    write_config(path, Server(url, "lt_x", login_key="laptop-1"))
    cli.fails(3, "logout")
    assert (keyring.kept, path.exists()) == ({}, False)
    write_config(path, Server(url, "lt_x"))
    keyring.refusal = "it is locked"
    assert "does not remove it (it is locked)" in cli.fails(2, "logout").errors
    assert not path.exists()
