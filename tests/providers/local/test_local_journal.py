"""The local cloud's journal, torn anywhere and on a full disk: what was written once stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.server.cloud_stop import repair_cloud, stop_cloud
from app.adapters.providers.local.server.journal import ROOM_BYTES, Journal, JournalFull
from app.domain.lifecycle.instance import EndedBy
from app.ports.cloud_provider import MachineState, RefusalKind
from tests.support.deployment.scripted_local_cloud import AWS_POOL, an_order, open_local_cloud
from tests.support.disks.full_flushes import FullFlush
from tests.support.disks.small_disk import SmallDisk, small_disk
from tests.support.servers.postgres import fast_folder

FILE = "cloud.jsonl"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory: every opening flushes its files to the disk."""
    with fast_folder() as made:
        yield made


def machine(name: str) -> Machine:
    return Machine(name, f"token-{name}", AWS_POOL, "ec2", 1_000_000, 20_000, "boot")


def launch(journal: Journal, name: str) -> Machine:
    made = machine(name)
    found = {"digest": "d", "machine_ids": [name], "refused": []}
    journal.record_launch(made.client_token, found, [made])
    return made


def launch_if_possible(journal: Journal, name: str) -> Machine | None:
    try:
        return launch(journal, name)
    except JournalFull:
        return None


def end(journal: Journal, one: Machine) -> bool:
    one.state, one.ended_by, one.ended_at_us = MachineState.TERMINATED, EndedBy.US, 2_000_000
    return journal.record_machine(one)


def written(folder: Path) -> bytes:
    return (folder / FILE).read_bytes().rstrip(b"\0")


def states(journal: Journal) -> dict[str, str]:
    return {name: one.state.value for name, one in journal.machines.items()}


@pytest.fixture
def whole(folder: Path) -> bytes:
    """A small journal: two launches, and the end of the first machine."""
    journal = Journal(folder)
    first = launch(journal, "a")
    launch(journal, "b")
    assert end(journal, first)
    journal.close()
    assert journal.repairs == []
    return written(folder)


# What the first so many whole lines say.
SAID = [
    {},
    {"a": "running"},
    {"a": "running", "b": "running"},
    {"a": "terminated", "b": "running"},
]


def reopened(folder: Path) -> dict[str, str]:
    """After a further machine was written, and the file was read once more without a complaint."""
    journal = Journal(folder)
    launch(journal, "next")
    journal.close()
    again = Journal(folder)
    again.close()
    assert again.repairs == []
    found = states(again)
    assert found.pop("next") == "running"
    return found


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.full)])
def test_a_journal_cut_at_any_byte_keeps_every_whole_line(folder: Path, whole: bytes, step: int):
    """At the lines' ends and some bytes between them; at each byte in full."""
    ends = [at for at in range(len(whole)) if whole[at : at + 1] == b"\n"]
    assert len(ends) == 3
    near = {cut for at in ends for cut in range(at - 2, min(at + 3, len(whole) + 1))}
    for cut in sorted({*range(0, len(whole) + 1, step), *near}):
        (folder / FILE).write_bytes(whole[:cut])
        # A line that lacks nothing but its end is whole.
        said = SAID[sum(cut >= at for at in ends)]
        torn = not any(cut in (0, at, at + 1) for at in ends)
        repairs = repair_cloud(folder)
        assert len(repairs) == torn, (cut, repairs)
        assert reopened(folder) == said, cut


def test_a_tear_in_the_middle_costs_one_line(folder: Path, whole: bytes):
    """As after a full disk: half a line, and the next one right behind it."""
    first, second, third = whole.splitlines(keepends=True)
    for cut in range(1, len(second) - 1, 7):
        (folder / FILE).write_bytes(first + second[:cut] + b"\n" + third)
        [said] = repair_cloud(folder)
        left = second[:cut].strip()
        assert said.startswith(f"line 2 of cloud.jsonl ({len(left)} bytes) was torn")
        assert (folder / "cloud.jsonl.torn").read_bytes() == left + b"\n"
        assert reopened(folder) == {"a": "terminated"}
    for damage in (b"[1]\n", b"null\n", b'{"machines": [{}]}\n', b'{"machines": 1}\n', b"\xff\n"):
        (folder / FILE).write_bytes(first + damage + second)
        assert len(repair_cloud(folder)) == 1
        assert reopened(folder) == {"a": "running", "b": "running"}


@pytest.fixture
def disk(folder: Path) -> Iterator[SmallDisk]:
    """Two megabytes."""
    with small_disk(folder / "disk", 2 << 10) as made:
        yield made


def test_ends_are_written_on_a_full_disk_and_launches_are_refused(disk: SmallDisk):
    journal = Journal(disk.folder)
    machines = [launch(journal, f"m{number}") for number in range(64)]
    disk.fill()
    while launched := launch_if_possible(journal, f"late{len(machines)}"):
        machines.append(launched)
    assert journal.machines.keys() == {one.machine_id for one in machines}
    assert all(end(journal, one) for one in machines[:64])
    journal.close()
    again = Journal(disk.folder)  # the disk is still full: it cannot be rewritten
    assert [said for said in again.repairs if "could not be rewritten" not in said] == []
    assert states(again) == states(journal)
    disk.empty()
    assert launch(again, "after").machine_id in again.machines
    again.close()


