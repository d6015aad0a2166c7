"""All sections together: one flat ``TrainConfig``, and the table of its options.

The sections of number formats and of checkpoints are here; the others have files of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from trainer.protocol.train_options.data import DataOptions
from trainer.protocol.train_options.observing import ObservingOptions
from trainer.protocol.train_options.optimization import OptimizationOptions
from trainer.protocol.train_options.option import OptionError, option, options_of
from trainer.protocol.train_options.parallel import ParallelOptions
from trainer.protocol.train_options.run import RunOptions
from trainer.protocol.train_options.section import Section

PRECISION_NAMES: Final = ("fp32", "bf16", "fp16", "tf32", "fp8")


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions(Section):
    """Number formats of the passes; weights and optimizer are always fp32."""

    precision: str = option(
        "fp32",
        choices=PRECISION_NAMES,
        about="Number format of the passes; tf32 needs Ampere or newer, fp8 Ada, Hopper or newer",
    )
    deterministic: bool = option(
        False, about="Use only kernels that always give the same bits; slower on a GPU"
    )
    channels_last: str = option(
        "auto", choices=("auto", "on", "off"), about="Images in channels-last order; auto: on a GPU"
    )
    compile: str = option(
        "auto",
        choices=("auto", "on", "off", "max-autotune"),
        about="torch.compile; auto: on a GPU. Compiled code is cached in LOWTIDE_CACHE_DIR",
    )
    activation_checkpointing: bool = option(
        False, about="Recompute activations in the backward pass instead of keeping them"
    )
    on_oom: str = option(
        "fail",
        choices=("fail", "adapt"),
        about="If memory runs out: fail, or continue with smaller parts of the same batch",
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointingOptions(Section):
    """At most one of the two intervals is set."""

    checkpoint_interval_steps: int | None = option(
        None, low=1, high=1_000_000_000, about="Steps between checkpoints, instead of seconds"
    )
    checkpoint_interval_seconds: float | Literal["auto"] | None = option(
        None,
        low=0.1,
        high=86_400,
        in_spec=False,
        about="Seconds between checkpoints; in a job spec: `checkpoint.interval`",
    )
    checkpoint_hazard_per_hour: float | None = option(
        None,
        low=0,
        high=1_000,
        about="Expected losses of the gang's machines per hour, for the automatic interval; not"
        " set: as the control plane says, else one in two hours",
    )
    checkpoint_keep_every: int = option(
        0, low=0, high=1_000_000, about="Besides the newest two, keep every N-th; 0: none"
    )
    checkpoint_keep_best: bool = option(
        False, about="Save at each best validation score and keep the best one"
    )
    checkpoint_may_drop_averages: bool = option(
        False,
        about="If a notice is too short for the upload, leave out the EMA, which then starts anew",
    )

    def check(self) -> None:
        """One rhythm of checkpoints. Raises ``OptionError``."""
        if self.checkpoint_interval_steps and self.checkpoint_interval_seconds is not None:
            raise OptionError(
                "",
                "set at most one of checkpoint_interval_steps and checkpoint_interval_seconds",
            )


# In the order in which the docs show them.
SECTIONS: Final[tuple[type[Section], ...]] = (
    RunOptions,
    DataOptions,
    OptimizationOptions,
    PrecisionOptions,
    ParallelOptions,
    CheckpointingOptions,
    ObservingOptions,
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    # The last base's fields come first.
    ObservingOptions,
    CheckpointingOptions,
    ParallelOptions,
    PrecisionOptions,
    OptimizationOptions,
    DataOptions,
    RunOptions,
):
    """One training run. Sizes are in samples, durations in seconds. Made by ``parse_options``."""

    def check(self) -> None:
        """What options ask of each other, in their section and across. Raises ``OptionError``."""
        for section in SECTIONS:
            section.check(self)

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint of one run to be continued by another."""
        return {
            option.name: getattr(self, option.name) for option in OPTIONS if option.rules.identity
        }


OPTIONS: Final = options_of(TrainConfig)
