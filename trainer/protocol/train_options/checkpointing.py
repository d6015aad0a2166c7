"""Options of when and how checkpoints are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainer.protocol.train_options.option import OptionError, option
from trainer.protocol.train_options.section import Section


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
