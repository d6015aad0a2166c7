"""How ranks that train together fail: of themselves, of each other, of parameters nobody used."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.training.gang.torchrun_gang import GangStarter, Machine, wait_until
from tests.training.loop.one_rank import STACK
from tests.training.models.own_models import Spare
from trainer.training.config import parse_config
from trainer.training.gang.distributed import Gang
from trainer.training.gang.shared_model import SharedModel
from trainer.training.training_errors import ConfigError

SPARE: dict[str, Any] = {**STACK, "model": "tests.training.models.own_models:Spare"}


@pytest.fixture
def alone_in_a_group(tmp_path: Path) -> Iterator[Gang]:
    """A process group of this process; the gang believes in a second rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield Gang(0, 2, torch.device("cpu"))
    dist.destroy_process_group()


@pytest.mark.parametrize("finds", [False, True])
def test_a_parameter_that_a_step_left_unused_is_named(alone_in_a_group: Gang, finds: bool) -> None:
    model = Spare((1, 8, 8), 10)
    config = parse_config({**SPARE, "find_unused_parameters": finds})
    shared = SharedModel(model, config, alone_in_a_group)
    assert shared.buckets_settle is not finds
    with shared.part_of_step(last=True):
        loss = shared.call(torch.rand(4, 1, 8, 8)).sum()
        shared.backward_begins(loss)
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch has no types for it
        if finds:
            shared.backward_ended()
            return
        with pytest.raises(
            ConfigError, match=r"did not use spare\.weight and 1 more: set find_unu"
        ):
            shared.backward_ended()


@pytest.mark.full
def test_unused_parameters_are_refused_in_one_line_or_found(gangs: GangStarter) -> None:
    (refused,) = gangs.start("unused", SPARE)
    assert refused.wait() != 0
    assert refused.ending(0)["error"]["kind"] == "configuration"
    assert "error: find_unused_parameters: a step did not use spare.weight" in refused.log()
    assert "Traceback" not in refused.log().split("error: find_unused")[1].split("\n")[0]
    (found,) = gangs.start("unused-found", {**SPARE, "find_unused_parameters": True})
    assert found.wait() == 0, found.log()
    assert len(found.losses()) == SPARE["steps"]


@pytest.mark.full
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_whose_fault_it_was_is_told_apart(gangs: GangStarter, parallel: str) -> None:
    config = {**STACK, "parallel": parallel, "steps": 100_000, "preflight": False}
    own = {
        **config,
        "model": "tests.training.models.own_models:Failing",
        "model_options": {"after": 30},
    }
    (failed,) = gangs.start(f"own-bug-{parallel}", own)
    failed.wait()
    assert failed.ending(1)["error"]["kind"] == "exception"
    ended = failed.folder / "ended-rank0.json"
    if ended.exists():  # torchrun may have killed it first
        assert failed.ending(0)["error"]["kind"] == "peer_communication"
    config |= {"model_options": {"plain": True}, "step_delay_seconds": 0.01}
    machines = gangs.start(f"vanished-{parallel}", config, machines=2, ranks_each=1)
    machines[0].wait_for_step(5)
    os.kill(machines[1].rank_pid(1), signal.SIGKILL)
    for machine in machines:
        machine.wait()
    assert machines[0].ending(0)["error"]["kind"] == "peer_communication"


def _makes_its_model(machine: Machine) -> bool:
    return "the model is being made" in machine.log()


@pytest.mark.full
def test_who_was_asked_to_stop_before_the_first_step_does_not_fail_when_others_have_left(
    gangs: GangStarter,
) -> None:
    """Each rank ends by itself then, and the one that is a moment later sees the others leave."""
    config = {**STACK, "model": "tests.training.models.own_models:Late", "preflight": False}
    machines = gangs.start("left", config, machines=2, ranks_each=1)
    for machine in machines:
        wait_until(partial(_makes_its_model, machine))
    os.kill(machines[0].rank_pid(0), signal.SIGTERM)
    os.kill(machines[1].rank_pid(1), signal.SIGKILL)
    machines[0].wait()
    ended = machines[0].ending(0)
    assert (ended["outcome"], ended["step"], ended["exit_code"]) == ("drained", 0, 75)
    assert ended["error"] is None
