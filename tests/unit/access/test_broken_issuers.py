"""A file of issuers that cannot be used: one sentence, wherever it is noticed, and no traceback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from app.adapters.oidc.configured_issuers import configured_issuers
from app.adapters.oidc.issuers_file import IssuersFileError
from app.api.main import create_app
from app.settings import Settings, SettingsError, load_settings
from tests.support.cli.command_line import CommandLine
from tests.support.servers.free_port import free_port

GOOD = "issuers: [{name: corp, issuer: 'https://login.example.com', client_id: lowtide}]"
HOME = "http://127.0.0.1:8400"


def _folder(path: Path) -> None:
    path.mkdir()


def _text(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return write


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "cannot be read: No such file or directory"),
    "a folder": (_folder, "cannot be read: Is a directory"),
    "not text": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not UTF-8"),
    "no YAML": (_text("issuers: [}"), "line 1, column 11: not valid YAML"),
    "empty": (_text(""), "the file: must be a valid dictionary"),
    "another field": (_text(GOOD.replace("client_id", "client")), "issuers.0.client_id"),
    "no secret": (
        _text(GOOD.replace("client_id", "client_secret_file: /no/such, client_id")),
        "'corp' cannot be read from /no/such: No such file",
    ),
    "a secret's impossible name": (
        _text(GOOD.replace("client_id", r'client_secret_file: "/a\0b", client_id')),
        "no file can have such a name",
    ),
}


@pytest.fixture(params=list(BROKEN.values()), ids=list(BROKEN))
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """The file, and the reason that is told of it."""
    write, reason = request.param
    path = tmp_path / "oidc.yaml"
    write(path)
    return path, reason


def start_messages(settings: Settings | None) -> list[MutableMapping[str, Any]]:
    """What the app tells a server that starts it."""
    told: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message)

    async def start() -> None:
        with pytest.raises(SettingsError):
            await create_app(settings)({"type": "lifespan", "state": {}}, receive, send)

    asyncio.run(start())
    return told


def test_each_says_the_variable_and_the_reason(broken: tuple[Path, str]):
    path, reason = broken
    settings = load_settings(oidc_file=path)
    with pytest.raises(IssuersFileError) as raised:
        configured_issuers(settings, HOME)
    assert str(raised.value).startswith("LOWTIDE_OIDC_FILE: ")
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_api_does_not_start_and_says_the_sentence_alone(
    broken: tuple[Path, str], tmp_path: Path
):
    path, reason = broken
    nowhere = f"127.0.0.1:{free_port()}"
    settings = load_settings(
        oidc_file=path,
        state_dir=tmp_path / "state",
        database_url=f"postgresql://lowtide@{nowhere}/lowtide",
        redis_url=f"redis://{nowhere}/0",
    )
    [message] = start_messages(settings)
    assert message["type"] == "lifespan.startup.failed"
    assert message["message"].startswith("LOWTIDE_OIDC_FILE: ")
    assert reason in message["message"]
    assert "\n" not in message["message"]


def test_any_wrong_setting_is_a_sentence_at_the_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_PORT", "many")
    [message] = start_messages(None)
    assert message["message"].startswith("LOWTIDE_PORT")
    assert "Traceback" not in message["message"]


def test_up_refuses_it_before_anything_starts(broken: tuple[Path, str], tmp_path: Path):
    path, reason = broken
    state = tmp_path / "state"
    done = CommandLine(tmp_path, {"LOWTIDE_OIDC_FILE": str(path)}).run(
        "up", "--state-dir", str(state), "--port", "0"
    )
    assert done.exit_code == 2
    assert reason in " ".join(done.errors.split())
    assert "Traceback" not in done.errors
    assert not state.exists()
