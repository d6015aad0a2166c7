"""What a user's script does with the hooks, on every rank of a gang, in the tests of the hooks."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh
import torch.distributed.tensor
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from tests.training.hooks import stand_in_gpu
from trainer.hooks import Hooks, SaveFailed


def votes(hooks: Hooks, _: Path) -> list[bool]:
    """Rank 1 alone is asked to leave, before its fifth call."""
    answers = []
    for step in range(12):
        if step == 4 and hooks.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        answers.append(hooks.should_drain())
    return answers


def votes_by_default_elsewhere(hooks: Hooks, _: Path) -> list[bool]:
    """A script may have its tensors made on the GPU unless it says otherwise."""
    torch.set_default_device("meta")
    try:
        return [hooks.should_drain() for _ in range(3)]
    finally:
        torch.set_default_device("cpu")


def save_twice(hooks: Hooks, _: Path) -> list[str]:
    """The same step periodically, at a drain, and as the final one."""
    numbers = []
    for final in (False, False, True):
        folder = hooks.save(1, _write_own, every_rank=True, final=final)
        (manifest,) = folder.glob("manifest*.json")
        told = json.loads(manifest.read_text())
        numbers.append(f"{told['share']['save']} {told['final']}")
    return numbers


def rare_votes(hooks: Hooks, _: Path) -> list[bool]:
    """As `votes`, with calls so far apart that no answer may come a call later."""
    answers = []
    for step in range(3):
        if step == 1 and hooks.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        answers.append(hooks.should_drain())
        time.sleep(1.1 if step < 2 else 0)
    return answers


def save_each_rank(hooks: Hooks, _: Path) -> list[str]:
    """Five saves; what is below the folder afterwards."""
    for step in range(1, 6):
        hooks.save(step, _write_own, every_rank=True, final=step == 5)
    return sorted(path.name for path in hooks.folder.iterdir())


def save_on_first(hooks: Hooks, _: Path) -> list[str]:
    """As `save_each_rank`, by rank 0 alone."""
    for step in range(1, 6):
        hooks.save(step, _write_own)
    return sorted(path.name for path in hooks.folder.iterdir())


def save_with_failures(hooks: Hooks, _: Path) -> dict[str, Any]:
    """Rank 0's write fails at step 2, rank 1's at step 3; the script goes on."""
    problems = {}
    for step, culprit in ((1, None), (2, 0), (3, 1), (4, None)):

        def write(folder: Path, culprit: int | None = culprit) -> None:
            _write_own(folder)
            if hooks.rank == culprit:
                raise OSError(28, "No space left on device")

        try:
            hooks.save(step, write, every_rank=culprit != 0)
        except SaveFailed as failed:
            problems[failed.step] = [str(failed), failed.__cause__ is not None]
        hooks.should_drain()
        total = torch.ones(1, device="cpu")
        dist.all_reduce(total)
        assert total.item() == dist.get_world_size()
    return {
        "problems": problems,
        "folders": sorted(path.name for path in hooks.folder.iterdir()),
    }


def save_on_small_disk(hooks: Hooks, _: Path) -> list[str]:
    """Rank 1's disk holds a megabyte: too little at step 2, and not even for a manifest at 3."""
    told = []
    for step in (1, 2, 3, 4):

        def write(folder: Path, step: int = step) -> None:
            _write_own(folder)
            if hooks.rank == 1 and step in (2, 3):
                with (folder / "large").open("wb", buffering=0) as file:
                    try:
                        while file.write(bytes(4096)):
                            pass
                    except OSError:
                        if step == 2:
                            raise

        if not hooks.try_save(step, write, every_rank=True):
            told.append(f"{step} failed")
    return [*told, *sorted(path.name for path in hooks.folder.iterdir())]


def same_step_fails(hooks: Hooks, _: Path) -> str:
    """A step that is there is saved once more, on all machines but the first with success."""
    hooks.save(1, _write_own, every_rank=True)
    appear = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if hooks.rank == 0 and re.fullmatch(r"step-0+1\.tmp-0-\w+", self.name):
            raise OSError(5, "Input/output error")
        return appear(self, target)

    Path.rename = rename  # type: ignore[assignment,method-assign]
    try:
        second = f"second-{hooks.rank}"
        hooks.save(1, lambda to: (to / second).touch(), every_rank=True, final=True)
    except SaveFailed:
        Path.rename = appear  # type: ignore[method-assign]
        names = sorted(path.name for path in hooks.folder.glob("*/*"))
        return " ".join([path.name for path in hooks.folder.iterdir()] + names)
    return "it was saved"


