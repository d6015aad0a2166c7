"""A full disk in the rules of a machine: what its reports say, and which ends it is blamed for."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.support.agent.supervised_machine import Machine, ended, saved
from trainer.agent.rules import observations as seen
from trainer.agent.rules.disk_rules import BLAMED_SECONDS
from trainer.protocol.agent_report import (
    DISK_FULL,
    STORE_UNAVAILABLE,
    DiskFull,
    FactKind,
    TrainerError,
    TrainerOutcome,
)
from trainer.protocol.directive import DirectiveKind

FULL = DiskFull("/scratch/lowtide/attempts", 512)


def failed(machine: Machine, exit_code: int = 1, **error: Any) -> dict[str, Any]:
    """How the end of a failed trainer is told."""
    told = TrainerError("it ended", **error)
    end = ended(TrainerOutcome.FAILED, exit_code=exit_code, error=told)
    machine.see(seen.TrainerExited(1, end))
    return machine.fact(FactKind.TRAINER_ENDED)


def test_reports_say_it_until_the_disk_has_room() -> None:
    machine = Machine().running()
    assert machine.report().disk_full is None
    asked = machine.see(seen.DiskSeen(FULL))
    assert [type(action).__name__ for action in asked] == ["ReportNow"], "told at once"
    assert machine.see(seen.DiskSeen(FULL)) == [], "and once"
    assert machine.report().disk_full == FULL
    machine.see(seen.DiskSeen(None))
    assert machine.report().disk_full is None


def test_reports_say_that_a_save_lacked_room_until_one_is_complete() -> None:
    left = DiskFull("/scratch/checkpoints", 3 << 30)
    machine = Machine().running()
    machine.see(seen.SaveLackedRoom(1, 120, left))
    machine.see(seen.DiskSeen(FULL))
    machine.see(seen.DiskSeen(None))
    machine.after(BLAMED_SECONDS - 1)
    assert machine.report().disk_full == FULL, "the newest of both"
    machine.see(seen.CheckpointReady(1, saved(130)))
    assert machine.report().disk_full is None
    machine.see(seen.SaveLackedRoom(1, 140, left))
    assert machine.report().disk_full == left
    machine.after(BLAMED_SECONDS + 1)
    assert machine.report().disk_full is None, "it may never save again"


def test_an_end_while_the_disk_is_full_is_the_disks() -> None:
    machine = Machine().running()
    machine.see(seen.DiskSeen(FULL))
    told = failed(machine)
    assert told["outcome"] == "failed"
    assert told["error"]["type"] == DISK_FULL
    assert told["error"]["message"] == (
        "the disk of /scratch/lowtide/attempts was full (512 bytes free): it ended"
    )


def test_a_save_that_lacked_room_is_blamed_for_a_minute() -> None:
    left = DiskFull("/scratch/checkpoints", 3 << 30)
    machine = Machine().running()
    machine.see(seen.SaveLackedRoom(1, 120, left))
    assert machine.report().disk_full == left
    machine.after(BLAMED_SECONDS - 1)
    assert failed(machine)["error"]["type"] == DISK_FULL
    machine = Machine().running()
    machine.see(seen.SaveLackedRoom(1, 120, left))
    machine.after(BLAMED_SECONDS + 1)
    assert failed(machine)["error"]["type"] is None


@pytest.mark.parametrize(
    "error",
    [
        {"out_of_memory": True},
        {"peer_communication": True},
        {"signal": int(signal.SIGKILL)},
        {"type": STORE_UNAVAILABLE},
        {"exit_code": 2},
    ],
)
def test_what_is_known_to_have_another_cause_keeps_it(error: dict[str, Any]) -> None:
    machine = Machine().running()
    machine.see(seen.DiskSeen(FULL))
    expected = error.get("type")
    assert failed(machine, **error)["error"]["type"] == expected


def test_an_end_that_went_well_stays_well() -> None:
    machine = Machine(bundled=False).running()
    machine.see(seen.DiskSeen(FULL))
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.DRAINED, exit_code=75)))
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "drained"


@pytest.mark.parametrize("no_room", [True, False])
def test_a_preparation_says_whether_the_disk_was_full(no_room: bool) -> None:
    machine = Machine()
    machine.told(DirectiveKind.PREPARE)
    machine.see(seen.PreparationFailed(1, "setup", "it failed", disk_full=no_room))
    assert machine.fact(FactKind.PREPARATION_FAILED)["disk_full"] is no_room
    machine = Machine()
    machine.told(DirectiveKind.PREPARE)
    machine.see(seen.DiskSeen(FULL))
    machine.see(seen.PreparationFailed(1, "setup", "it failed"))
    assert machine.fact(FactKind.PREPARATION_FAILED)["disk_full"] is True
