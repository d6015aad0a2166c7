"""Options of the run itself: what is trained, how long, in which steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer.protocol.train_options.option import OptionError, Plain, option
from trainer.protocol.train_options.section import Section

MODEL_NAMES: Final = (
    "cnn",
    "mlp",
    "resnet18",
    "resnet50",
    "resnet152",
    "vit_small",
    "vit_base",
    "gpt_tiny",
    "gpt_small",
)
DATA_NAMES: Final = ("digits", "synthetic")
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class RunOptions(Section):
    """Exactly one of ``epochs`` and ``steps`` is set."""

    model: str = option(
        choices=MODEL_NAMES,
        pattern=r"[A-Za-z_][\w.]{0,254}:[A-Za-z0-9_][\w./-]{0,254}",
        how="module:factory, timm:NAME or torchvision:NAME",
        about="The model to train: docs/models.md",
        identity=True,
    )
    model_options: Mapping[str, Plain] = option(
        factory=dict, identity=True, about="Further arguments of the model, by name"
    )
    data: str = option(
        choices=DATA_NAMES,
        pattern=r"(?:s3|gs)://[a-z0-9][a-z0-9._-]{1,221}(?:/[^\s?#]*)?|(?!\w+:).*/.*",
        how="a path with a / in it, s3://bucket/path or gs://bucket/path",
        about="The data to train on: docs/data.md",
        identity=True,
    )
    epochs: int | None = option(
        None, low=1, high=_MILLION, about="Length of the run in passes over the training data"
    )
    steps: int | None = option(
        None, low=1, high=_BILLION, about="Length of the run in optimizer steps, instead of epochs"
    )
    batch_size: int = option(
        64, low=1, high=_MILLION, identity=True, about="Samples per step, over all machines"
    )
    accumulation: int = option(
        1, low=1, high=10_000, about="Parts in which a rank computes its share of the batch"
    )
    seed: int = option(
        0,
        low=0,
        high=2**32 - 1,
        identity=True,
        about="Of the weights, the order of samples and dropout",
    )
    eval_every_epochs: int = option(
        1, low=0, high=_MILLION, about="Epochs between evaluations; 0: only at the end"
    )
    step_delay_seconds: float = option(
        0.0, low=0, high=60, about="Pause after every step, for experiments"
    )

    def total_steps(self, train_samples: int) -> int:
        """Number of optimizer steps of the whole run over ``train_samples`` samples an epoch."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return math.ceil(self.epochs * train_samples / self.batch_size)

    def check(self) -> None:
        """One length; a batch that can be cut into its parts. Raises ``OptionError``."""
        if (self.epochs is None) == (self.steps is None):
            raise OptionError("", "set exactly one of epochs and steps")
        if self.accumulation > self.batch_size:
            raise OptionError(
                "accumulation",
                f"{self.accumulation} parts cannot be cut from a batch_size of {self.batch_size}",
            )
