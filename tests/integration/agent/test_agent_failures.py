"""Agents that fail by an error of their own: the code they end with, and what is told of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.agent.agent_world import REPOSITORY, World, failing_agent
from trainer.agent.machine import process_group
from trainer.agent.machine.machine_folders import MachineFolders
from trainer.protocol import exit_codes
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind


def test_an_error_that_nobody_caught_is_told_by_the_next_agent(world: World) -> None:
    plane = world.open()
    path = os.pathsep.join((failing_agent(world.root), str(REPOSITORY)))
    failed = world.start(PYTHONPATH=path)
    assert failed.wait(timeout=60) == exit_codes.FAILED
    first = world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    first.kill()
    first.wait(timeout=60)
    folders = MachineFolders(world.root / "i-1")
    (folders.agent / folders.LAST_WORDS).write_text("KeyError: 'nobody thought of this'")
    world.start()
    ended = plane.wait_for(FactKind.TRAINER_ENDED).data["error"]
    assert ended["type"] == "agent_restarted"
    assert ended["message"].endswith("it had failed with KeyError: 'nobody thought of this'")


def test_an_agent_ends_by_an_error_of_any_of_its_threads(world: World) -> None:
    """What looks after the disks would else be missing for ever, and nobody would know."""
    world.open()
    part = failing_agent(world.root, "disk_watch.DiskWatch.look")
    failed = world.start(PYTHONPATH=os.pathsep.join((part, str(REPOSITORY))))
    assert failed.wait(timeout=60) == exit_codes.FAILED
    folders = MachineFolders(world.root / "i-1")
    assert "nobody thought of this" in folders.take_last_words()


def test_an_agent_that_failed_too_often_says_so_and_leaves(world: World) -> None:
    plane = world.open()
    first = world.start()
    plane.train(1)
    plane.wait_for(FactKind.CHECKPOINT)
    first.kill()
    first.wait(timeout=60)
    failures = str(exit_codes.FAILURES_MAX + 1)
    last = world.start(LOWTIDE_AGENT_FAILURES=failures)
    assert last.wait(timeout=60) == exit_codes.LEFT
    assert plane.wait_for(FactKind.LEAVING).data == {"reason": "agent_failed"}
    assert plane.wait_for(FactKind.TRAINER_ENDED, fence=1).data["error"]["type"] in (
        "agent_restarted",
        "agent_failed",
    )
    assert (world.root / "i-1-is-off").exists()
    assert not world.processes()


def test_a_machine_that_never_began_an_attempt_ends_it_too(world: World) -> None:
    plane = world.open()
    plane.direct(DirectiveKind.PREPARE, 3)
    last = world.start(LOWTIDE_AGENT_FAILURES="6")
    assert last.wait(timeout=60) == exit_codes.LEFT
    ended = plane.wait_for(FactKind.TRAINER_ENDED, fence=3).data
    assert ended["outcome"] == "killed"
    assert ended["error"]["type"] == "agent_failed"
    assert "failed 6 times in a row" in ended["error"]["message"]


def test_refusals_and_settings_have_codes_that_python_never_ends_with(world: World) -> None:
    world.open()
    assert world.start(LOWTIDE_LAUNCH_TOKEN="wrong").wait(timeout=60) == exit_codes.REFUSED
    assert world.start(LOWTIDE_CLOUD="none").wait(timeout=60) == exit_codes.SETTINGS
    own = {exit_codes.LEFT, exit_codes.FAILED, exit_codes.REFUSED, exit_codes.SETTINGS}
    assert own.isdisjoint({1, 2, 120})


@pytest.mark.parametrize("name", ["identity.json", "trainer.json", "last-words"])
def test_what_an_agent_remembers_may_be_cut_anywhere(tmp_path: Path, name: str) -> None:
    folders = MachineFolders(tmp_path)
    nonce = folders.load_identity("a" * 64).nonce
    process_group.remember_trainer(folders.trainer_file, 2**22 + 1, 7)
    (folders.agent / "last-words").write_bytes("Fehler \u00fc\ud7ff\n".encode())
    whole = (folders.agent / name).read_bytes()
    for length in range(len(whole) + 1):
        for torn in (whole[:length], whole[:length] + bytes(len(whole) - length)):
            (folders.agent / name).write_bytes(torn)
            again = MachineFolders(tmp_path)
            expected = nonce if torn == whole or name != "identity.json" else "b" * 64
            assert again.load_identity("b" * 64).nonce == expected
            fence = process_group.kill_earlier_trainer(
                again.trainer_file, f"nobody-{os.getpid()}", lambda: None
            )
            assert fence in ((7,) if name != "trainer.json" or torn == whole else (None,))
            assert isinstance(again.take_last_words(), str)
            process_group.remember_trainer(folders.trainer_file, 2**22 + 1, 7)
