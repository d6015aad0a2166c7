"""The end of a local cloud whose daemon stays, and the speeds that its folder keeps."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.providers.local.files.cloud_folder import DAEMON, DAEMON_LOCK, try_lock
from app.adapters.providers.local.files.cloud_settings import LocalSettings, settle_terms
from app.adapters.providers.local.files.local_variables import LocalVariables, kept_speeds
from app.adapters.providers.local.server.cloud_stop import stop_cloud
from app.settings import load_settings
from tests.support.servers.embedded import python_process


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for a socket's path."""
    made = Path(tempfile.mkdtemp(prefix="lowtide-test-"))
    yield made
    shutil.rmtree(made)


# Answers `stop` as a daemon does that has ended its machines, and stays, whatever asks it to go.
STAYING = """
import fcntl, pathlib, signal, socket, sys
folder = pathlib.Path(sys.argv[2])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = (folder / "cloud.lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
server = socket.socket(socket.AF_UNIX)
server.bind(str(folder / "cloud.sock"))
server.listen()
(folder / "cloud.address").write_text(str(folder / "cloud.sock"))
print("up", flush=True)
while True:
    caller, _ = server.accept()
    caller.recv(65536)
    body = b'{"still_there": 0}'
    caller.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    caller.close()
"""


def test_a_daemon_that_stays_after_its_machines_is_killed(folder: Path) -> None:
    settle_terms(folder, LocalSettings(), 0)
    with python_process(STAYING, DAEMON, str(folder)) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "up\n"
        assert stop_cloud(folder, 20.0) == 0
        assert daemon.wait(10) == -signal.SIGKILL


def test_a_lock_that_another_process_holds_is_told_with_what_to_do(folder: Path) -> None:
    settle_terms(folder, LocalSettings(), 0)
    held = try_lock(folder / DAEMON_LOCK)
    assert held is not None
    try:
        with pytest.raises(TimeoutError) as told:
            stop_cloud(folder, 1.0)
    finally:
        os.close(held)
    lock = folder / DAEMON_LOCK
    assert f"another process holds {lock}; find it with `fuser {lock}`" in str(told.value)
    assert "then run `lowtide down` again" in str(told.value)


def test_a_speed_that_nobody_set_is_not_told_about(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_terms(folder, LocalSettings(billing_speed=60), 0)
    assert kept_speeds(LocalVariables(), folder) == []
    monkeypatch.setenv("LOWTIDE_LOCAL_BILLING_SPEED", "5")
    [told] = kept_speeds(load_settings(), folder)
    assert "; 5 has no effect here" in told


def test_speeds_that_a_folder_keeps_are_told_with_what_to_do(folder: Path) -> None:
    assert kept_speeds(LocalVariables(local_billing_speed=60), folder) == [], "not made yet"
    settle_terms(folder, LocalSettings(billing_speed=60), 0)
    assert kept_speeds(LocalVariables(local_billing_speed=60), folder) == []
    told = "this state folder was made with LOWTIDE_LOCAL_BILLING_SPEED=60 and keeps it, because "
    told += "its bills rest on it; 1 has no effect here: for that, name a new folder with "
    assert kept_speeds(LocalVariables(local_billing_speed=1), folder) == [told + "--state-dir"]
    [said] = kept_speeds(LocalVariables(local_billing_speed=60, local_market_speed=2.5), folder)
    assert "LOWTIDE_LOCAL_MARKET_SPEED=1 and keeps it" in said
    (folder / "terms.json").write_text("{")
    assert kept_speeds(LocalVariables(local_billing_speed=1), folder) == [], (
        "its start says what is damaged"
    )
