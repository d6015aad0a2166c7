"""The machine's randomness behind the entropy port.

Not here: derived secrets (`deployment.credentials`), or a replayable source (the simulator's).
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from uuid import UUID

from app.adapters.seeded_draws import seeded_draws

_TOKEN_BYTES = 32
_FLOAT_BITS = 53
_NS_PER_MS = 1_000_000
_FRACTION_BITS = 12
_RANDOM_BITS = 62
_VERSION, _VARIANT = 0x7, 0b10


class SystemEntropy:
    """Implements `app.ports.entropy.Entropy`; safe to share between threads."""

    def __init__(self, read_wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._read_wall_ns = read_wall_ns
        self._lock = threading.Lock()
        self._last_tick = 0

    def new_id(self) -> UUID:
        """A UUIDv7 above every one this object gave before, whatever the clock does.

        RFC 9562, section 6.2, method 3: the 12 bits after the milliseconds hold their fraction
        (1/4096 ms), and a tick that would repeat or go back becomes the one after the last.
        """
        milliseconds, rest_ns = divmod(self._read_wall_ns(), _NS_PER_MS)
        fraction = (rest_ns << _FRACTION_BITS) // _NS_PER_MS
        with self._lock:
            tick = max((milliseconds << _FRACTION_BITS) | fraction, self._last_tick + 1)
            self._last_tick = tick
        random_bits = int.from_bytes(os.urandom(8)) >> (64 - _RANDOM_BITS)
        milliseconds, fraction = tick >> _FRACTION_BITS, tick & ((1 << _FRACTION_BITS) - 1)
        return UUID(
            int=milliseconds << 80
            | _VERSION << 76
            | fraction << 64
            | _VARIANT << _RANDOM_BITS
            | random_bits
        )

    def new_token(self) -> str:
        """256 random bits, URL-safe."""
        return secrets.token_urlsafe(_TOKEN_BYTES)

    def uniform(self) -> float:
        """A float in [0, 1)."""
        return float(secrets.randbits(_FLOAT_BITS)) / (1 << _FLOAT_BITS)

    def replayable(self, seed: int) -> Callable[[], float]:
        """Floats in [0, 1), the same ones for the same seed."""
        return seeded_draws(seed)
