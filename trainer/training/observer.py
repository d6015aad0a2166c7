"""Everything that looks at a run from the side, put together: one object beside the loop.

Lives here: when readings, verdicts, ledger lines, traces and TensorBoard files are made. Each part
has a file of its own. Nothing here changes a weight, draws a random number or waits for another
rank, so that an observed run is, bit for bit, the run that it would have been.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.protocol.bottleneck import verdict
from trainer.protocol.run_config import folder_variable
from trainer.protocol.train_options.observing import ObservingOptions
from trainer.training.config import TrainConfig
from trainer.training.data import DataSet
from trainer.training.kernels.flops import mfu, this_gpu, training_flops_of, usd_per_million_samples
from trainer.training.loop.learner import Learner
from trainer.training.reporting.bottleneck_meter import BottleneckMeter
from trainer.training.reporting.gpu_metrics import (
    Numbers,
    ReadingThread,
    allocator_numbers,
    open_readings,
)
from trainer.training.reporting.hazard import told_usd_per_hour
from trainer.training.reporting.place import Place
from trainer.training.reporting.profiling import ProfileWindow
from trainer.training.reporting.progress import ProgressLog, boot_seconds
from trainer.training.reporting.tensorboard_files import TensorBoardFiles

VERDICT_SECONDS = 60.0
GOODPUT_SECONDS = 60.0
# From less nothing is concluded: one checkpoint or one slow read would be the whole answer.
VERDICT_STEPS_LEAST = 50
VERDICT_SECONDS_LEAST = 2.0
# In less than this a single save may be all there is to see of saving.
CHECKPOINT_VERDICT_SECONDS_LEAST = 60.0
# What each line of a step repeats of the newest reading, so that no chart has holes.
_ON_EVERY_STEP = ("gpu_utilization", "gpu_memory_used_mb")


@dataclass(frozen=True)
class Observed:
    """What is known of the run: ``folder`` is that of the checkpoints, ``batch_size`` is global.

    ``count_flops`` is asked once and only on a GPU that is known: operations to train on one
    sample, or None.
    """

    folder: Path
    device: torch.device
    ranks: int
    batch_size: int
    first_step: int
    count_flops: Callable[[], float | None]


class Observer:
    """Call ``before_step`` and ``after_step`` around each step, and ``close`` once at the end.

    Only where all lines are written (rank 0) does it do anything.
    """

    def __init__(
        self,
        options: ObservingOptions,
        run: Observed,
        progress: ProgressLog,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ``ConfigError`` when an option cannot be obeyed on this machine."""
        self._run = run
        self._progress = progress
        self._active = progress.is_told
        self._first_step = run.first_step
        self._variables = variables
        self._usd_per_hour = usd_per_hour(variables)
        self._reading: Numbers = {}
        self._busy: list[float] = []
        self._window = BottleneckMeter(progress.ledger)
        self._window_step = run.first_step
        self._verdict_due_at = self._goodput_due_at = boot_seconds() + VERDICT_SECONDS
        self._profile: ProfileWindow | None = None
        self._files: TensorBoardFiles | None = None
        self._thread: ReadingThread | None = None
        self._gpu = this_gpu(run.device) if self._active else None
        self._flops = run.count_flops() if self._gpu is not None else None
        if self._active:
            self._start(options)

    def before_step(self, finished: int) -> None:
        """``finished`` steps are done and the next one begins."""
        if self._profile is not None:
            self._profile.before_step(finished)

    def after_step(self, finished: int) -> None:
        """The step that makes ``finished`` is done and its line is written."""
        if not self._active:
            return
        if self._profile is not None:
            self._profile.after_step(finished)
        now = boot_seconds()
        if now >= self._verdict_due_at:
            self._write_verdict(finished)
            self._verdict_due_at = now + VERDICT_SECONDS
        if now >= self._goodput_due_at:
            self._progress.write_goodput(finished, final=False)
            self._usd_per_hour = usd_per_hour(self._variables)
            self._goodput_due_at = now + GOODPUT_SECONDS

    def step_numbers(self, seconds: float) -> Numbers:
        """Further numbers for the line of a step that took ``seconds``."""
        numbers = {name: self._reading[name] for name in _ON_EVERY_STEP if name in self._reading}
        if not self._active or seconds <= 0:
            return numbers
        per_second = self._run.batch_size / seconds
        if self._gpu is not None and self._flops is not None:
            numbers["mfu"] = mfu(self._flops, per_second, self._run.ranks, self._gpu)
        if self._usd_per_hour is not None:
            numbers["usd_per_million_samples"] = usd_per_million_samples(
                self._usd_per_hour, per_second
            )
        return numbers

    def close(self, finished: int) -> None:
        """The last verdict, the open trace; ends the thread and the files."""
        if not self._active:
            return
        self._active = False
        if self._profile is not None:
            self._profile.close(finished)
        self._write_verdict(finished)
        if self._thread is not None:
            self._thread.close()
        if self._files is not None:
            self._files.close()

    def _start(self, options: ObservingOptions) -> None:
        if options.tensorboard is not None:
            auto = options.tensorboard == "auto"
            folder = self._folder("tensorboard") if auto else Path(options.tensorboard)
            self._files = TensorBoardFiles(folder, self._first_step)
            self._progress.also_tell(self._files.tell)
        if options.profile_steps is not None:
            first, last = options.profile_steps
            self._profile = ProfileWindow(first, last, self._folder("profiles"), self._progress)
        readings = open_readings(self._run.device)
        if readings is not None and options.gpu_readings_seconds > 0:
            device = self._run.device

            def read() -> Numbers:
                return {**readings.read(), **allocator_numbers(torch.cuda.memory_stats(device))}

            self._thread = ReadingThread(read, self.tell_reading, options.gpu_readings_seconds)

    def _folder(self, name: str) -> Path:
        """The job's output of that name, which outlives the machine; or beside the checkpoints."""
        variables = os.environ if self._variables is None else self._variables
        output = variables.get(folder_variable("OUTPUT", name))
        return Path(output) if output else self._run.folder.parent / name

    def tell_reading(self, reading: Numbers) -> None:
        """Takes in a reading of the GPU; called by the thread that makes them."""
        self._reading = reading
        if "gpu_utilization" in reading:
            self._busy.append(reading["gpu_utilization"])
        # Before the first step a line with a step would say that training has begun.
        if self._progress.step > 0:
            self._progress.write("gpu", step=self._progress.step, **reading)

    def _write_verdict(self, step: int) -> None:
        """Nothing where it is too early to say: the window then goes on."""
        busy, seconds = self._busy, self._window.seconds()
        shares = self._window.shares(sum(busy) / len(busy) if busy else None, self._run.ranks)
        steps = step - self._window_step
        if shares is None or steps < VERDICT_STEPS_LEAST or seconds < VERDICT_SECONDS_LEAST:
            return
        found = verdict(shares)
        if found.bound == "checkpoint" and seconds < CHECKPOINT_VERDICT_SECONDS_LEAST:
            return
        self._busy, self._window_step = [], step
        self._window.restart()
        self._progress.write(
            "verdict",
            step=step,
            bound=found.bound,
            sentence=found.sentence,
            **shares.metrics(),
        )


def observe(
    config: TrainConfig,
    checkpoint_dir: Path,
    learner: Learner,
    data: DataSet,
    place: Place,
    progress: ProgressLog,
) -> Observer:
    """The observer of a run that is ready to train the step after ``place``."""

    def count_flops() -> float | None:
        return training_flops_of(config, learner.model, data.shape, data.classes)

    observed = Observed(
        folder=checkpoint_dir,
        device=learner.gang.device,
        ranks=learner.gang.world_size,
        batch_size=config.batch_size,
        first_step=place.step,
        count_flops=count_flops,
    )
    return Observer(config, observed, progress)


def usd_per_hour(variables: Mapping[str, str] | None = None) -> float | None:
    """Of all machines of the gang, now; None when it was not told.

    The file of LOWTIDE_HAZARD_FILE is newer than LOWTIDE_PRICE_PER_HOUR_USD, which was told at the
    start; where the job sets that variable itself the agent writes no price into the file.
    """
    told = os.environ if variables is None else variables
    price = told_usd_per_hour(told)
    try:
        price = float(told.get("LOWTIDE_PRICE_PER_HOUR_USD", "")) if price is None else price
    except ValueError:
        return None
    return price if 0 < price < 1e6 else None
