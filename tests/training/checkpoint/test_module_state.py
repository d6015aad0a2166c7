"""Models that keep more than parameters: extra states, and buffers that are not persistent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.checkpoint.gathered_shares import gather_shares
from tests.training.gang.torchrun_gang import GangStarter
from tests.training.loop.one_rank import STACK, train_here
from tests.training.models.own_models import Moving
from trainer.training.checkpoint import (
    CheckpointEngine,
    CheckpointFolder,
    CheckpointReader,
    Writer,
    load_checkpoint,
)
from trainer.training.checkpoint import __main__ as command
from trainer.training.loop.module_state import (
    EXTRA_KEY,
    own_state,
    put_back,
    require_storable_state,
)
from trainer.training.saving import restoring
from trainer.training.saving.own_tensors import own_tensors_of
from trainer.training.training_errors import ConfigError

MOVING: dict[str, Any] = {
    **STACK,
    "model": "tests.training.models.own_models:Moving",
    "steps": 24,
    "checkpoint_interval_steps": 8,
    "checkpoint_keep_every": 1,
    "accumulation": 2,
}
HEADER = {"total_steps": 9, "final": False, "world_size": 2, "fence": 1}


@pytest.mark.parametrize("extra", ["none", "dict", "tensor"])
def test_what_a_state_dict_does_not_keep_goes_on_bit_for_bit(tmp_path: Path, extra: str) -> None:
    config = {**MOVING, "model_options": {"extra": extra}}
    whole = train_here(tmp_path / "whole", config)
    losses: dict[int, float] = {}
    resume = None
    for cut in (3, 11, 14, 1 << 60):
        folder = tmp_path / f"cut-{cut}"
        part = train_here(folder, config, resume=resume, stop_after=cut)
        losses |= part.losses
        resume = part.checkpoint(part.ending.step)
    assert losses == whole.losses
    assert part.ending.outcome == "finished"
    saved = whole.run.learner.model.state_dict(), part.run.learner.model.state_dict()
    for name, each in saved[0].items():
        if isinstance(each, torch.Tensor):
            assert torch.equal(each, saved[1][name])


@pytest.mark.full
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("machines", [1, 2])
def test_ranks_go_on_bit_for_bit_each_with_its_own(
    tmp_path: Path, gangs: GangStarter, parallel: str, machines: int
) -> None:
    # 4 MiB: what ranks save together is cut between them.
    options = {"extra": "dict", "plain": True, "wide": 1 << 20}
    config = {**MOVING, "parallel": parallel, "model_options": options}
    name = f"moving-{parallel}-{machines}"
    shape: dict[str, Any] = {
        "machines": machines, "ranks_each": 2 // machines, "together": machines > 1,
    }  # fmt: skip
    whole = gangs.start(f"{name}-whole", config, **shape)
    for machine in whole:
        assert machine.wait() == 0, machine.log()
    resume = gather_shares(whole, 8, tmp_path)
    rest = gangs.start(f"{name}-rest", config, resume=resume, fence=2, **shape)
    for machine in rest:
        assert machine.wait() == 0, machine.log()
    expected = whole[0].losses()
    assert rest[0].losses() == {step: expected[step] for step in range(9, 25)}
    ends = [
        load_checkpoint(gather_shares(each, 24, tmp_path / str(number)))[1]["weights"]
        for number, each in enumerate((whole, rest))
    ]
    assert torch.equal(ends[0]["kept"], ends[1]["kept"])
    # Another number of ranks goes on with the first one's.
    alone = train_here(tmp_path / "alone", {**config, "steps": 24}, resume=resume, stop_after=9)
    assert alone.losses[9] == pytest.approx(expected[9], rel=0.2)


def test_each_ranks_own_comes_back_and_what_may_differ_is_the_first_ones(tmp_path: Path) -> None:
    ranks = 2
    engines = []
    for rank in range(ranks):
        trees = {
            # More than half of all: the second rank would write rows of it, too.
            "weights": {"kept": torch.full((5 << 20,), float(rank))},
            "training_state": {"momentum": torch.zeros(1 << 20)},
        }
        state = {"buffers": {"moving": torch.full((3,), float(rank))}, "extra_states": {"n": rank}}
        engine = CheckpointEngine(CheckpointFolder(tmp_path), Writer(rank, ranks))
        own = own_tensors_of(rank, {}, state)
        engine.save({**HEADER, "step": 1}, trees, own, uncut=["kept"])
        engines.append(engine)
    for engine in engines:
        engine.finish()
    reader = CheckpointReader(tmp_path / f"step-{1:012d}")
    assert torch.equal(reader.read()["weights"]["kept"], torch.zeros(5 << 20))
    tensors = reader.tensors("training_state")
    for rank in range(ranks):
        found = restoring._own_state(tensors, rank)
        assert found["extra_states"] == {"n": rank}
        assert torch.equal(found["buffers"]["moving"], torch.full((3,), float(rank)))


def test_a_rank_keeps_what_the_first_one_does_not_keep_for_it() -> None:
    here = Moving((1, 8, 8), 10, extra="dict", plain=True)
    for _ in range(3):
        here(torch.rand(4, 1, 8, 8))
    weights = here.state_dict()
    kept = {
        (rank, apart): {name: set(each) for name, each in own.items()}
        for rank in (0, 1)
        for apart in (False, True)
        for own in [own_state(here, weights, rank, apart)]
    }
    extra = {"extra_states": {f"tracked.{EXTRA_KEY}"}}
    assert kept[0, False] == kept[0, True] == {"buffers": {"moving"}}
    assert kept[1, False] == extra
    assert kept[1, True] == {"buffers": {"moving", "kept"}, **extra}
    again = Moving((1, 8, 8), 10, extra="dict", plain=True, wide=64)  # both have grown since
    put_back(again, own_state(here, weights, 1, True))
    assert torch.equal(again.moving, here.moving)
    assert torch.equal(again.kept, here.kept)
    assert (again.tracked.passes, again.state_dict().keys()) == (3, weights.keys())


@pytest.mark.full
def test_two_ranks_keep_their_own_extra_state(tmp_path: Path, gangs: GangStarter) -> None:
    config = {**MOVING, "steps": 16, "model_options": {"extra": "dict", "plain": True}}
    (whole,) = gangs.start("extra-whole", config)
    assert whole.wait() == 0, whole.log()
    (rest,) = gangs.start("extra-rest", config, resume=whole.checkpoint(whole.saved_from(8)))
    assert rest.wait() == 0, rest.log()
    expected = whole.losses()
    assert rest.losses() == {step: expected[step] for step in range(whole.saved_from(8) + 1, 17)}


def test_a_checkpoint_of_before_still_loads(tmp_path: Path) -> None:
    """One without anything of single ranks but their random state."""
    config = {**MOVING, "model_options": {"extra": "dict"}}
    first = train_here(tmp_path / "first", config, stop_after=7)
    saved = first.checkpoint(first.ending.step)
    tensors = CheckpointReader(saved).tensors("training_state")
    assert {"own.0", "own.0.buffers.moving"} <= tensors.keys()
    assert restoring._own_state({}, 0) == {"buffers": {}}
    old = {key: each for key, each in tensors.items() if not key.startswith("own.")}
    assert restoring._own_state(old, 0) == {"buffers": {}}


def test_export_gives_the_state_dict(tmp_path: Path) -> None:
    done = train_here(tmp_path, {**MOVING, "steps": 8, "model_options": {"extra": "dict"}})
    model = done.run.learner.model
    target = tmp_path / "weights.pt"
    assert command.main([str(done.checkpoint(8)), "--export", str(target)]) == 0
    exported = torch.load(target, weights_only=True)
    assert exported.keys() == model.state_dict().keys()
    assert "moving" not in exported
    model.load_state_dict(exported)
    plain = tmp_path / "weights.safetensors"
    assert command.main([str(done.checkpoint(8)), "--export", str(plain)]) == 0
    header = json.loads(plain.read_bytes()[8:].split(b"\0")[0].partition(b"}}  ")[0] + b"}}")
    assert not [key for key in header if key.startswith(f"tracked.{EXTRA_KEY}")]


class _Odd(nn.Linear):
    def get_extra_state(self) -> object:
        return {"hook": print}


def test_an_extra_state_that_cannot_be_kept_is_refused_at_the_start() -> None:
    model = nn.Sequential(nn.Linear(2, 2), _Odd(2, 2))
    with pytest.raises(ConfigError, match=r"get_extra_state of 1 cannot be saved: hook: .* holds"):
        require_storable_state(model)
