"""Puts what several machines have saved of one checkpoint into one folder, as a restore does."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.training.gang.torchrun_gang import Machine


def gather_shares(machines: Sequence[Machine], step: int, target: Path) -> Path:
    """The whole checkpoint of a step; no two machines have a file of the same name."""
    folder = target / f"step-{step:012d}"
    folder.mkdir(parents=True)
    for machine in machines:
        for path in machine.checkpoint(step).iterdir():
            assert not (folder / path.name).exists()
            shutil.copy2(path, folder / path.name)
    return folder
