"""The random state of one rank: seeding, and taking it along in a checkpoint.

The order of samples does not depend on it (see ``data.py``); dropout and augmentation do.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_rank(seed: int, step: int, rank: int) -> None:
    """Seeds every generator from (seed, step, rank), so that ranks draw different numbers."""
    words = np.random.SeedSequence([seed, step, rank]).generate_state(3)
    torch.manual_seed(int(words[0]))  # also seeds every CUDA device
    np.random.seed(int(words[1]))
    random.seed(int(words[2]))


def capture(device: torch.device) -> dict[str, Any]:
    """The state of every generator, as plain values and tensors (safe to load)."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "numpy": (str(name), np.asarray(keys).tolist(), int(position), int(has_gauss), cached),
        "python": random.getstate(),
    }


def restore(state: dict[str, Any], device: torch.device) -> None:
    """Puts back what ``capture`` took. CUDA state is left alone where either side has none."""
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    random.setstate(state["python"])