def test_what_had_no_room_is_written_when_there_is_some_again(disk: SmallDisk):
    """Also a write that the disk cuts short: the line is written anew in its place."""
    journal = Journal(disk.folder)
    one = launch(journal, "a")
    disk.fill()
    lines = 0
    while journal.record_machine(one):
        one.restarts = lines = lines + 1
    assert lines * 300 > ROOM_BYTES // 2
    assert end(journal, one) is False
    assert journal.is_behind
    torn = Journal(disk.folder)  # as after the death of the daemon just then
    torn.close()
    assert states(torn) == {"a": "running"}
    disk.empty()
    assert journal.catch_up()
    journal.close()
    assert reopened(disk.folder) == {"a": "terminated"}


def test_a_piece_of_a_line_that_had_no_room_never_shows_behind_a_shorter_one(disk: SmallDisk):
    journal = Journal(disk.folder)
    one = launch(journal, "a")
    disk.fill()
    path = disk.folder / FILE
    while path.stat().st_blocks * 512 - len(written(disk.folder)) > 1_500:
        assert journal.record_machine(one)
    one.restarts = 10**4_000
    assert not journal.record_machine(one)
    one.restarts = 0
    assert end(journal, one)
    journal.close()
    disk.empty()
    again = Journal(disk.folder)
    again.close()
    assert (again.repairs, states(again)) == ([], {"a": "terminated"})


@pytest.mark.parametrize("lacking", [1, 40])
def test_a_line_goes_behind_a_torn_one_where_the_file_cannot_be_rewritten(
    disk: SmallDisk, lacking: int
):
    """The last line lacks its end alone, or more of it."""
    journal = Journal(disk.folder)
    first = launch(journal, "a")
    launch(journal, "b")
    journal.close()
    cut = len(written(disk.folder)) - lacking
    with (disk.folder / FILE).open("r+b") as file:
        file.seek(cut)
        file.write(bytes(lacking))  # its room stays granted
    disk.fill()
    torn = Journal(disk.folder)
    assert "could not be rewritten" in torn.repairs[-1]
    assert end(torn, torn.machines[first.machine_id])
    torn.close()
    disk.empty()
    found = Journal(disk.folder)
    found.close()
    assert states(found) == {"a": "terminated", **({"b": "running"} if lacking == 1 else {})}


def test_a_disk_that_is_full_at_any_flush_costs_no_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    for at in range(1, 20):
        (folder / FILE).unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            flush = FullFlush(patch, at)
            journal = Journal(folder)
            first = launch_if_possible(journal, "a") or launch(journal, "a")
            assert launch_if_possible(journal, "b") or launch(journal, "b")
            assert end(journal, first) or journal.catch_up()
            journal.close()
            again = Journal(folder)
            again.close()
        said = [one for one in (*journal.repairs, *again.repairs) if "be rewritten" not in one]
        assert (said, states(again)) == ([], {"a": "terminated", "b": "running"}), at
        assert reopened(folder) == {"a": "terminated", "b": "running"}, at
        if not flush.was_met:
            return
    raise AssertionError("it flushes for ever")


def test_a_cloud_on_a_full_disk_lives_and_ends_its_machines(folder: Path):
    with open_local_cloud() as cloud, small_disk(cloud.folder, 8 << 10) as disk:
        first = cloud.launch()
        cloud.environment(first)
        daemon = cloud.daemon_pid()
        disk.fill()
        answer = cloud.provider.launch(an_order(token="on a full disk"))
        [refused] = answer.refused
        assert (answer.accepted, refused.kind) == ((), RefusalKind.UNAVAILABLE)
        assert "disk full: local cloud (" in refused.message
        cloud.provider.terminate((first,))
        cloud.await_end(first)
        assert cloud.daemon_pid() == daemon
        cloud.kill_daemon()
        assert cloud.machine(first).ended_by is EndedBy.US, "a new daemon knows"
        disk.empty()
        assert cloud.launch(an_order(token="after")) != first
        assert stop_cloud(cloud.folder, 20.0) == 0


def test_a_machine_whose_launch_was_torn_is_ended(folder: Path):
    with open_local_cloud() as cloud:
        machine_id = cloud.launch()
        cloud.environment(machine_id)
        cloud.kill_daemon()
        path = cloud.folder / FILE
        path.write_bytes(path.read_bytes().rstrip(b"\0")[:100])
        assert cloud.processes(machine_id)
        said: list[str] = []
        assert stop_cloud(cloud.folder, 20.0, said.append) == 0
        assert "was torn" in said[0]
        assert cloud.processes(machine_id) == ()
