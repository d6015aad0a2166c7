"""Dice that a seed replays, for simulated runs. Not here: anything that must not be guessed
(`system_entropy`).
"""

from __future__ import annotations

import random
from collections.abc import Callable


def seeded_draws(seed: int) -> Callable[[], float]:
    """Uniform floats in [0, 1), the same ones for the same seed (Mersenne Twister)."""
    return random.Random(seed).random
