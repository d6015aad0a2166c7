"""Options of number formats, memory and compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainer.protocol.train_options.option import option
from trainer.protocol.train_options.section import Section

PRECISION_NAMES: Final = ("fp32", "bf16", "fp16", "tf32", "fp8")


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions(Section):
    """In which numbers the passes run; weights and optimizer are fp32 always."""

    precision: str = option(
        "fp32",
        choices=PRECISION_NAMES,
        about="Numbers of the passes; tf32 needs Ampere or newer, fp8 Ada, Hopper or newer",
    )
    deterministic: bool = option(
        False, about="Only kernels that give the same bits every time; slower on a GPU"
    )
    channels_last: str = option(
        "auto", choices=("auto", "on", "off"), about="Order of images in memory; auto: on a GPU"
    )
    compile: str = option(
        "auto",
        choices=("auto", "on", "off", "max-autotune"),
        about="torch.compile; auto: on a GPU. Compiled code is kept in LOWTIDE_CACHE_DIR",
    )
    activation_checkpointing: bool = option(
        False, about="Compute activations twice instead of keeping them"
    )
    on_oom: str = option(
        "fail",
        choices=("fail", "adapt"),
        about="Out of memory: fail, or go on with smaller parts of the same batch",
    )
