"""Random numbers of a sample: a pure function of (seed, epoch, sample number), for many at once.

Not a generator with a state: nothing has to be saved, and no worker or rank can draw another's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.training.data.loading.order import Indices

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def uniforms(seed: int, epochs: Indices, ids: Indices, count: int) -> npt.NDArray[np.float64]:
    """(samples, count) numbers in [0, 1).

    The finaliser of SplitMix64 over the key's parts and a counter. Source: Steele, Lea and Flood,
    Fast Splittable Pseudorandom Number Generators (2014), figure 17, with Stafford's variant 13.
    """
    key = _mixed(np.full(len(ids), seed, np.uint64))
    key = _mixed(key ^ epochs.astype(np.uint64))
    key = _mixed(key ^ ids.astype(np.uint64))
    counters = np.arange(1, count + 1, dtype=np.uint64)
    words = _mixed(key[:, None] + counters[None] * _STEP)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = words + _STEP
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))
