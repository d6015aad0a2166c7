"""All sections together: one flat ``TrainConfig``, and the table of its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from trainer.protocol.train_options.checkpointing import CheckpointingOptions
from trainer.protocol.train_options.data import DataOptions
from trainer.protocol.train_options.observing import ObservingOptions
from trainer.protocol.train_options.optimization import OptimizationOptions
from trainer.protocol.train_options.option import options_of
from trainer.protocol.train_options.parallel import ParallelOptions
from trainer.protocol.train_options.precision import PrecisionOptions
from trainer.protocol.train_options.run import RunOptions
from trainer.protocol.train_options.section import Section

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
