"""Options of what a run measures and writes besides its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainer.protocol.train_options.option import OptionError, option
from trainer.protocol.train_options.section import Section

PROFILED_STEPS_MOST = 50


@dataclass(frozen=True, kw_only=True)
class ObservingOptions(Section):
    """What a run measures and writes besides the progress file."""

    tensorboard: str | Literal["auto"] | None = option(
        None,
        how="a folder",
        about="Write TensorBoard files; `auto`: to the job's output `tensorboard`, else next to the"
        " checkpoints",
    )
    profile_steps: tuple[int, ...] | None = option(
        None,
        low=1,
        high=1_000_000_000,
        length=2,
        about="First and last step to record with the PyTorch profiler",
    )
    gpu_readings_seconds: float = option(
        5.0, low=0, high=3_600, about="Seconds between readings of the GPUs; 0: none"
    )

    def check(self) -> None:
        """A window of steps that a trace can hold. Raises ``OptionError``."""
        if self.profile_steps is None:
            return
        first, last = self.profile_steps
        if last < first:
            raise OptionError("profile_steps", f"the last step, {last}, is before {first}")
        if last - first >= PROFILED_STEPS_MOST:
            raise OptionError(
                "profile_steps", f"at most {PROFILED_STEPS_MOST} steps fit a trace; choose fewer"
            )