def exits_in_write(hooks: Hooks, _: Path) -> str:
    """Rank 1 leaves in the middle of a save by an exception that no script catches."""

    def write(folder: Path) -> None:
        if hooks.rank == 1:
            raise SystemExit(3)

    try:
        hooks.save(1, write, every_rank=True)
    except SaveFailed as failed:
        return str(failed)
    except SystemExit:
        return "exits"
    return "it was saved"


def save_same_name(hooks: Hooks, _: Path) -> list[str]:
    """One file that is alike on all machines, and one of each rank."""

    def write(folder: Path) -> None:
        (folder / "alike").write_text("the same")
        _write_own(folder)

    hooks.save(1, write, every_rank=True)
    return sorted(path.name for path in hooks.folder.glob("*/*"))


def save_different(hooks: Hooks, _: Path) -> None:
    """One name, another content on each machine."""
    try:
        hooks.save(1, lambda to: (to / "model").write_text(f"{hooks.rank}"), every_rank=True)
    finally:
        assert not list(hooks.folder.glob("step-*"))


def save_first_only(hooks: Hooks, _: Path) -> list[str]:
    """All ranks are called, and only the first one has something to write, as in Lightning."""

    def write(folder: Path) -> None:
        if hooks.rank == 0:
            (folder / "last.ckpt").write_text("all")

    hooks.save(1, write, every_rank=True)
    return sorted(path.name for path in hooks.folder.glob("*/*"))


def killed_in_write(hooks: Hooks, answer: Path) -> None:
    """The process is gone in the middle of a save."""

    def write(folder: Path) -> None:
        _write_own(folder)
        answer.write_text("{}")
        os.kill(os.getpid(), signal.SIGKILL)

    hooks.save(7, write, every_rank=True)


def resumed(hooks: Hooks, _: Path) -> list[str]:
    """What a script finds that begins anew."""
    found = hooks.resume()
    hooks.should_drain()  # the first rank of each machine has removed by now what it found
    return [found.name if found else "", *sorted(path.name for path in hooks.folder.iterdir())]


def resumed_beside_save(hooks: Hooks, _: Path) -> list[str]:
    """Another process looks for the newest checkpoint while this one saves."""
    hooks.save(1, lambda folder: Hooks().resume())
    return sorted(path.name for path in hooks.folder.iterdir())


def save_distributed(hooks: Hooks, _: Path) -> list[str]:
    """A checkpoint of torch.distributed.checkpoint, each rank's part in its own file."""
    state = _sharded(float(hooks.rank + 1))

    def write(folder: Path) -> None:
        save(state, checkpoint_id=folder)

    saved = hooks.save(3, write, final=True, every_rank=True)
    return sorted(path.name for path in saved.iterdir())


def load_distributed(hooks: Hooks, _: Path) -> list[float]:
    """What this rank's machine has of it after a restore."""
    state = _sharded(0.0)
    load(state, checkpoint_id=hooks.resume())
    rows: list[float] = state["weights"].to_local()[:, 0].tolist()  # type: ignore[attr-defined]
    return [*rows, float(state["counter"].item())]


def _sharded(value: float) -> dict[str, torch.Tensor]:
    """Rows spread over the ranks, each rank's with its own value, and what all hold alike."""
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    rows, by_rows = torch.full((4, 8), value), torch.distributed.tensor.Shard(0)
    weights = torch.distributed.tensor.DTensor.from_local(rows, mesh, [by_rows])
    return {"weights": weights, "counter": torch.tensor(41.0 * bool(value))}


def own_device(hooks: Hooks, _: Path) -> list[list[str]]:
    """Where all ranks see both GPUs, and where each sees one; only as far as choosing one goes."""
    told = []
    for count in (2, 1):
        stand_in_gpu.install(count)
        told.append([str(hooks.device()), f"current {torch.cuda.current_device()}"])
    return told


def _write_own(folder: Path) -> None:
    (folder / f"of-rank-{os.environ['RANK']}").write_text("x" * 1000)
