"""One flipped bit at a thousand places of a checkpoint, and what torch.load makes of such bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around


def measure(around: Around) -> list[Figure]:
    """Bits of every file, the manifest too; then truncated, swapped, zeroed."""
    from trainer.training.checkpoint import CheckpointEngine, CheckpointFolder

    dice = random.Random(1)
    trees = _state()
    folder = around.new_folder("damaged")
    engine = CheckpointEngine(CheckpointFolder(folder))
    header = {"step": 1, "total_steps": 9, "final": False, "world_size": 1, "identity": {}}
    engine.save(header, trees, {}, hurried=True)
    path = CheckpointFolder(folder).complete()[0]
    count = around.count(1_000, 100)
    missed = sum(not _found(path, dice) for _ in range(count))
    others = _other_damage(path, dice)
    plain = folder / "plain.pt"
    silent = _silent_in_torch(plain, trees, dice, around.count(50, 10))
    return [
        Figure("integrity", f"{count} flipped bits, not found", missed, "", 0),
        Figure("integrity", "truncated, swapped, zeroed, stale: not found", others, "", 0),
        Figure("integrity", "the same in torch.save's file, loaded as if good", silent * 100, "%"),
    ]


def _state() -> dict[str, Any]:
    from trainer.training.models import build_model

    model = build_model("resnet18", (3, 32, 32), 10)
    return {"weights": model.state_dict(), "training_state": {"place": {"step": 1}}}


def _is_refused(path: Path) -> bool:
    from trainer.training.checkpoint import load_checkpoint
    from trainer.training.training_errors import CheckpointCorruptError

    try:
        load_checkpoint(path)
    except CheckpointCorruptError:
        return True
    return False


def _found(folder: Path, dice: random.Random) -> bool:
    """Flips one bit of a file chosen by size or, one time in ten, at all; puts it back."""
    files = sorted(folder.iterdir())
    sizes = [path.stat().st_size for path in files]
    path = dice.choice(files) if dice.random() < 0.1 else dice.choices(files, sizes)[0]
    at, bit = dice.randrange(path.stat().st_size), 1 << dice.randrange(8)
    _change(path, at, lambda byte: byte ^ bit)
    found = _is_refused(folder)
    _change(path, at, lambda byte: byte ^ bit)
    return found


def _other_damage(folder: Path, dice: random.Random) -> int:
    """How many of a handful of larger damages pass."""
    path = folder / "weights.safetensors"
    good = path.read_bytes()
    page = 4096
    first, second = sorted(dice.sample(range(1, len(good) // page - 1), 2))
    a, b = (good[at * page : (at + 1) * page] for at in (first, second))
    swapped = bytearray(good)
    swapped[first * page : (first + 1) * page] = b
    swapped[second * page : (second + 1) * page] = a
    zeroed = bytearray(good)
    zeroed[first * page : (first + 1) * page] = bytes(page)
    stale = bytearray(good)
    stale[first * page : (first + 1) * page] = b
    passed = 0
    for damaged in (good[:-1], good[: len(good) * 9 // 10], swapped, zeroed, stale, good + b"\0"):
        path.write_bytes(damaged)
        passed += not _is_refused(folder)
    path.write_bytes(good)
    return passed


def _silent_in_torch(path: Path, trees: dict[str, Any], dice: random.Random, count: int) -> float:
    """The share of flipped bits that torch.load takes for good."""
    import torch

    torch.save(trees, path)
    silent = 0
    for _ in range(count):
        at, bit = dice.randrange(path.stat().st_size), 1 << dice.randrange(8)
        _change(path, at, lambda byte, bit=bit: byte ^ bit)  # type: ignore[misc]
        try:
            torch.load(path, weights_only=True)
            silent += 1
        except Exception:
            pass  # torch names no exceptions for a file it cannot read
        _change(path, at, lambda byte, bit=bit: byte ^ bit)  # type: ignore[misc]
    return silent / count


def _change(path: Path, at: int, change: Callable[[int], int]) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([change(byte)]))
