"""A disk that finds out at a flush that it is full: a small file is the old one or the new one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from app.adapters.embedded.processes.state_folder import write_atomically
from app.adapters.providers.local.files.durable_files import replace_durably
from tests.support.disks.full_flushes import FullFlush
from trainer.agent.machine.small_files import replace_file


def _by_the_agent(path: Path, text: str) -> None:
    if not replace_file(path, text, durable=True):
        raise OSError("it says so")


@pytest.mark.parametrize("write", [write_atomically, replace_durably, _by_the_agent])
def test_a_disk_that_is_full_at_any_flush_leaves_a_whole_file(
    write: Callable[[Path, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = tmp_path / "record.json", list[bool]()
    for at in range(1, 10):
        path.write_text("old")
        done = False
        with monkeypatch.context() as patch:
            flush = FullFlush(patch, at)
            with suppress(OSError):
                write(path, "new " * 5_000)
                done = True
        assert path.read_text() in (("new " * 5_000,) if done else ("old", "new " * 5_000))
        assert list(tmp_path.iterdir()) == [path], "half of a file takes the room that is missing"
        assert done is not flush.was_met, "who asked for it learns that it may be gone again"
        told.append(done)
        if not flush.was_met:
            break
    assert told[0] is False
    assert told[-1] is True
