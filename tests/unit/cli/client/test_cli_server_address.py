"""Which server and key a command uses, and where keys never go."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.client.failures import CommandFailed
from app.cli.client.local_run import read_address
from app.cli.client.server_address import (
    Server,
    find_server,
    is_loopback,
    read_config,
    write_config,
)
from app.settings import Settings

LOCAL = "http://127.0.0.1:8400"
FAR = "https://lowtide.example.com"


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Server]:
    """The server found with some environment, config file and admin keys."""

    def look(**variables: str) -> Server:
        for name, value in {"STATE_DIR": str(tmp_path / "state"), **variables}.items():
            monkeypatch.setenv(f"LOWTIDE_{name}", value)
        return find_server(Settings(), tmp_path / "config.toml", tmp_path / "here")

    return look


def admin_key(folder: Path, key: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "admin.key").write_text(f"{key}\n")


def test_without_anything_there_is_the_default_and_no_key(found: Callable[..., Server]):
    assert found() == Server(LOCAL, None)


def test_the_environment_comes_first(found: Callable[..., Server], tmp_path: Path):
    write_config(tmp_path / "config.toml", Server("https://other.example.com", "lt_config"))
    admin_key(tmp_path / "state", "lt_admin")
    assert found(SERVER_URL=FAR, API_KEY="lt_env") == Server(FAR, "lt_env")


@pytest.mark.parametrize("ending", ["/api/v1", "/api/v1/", "/"])
def test_an_address_may_end_where_the_routes_begin(found: Callable[..., Server], ending: str):
    assert found(SERVER_URL=f"{FAR}{ending}").url == FAR
    assert found(SERVER_URL=f"{FAR}/lowtide{ending}").url == f"{FAR}/lowtide"
    assert found(SERVER_URL=f"{FAR}/my/api/v2").url == f"{FAR}/my/api/v2"


def test_then_what_login_has_kept(found: Callable[..., Server], tmp_path: Path):
    write_config(tmp_path / "config.toml", Server(FAR, "lt_config"))
    assert found() == Server(FAR, "lt_config")


def test_it_is_known_what_named_the_address(found: Callable[..., Server], tmp_path: Path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "server_url").write_text("http://127.0.0.1:9999\n")
    assert found().chosen_by == ""
    write_config(tmp_path / "config.toml", Server(FAR, "lt_config"))
    assert found().chosen_by == "`lowtide login`"
    assert found(SERVER_URL=LOCAL).chosen_by == "LOWTIDE_SERVER_URL"


def test_a_kept_key_goes_to_its_own_server_alone(found: Callable[..., Server], tmp_path: Path):
    write_config(tmp_path / "config.toml", Server(FAR, "lt_config"))
    assert found(SERVER_URL="https://other.example.com").key is None


def test_on_this_machine_the_admin_key_will_do(found: Callable[..., Server], tmp_path: Path):
    admin_key(tmp_path / "here" / ".lowtide", "lt_here")
    assert found() == Server(LOCAL, "lt_here")
    admin_key(tmp_path / "state", "lt_state")
    assert found() == Server(LOCAL, "lt_state")


def test_a_lowtide_up_on_another_port_is_found(found: Callable[..., Server], tmp_path: Path):
    admin_key(tmp_path / "state", "lt_admin")
    (tmp_path / "state" / "server_url").write_text("http://127.0.0.1:9999\n")
    assert found() == Server("http://127.0.0.1:9999", "lt_admin")
    write_config(tmp_path / "config.toml", Server(FAR, "lt_config"))
    assert found() == Server(FAR, "lt_config")


def test_a_file_cannot_send_commands_elsewhere(found: Callable[..., Server], tmp_path: Path):
    (tmp_path / "here" / ".lowtide").mkdir(parents=True)
    (tmp_path / "here" / ".lowtide" / "server_url").write_text("http://evil.example.com")
    assert found().url == LOCAL


def test_a_command_and_the_look_at_a_run_read_the_address_alike(
    found: Callable[..., Server], tmp_path: Path
):
    for text in ("http://127.0.0.1:9999/ \n", "http://127.0.0.1:9999"):
        (tmp_path / "state").mkdir(exist_ok=True)
        (tmp_path / "state" / "server_url").write_text(text)
        assert found().url == read_address(tmp_path / "state") == "http://127.0.0.1:9999"
    (tmp_path / "state" / "server_url").write_bytes(b"\xff")
    assert read_address(tmp_path / "state") is None


def test_the_admin_key_never_leaves_this_machine(found: Callable[..., Server], tmp_path: Path):
    admin_key(tmp_path / "state", "lt_admin")
    for url in (FAR, "http://127.0.0.1.example.com", "http://10.0.0.1:8400"):
        assert found(SERVER_URL=url).key is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1", True),
        ("http://127.8.0.1", True),
        ("http://[::1]:8400", True),
        ("http://0.0.0.0", False),
        ("http://localhost.example.com", False),
        ("http://2130706433", False),
    ],
)
def test_what_counts_as_this_machine(url: str, local: bool):
    assert is_loopback(url) is local


def test_the_kept_file_is_its_owners_alone(tmp_path: Path):
    path = tmp_path / "config" / "config.toml"
    for key in ("lt_first", "lt_second"):
        write_config(path, Server(FAR, key))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert read_config(path) == Server(FAR, key)
    assert [one.name for one in path.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("key", ['lt_"', "lt_\\", "lt_\n"])
def test_a_key_that_would_break_the_file_is_refused(tmp_path: Path, key: str):
    with pytest.raises(CommandFailed, match="no key has"):
        write_config(tmp_path / "config.toml", Server(FAR, key))


@pytest.mark.parametrize("text", ["server_url = ", "server_url = 'x'", "\x80"])
def test_a_broken_file_is_named(tmp_path: Path, text: str):
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CommandFailed, match=r"config\.toml"):
        read_config(path)


def test_a_key_shows_in_no_message():
    assert "lt_secret" not in repr(Server(FAR, "lt_secret"))
