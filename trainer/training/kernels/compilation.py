"""torch.compile, and where its compiled code is kept: every restart would pay for it again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.training.config import TrainConfig

# A cache larger than this stays on the machine instead of travelling in every checkpoint.
CACHE_BYTES_MOST = 64 << 20


def is_compiled(config: TrainConfig, device: torch.device) -> bool:
    """`auto` is on where a GPU makes it worth the wait."""
    return config.compile in ("on", "max-autotune") or (
        config.compile == "auto" and device.type == "cuda"
    )


def keep_compiled_code(checkpoint_dir: Path) -> None:
    """Names the folder of compiled code to inductor and Triton, in this process's environment.

    LOWTIDE_CACHE_DIR, else beside the checkpoints. A folder that is already named is left alone.
    """
    told = os.environ.get("LOWTIDE_CACHE_DIR")
    folder = Path(told) if told else checkpoint_dir.parent / "compiled-code"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))


def compiled(call: Callable[..., Any], config: TrainConfig) -> Callable[..., Any]:
    """``call``, compiled at its first use."""
    # Batches at the end of a part are shorter: better one more code than one for any size.
    mode = "max-autotune-no-cudagraphs" if config.compile == "max-autotune" else None
    return torch.compile(call, mode=mode, dynamic=False)


def compiled_code() -> Tensor | None:
    """What was compiled in this process, to be saved with a checkpoint; None if nothing is worth
    it. One axis of bytes, on the CPU.
    """
    saved = torch.compiler.save_cache_artifacts()
    if saved is None or not 0 < len(saved[0]) <= CACHE_BYTES_MOST:
        return None
    return torch.frombuffer(bytearray(saved[0]), dtype=torch.uint8)


def load_compiled_code(code: Tensor) -> None:
    """Puts it where the compiler looks first. Code of another torch or GPU is never found there."""
    torch.compiler.load_cache_artifacts(code.cpu().numpy().tobytes())
