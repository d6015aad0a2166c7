"""Options of number formats, memory and compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainer.protocol.train_options.option import option
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
