"""Number formats and kernels: autocast, the gradient scaler, TF32, and what each one needs."""

from __future__ import annotations

import os

import torch

from trainer.training.training_errors import ConfigError

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
# Compute capabilities of NVIDIA GPUs: Ampere is 8.0, Ada 8.9, Hopper 9.0.
_NEEDS = {"tf32": ((8, 0), "Ampere (A100, A10G) or newer"), "fp8": ((8, 9), "L4, H100 or newer")}


def require_precision(precision: str, device: torch.device) -> None:
    """Raises ``ConfigError`` naming the GPU that ``precision`` needs when this one is another."""
    if precision not in _NEEDS:
        return
    capability, needed = _NEEDS[precision]
    if device.type != "cuda":
        found = "there is none here"
    elif torch.cuda.get_device_capability(device) >= capability:
        return
    else:
        found = f"this is a {torch.cuda.get_device_name(device)}"
    raise ConfigError(f"precision: {precision} needs an NVIDIA GPU, {needed}; {found}; use bf16")


def choose_kernels(precision: str, deterministic: bool) -> None:
    """Which kernels PyTorch may use: products of fp32 numbers are rounded to TF32 only if asked
    for (PyTorch would do it in convolutions even for fp32), and ``deterministic`` leaves out those
    that add up in any order. None are tried out for speed: that would choose others each time.
    """
    if deterministic:
        # What cuBLAS needs for it. Source: NVIDIA, cuBLAS library, "Results Reproducibility".
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = False
    allowed = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def autocast_type(precision: str) -> torch.dtype | None:
    """What forward passes run in; None for the weights' own."""
    return _AUTOCAST.get(precision)


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context in which forward passes run; it does nothing for fp32 and tf32."""
    dtype = autocast_type(precision)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def gradient_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Keeps small fp16 gradients from vanishing; for the other precisions it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
