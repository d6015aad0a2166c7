"""Gangs shared by the training tests: each costs seconds, so each is run once a session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import torch

from tests.training.gang.torchrun_gang import GangStarter, Machine, ask_for_stacks_in_a_stall

DIGITS = {"model": "cnn", "data": "digits", "steps": 400, "batch_size": 64, "seed": 7}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """As the trainer computes on a CPU; threads that wait for each other keep the cores busy."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangStarter]:
    starter = GangStarter(tmp_path_factory.mktemp("gangs"))
    yield starter
    starter.stop_all()


@pytest.fixture(scope="session")
def uninterrupted(gangs: GangStarter) -> Machine:
    """Two ranks on one machine from start to finish, for longer than a verdict needs (2 s)."""
    (machine,) = gangs.start("uninterrupted", {**DIGITS, "step_delay_seconds": 0.006})
    assert machine.wait() == 0, machine.log()
    return machine


@pytest.fixture(scope="session")
def drained(gangs: GangStarter) -> list[Machine]:
    """The same run on two machines; only the second one's torchrun is told to stop.

    Before that its rank is asked for its stacks, while it waits for the first one's, as in a stall.
    """
    config = {**DIGITS, "checkpoint_interval_steps": 25, "step_delay_seconds": 0.02}
    machines = gangs.start("drained", config, machines=2, ranks_each=1)
    machines[0].wait_for_step(5)  # before the first save, which a stall would hold up
    ask_for_stacks_in_a_stall(waiting=machines[1], waiting_rank=1, held_pid=machines[0].rank_pid(0))
    machines[0].wait_for_step(60)
    machines[1].process.send_signal(signal.SIGTERM)
    for machine in machines:
        machine.wait()
    return machines


@pytest.fixture(scope="session")
def drained_again(gangs: GangStarter, drained: list[Machine]) -> Machine:
    """Resumed from the drained run; then torchrun and each rank are told to stop, at once."""
    step = drained[0].ending(0)["step"]
    (machine,) = gangs.start("resumed", DIGITS, resume=drained[0].checkpoint(step), fence=2)
    machine.wait_for_step(step + 150)
    ranks = [machine.rank_pid(0), machine.rank_pid(1)]
    for pid in [machine.process.pid, *ranks]:
        os.kill(pid, signal.SIGTERM)
    machine.wait()
    return machine
