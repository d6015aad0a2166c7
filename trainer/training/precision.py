"""fp32, bf16 and fp16: the autocast context and the gradient scaler of each."""

from __future__ import annotations

import torch

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context in which forward passes run; it does nothing for fp32."""
    dtype = _AUTOCAST.get(precision)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def gradient_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Keeps small fp16 gradients from vanishing; for the other precisions it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
