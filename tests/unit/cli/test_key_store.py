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
from app.cli.client.server_address import Server, find_server, read_config, write_config
from app.settings import Settings

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
