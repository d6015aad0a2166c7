"""Every id, token and throw of dice of a simulation, from one seed.

Each named stream is independent of the others, so that a fault that throws more dice does not
change what the market does. Not here: what the dice decide.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from app.adapters.seeded_draws import seeded_draws
from app.simulation.engine.virtual_clock import VirtualClock

T = TypeVar("T")

_MILLISECOND_US = 1_000


class Dice:
    """One stream of chance, named; equal seeds and names give equal throws on any machine."""

    def __init__(self, seed: int, name: str) -> None:
        key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        self._random = random.Random(int.from_bytes(key, "big"))

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A float in [low, high)."""
        return low + (high - low) * self._random.random()

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return low + int(self._random.random() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, which are in an order of their own."""
        return options[int(self._random.random() * len(options))]

    def bits(self, count: int) -> int:
        """So many random bits."""
        return self._random.getrandbits(count)

    def waiting_seconds(self, mean_seconds: float) -> float:
        """Exponential waiting time to the next event of a steady hazard."""
        return self._random.expovariate(1.0 / mean_seconds)


class SeededEntropy:
    """Implements `app.ports.entropy.Entropy`: UUIDv7 from virtual time and seeded bits."""

    def __init__(self, seed: int, clock: VirtualClock) -> None:
        self.seed = seed
        self._clock = clock
        self._dice = Dice(seed, "entropy")
        self._last_ms = 0
        self._within_ms = 0

    def stream(self, name: str) -> Dice:
        """Dice of their own for one part of the world."""
        return Dice(self.seed, name)

    def new_id(self) -> UUID:
        """A UUIDv7: sorts by creation time, also within one millisecond (RFC 9562, 6.2)."""
        now_ms = max(self._clock.true_us // _MILLISECOND_US, self._last_ms)
        self._within_ms = self._within_ms + 1 if now_ms == self._last_ms else 0
        self._last_ms = now_ms
        value = (now_ms & 0xFFFFFFFFFFFF) << 80
        value |= 0x7 << 76 | (self._within_ms & 0xFFF) << 64
        value |= 0b10 << 62 | self._dice.bits(62)
        return UUID(int=value)

    def new_token(self) -> str:
        """256 seeded bits, hex."""
        return f"{self._dice.bits(256):064x}"

    def uniform(self) -> float:
        """A float in [0, 1)."""
        return self._dice.uniform()

    def replayable(self, seed: int) -> Callable[[], float]:
        """Floats in [0, 1), the same ones for the same seed."""
        return seeded_draws(seed)
