"""What a row of the bench works with: a folder, a word for who watches, and how much is asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.rows_command import NotHere


@dataclass
class Around:
    """quick: measure less. say: one line of progress. folder: on a disk, removed at the end."""

    folder: Path
    quick: bool
    say: Callable[[str], None]
    _names: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def new_folder(self, purpose: str) -> Path:
        """An empty folder below it."""
        found = self.folder / f"{purpose}-{next(self._names)}"
        found.mkdir()
        return found

    def count(self, all_of_them: int, quick: int) -> int:
        """How many of something to do."""
        return quick if self.quick else all_of_them


def require_gpu() -> None:
    """Raises NotHere on a machine without a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise NotHere("no GPU here")
