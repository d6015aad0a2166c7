"""TensorBoard event files of a run, from the same lines that the progress file gets.

The writer is the one that comes with PyTorch; it needs the package ``tensorboard`` (the optional
extra ``observe``), which is imported only for a run that asks for these files.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer.training.training_errors import ConfigError

_KINDS = {"step": "train", "eval": "eval", "gpu": "gpu", "verdict": "time"}
_NOT_SCALARS = frozenset({"step", "total_steps", "samples"})


class TensorBoardFiles:
    """A sink of progress lines: every number of a step, score or reading becomes a scalar."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """``first_step``: what an earlier attempt wrote from there on is not shown any more.

        Raises ``ConfigError`` where the package is missing or the folder cannot be written.
        """
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "tensorboard: the package `tensorboard` is not installed;"
                " pip install 'lowtide[observe]', or leave the option out"
            ) from error
        try:
            self._writer = SummaryWriter(str(folder), purge_step=first_step + 1, flush_secs=30)
        except OSError as error:
            raise ConfigError(f"tensorboard: cannot write to {folder}: {error}") from error

    def tell(self, kind: str, values: dict[str, Any]) -> None:
        """One progress line; kinds without curves are left out."""
        group, step = _KINDS.get(kind), values.get("step")
        if group is None or step is None:
            return
        for name, value in values.items():
            if name not in _NOT_SCALARS and _is_number(value):
                with suppress(OSError):  # a full disk costs points of a chart
                    self._writer.add_scalar(f"{group}/{name}", float(value), step)

    def close(self) -> None:
        """Writes what is not written yet."""
        with suppress(OSError):
            self._writer.close()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
