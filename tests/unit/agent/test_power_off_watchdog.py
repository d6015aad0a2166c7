"""The deadline of the power-off timer on a disk that is full, and in a file that was torn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.disks.small_disk import small_disk
from trainer.agent.runtime import power_off_watchdog


def test_a_full_disk_does_not_keep_the_deadline_from_moving(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        deadline = disk.folder / "power-off-at"
        assert power_off_watchdog.arm(deadline, 99.5)
        disk.fill()
        for at in (100.25, 12_345_678.125, 7.0):
            assert power_off_watchdog.arm(deadline, at)
            assert power_off_watchdog.read_deadline(deadline) == at
        assert [path.name for path in disk.folder.glob("power-off-at*")] == ["power-off-at"]


def test_one_that_was_never_armed_is_known_as_such(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        disk.fill()
        assert not power_off_watchdog.arm(disk.folder / "power-off-at", 99.5)
        assert not (disk.folder / "power-off-at").exists(), "an empty file would end the timer"


def test_a_deadline_cut_at_any_byte_is_none(tmp_path: Path) -> None:
    deadline = tmp_path / "power-off-at"
    power_off_watchdog.arm(deadline, 123_456.75)
    whole = deadline.read_bytes()
    for length in range(len(whole)):
        deadline.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="deadline"):
            power_off_watchdog.read_deadline(deadline)


def test_a_deadline_half_written_over_is_never_earlier(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for first, second in ((9_999.9, 10_000.1), (123.0, 456.0), (199.999, 200.0)):
        power_off_watchdog.arm(before, first)
        power_off_watchdog.arm(after, second)
        old, new = before.read_bytes(), after.read_bytes()
        assert len(old) == len(new)
        for length in range(len(new)):
            assert float(new[:length] + old[length:]) >= first
