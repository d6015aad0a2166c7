"""A window of steps under the PyTorch profiler: a trace to look at, and the dearest operators.

Beside the checkpoints, in ``profiles/``::

    steps-100-104-rank0.json   for chrome://tracing or ui.perfetto.dev
    steps-100-104-rank0.txt    the operators that took longest

Only rank 0 profiles: a trace costs memory and time, and the ranks do the same work.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.training.reporting.progress import ProgressLog

if TYPE_CHECKING:
    import torch.profiler

TOP_OPERATORS = 25


class ProfileWindow:
    """Records the steps ``first`` to ``last``, both included, counted as finished steps are."""

    def __init__(self, first: int, last: int, folder: Path, progress: ProgressLog) -> None:
        self._first = first
        self._last = last
        self._folder = folder
        self._progress = progress
        self._profiler: torch.profiler.profile | None = None

    def before_step(self, finished: int) -> None:
        """Starts recording when the step after ``finished`` belongs to the window."""
        if self._profiler is None and self._first <= finished + 1 <= self._last:
            import torch.profiler

            self._profiler = torch.profiler.profile(record_shapes=True, acc_events=True)
            self._first = finished + 1
            self._profiler.start()

    def after_step(self, finished: int) -> None:
        """Writes the trace once the window's last step is done."""
        if self._profiler is not None and finished >= self._last:
            self.close(finished)

    def close(self, finished: int) -> None:
        """Ends a window that is open, however far it came, and writes what there is."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        self._last = -1
        name = f"steps-{self._first}-{finished}-rank0"
        trace, table = self._folder / f"{name}.json", self._folder / f"{name}.txt"
        temporary = trace.with_name(f"{name}.tmp-{os.getpid()}.json")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(temporary))
            temporary.replace(trace)
            table.write_text(_top_operators(profiler))
        except (OSError, RuntimeError) as error:
            # A trace is worth less than the run: say so and train on.
            self._progress.write("profile", step=finished, error=f"cannot be written: {error}")
            return
        self._progress.write(
            "profile", step=finished, first_step=self._first, trace=str(trace), table=str(table)
        )


def _top_operators(profiler: torch.profiler.profile) -> str:
    averages = profiler.key_averages()
    device = any(event.device_time_total > 0 for event in averages)
    order = "self_device_time_total" if device else "self_cpu_time_total"
    return str(averages.table(sort_by=order, row_limit=TOP_OPERATORS)) + "\n"
