"""The random state of one rank: seeding, and taking it along in a checkpoint.

The order of samples and their augmentation do not depend on it (see ``data``); dropout does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def seed_rank(seed: int, step: int, rank: int) -> None:
    """Seeds every generator from (seed, step, rank), so that ranks draw different numbers."""
    words = np.random.SeedSequence([seed, step, rank]).generate_state(3)
    torch.manual_seed(int(words[0]))  # also seeds every CUDA device
    np.random.seed(int(words[1]))
    random.seed(int(words[2]))


def capture(device: torch.device) -> dict[str, Tensor]:
    """The state of every generator, as tensors whose sizes never change."""
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    _, words, gauss = random.getstate()
    state = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "numpy_place": torch.tensor([position, has_gauss, cached], dtype=torch.float64),
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor(math.nan if gauss is None else gauss, dtype=torch.float64),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Puts back what ``capture`` took. CUDA state is left alone where either side has none."""
    torch.set_rng_state(state["torch"].clone())
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].clone(), device)
    position, has_gauss, cached = state["numpy_place"].tolist()
    keys = state["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, int(position), int(has_gauss), cached))
    gauss = state["python_gauss"].item()
    words = tuple(state["python"].tolist())
    random.setstate((3, words, None if math.isnan(gauss) else gauss))
