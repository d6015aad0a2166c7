"""The order in which the training samples are seen: a pure function of (seed, epoch, index).

It knows nothing of ranks, so a run can be continued at any step, by any number of ranks, without
reading what came before.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class SampleOrder:
    """The endless sequence of training samples: one shuffled epoch after the other.

    Batches follow each other without a gap, across epochs too, so each epoch holds every sample
    exactly once and no batch is short.
    """

    def __init__(self, seed: int, samples: int, batch_size: int) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self._shuffled = functools.lru_cache(maxsize=2)(
            functools.partial(shuffled_epoch, seed, samples)
        )

    def batch(self, step: int) -> Indices:
        """The ``batch_size`` sample numbers of the batch that follows ``step`` finished steps."""
        first, last = step * self.batch_size, (step + 1) * self.batch_size
        pieces = []
        while first < last:
            epoch, place = divmod(first, self.samples)
            piece = self._shuffled(epoch)[place : place + last - first]
            pieces.append(piece)
            first += len(piece)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def epochs(self, step: int) -> Indices:
        """The epoch of each of the samples of ``batch(step)``."""
        first = step * self.batch_size
        if first // self.samples == (first + self.batch_size - 1) // self.samples:
            return np.full(self.batch_size, first // self.samples)
        return np.arange(first, first + self.batch_size) // self.samples

    def finished_epochs(self, step: int) -> int:
        """How many whole epochs ``step`` finished steps have seen."""
        return step * self.batch_size // self.samples


def shuffled_epoch(seed: int, samples: int, epoch: int) -> Indices:
    """A permutation of ``range(samples)``, a pure function of its arguments.

    RandomState because numpy promises never to change its stream, so the order survives an upgrade
    of the image in the middle of a job.
    """
    order: Indices = np.random.RandomState([seed, epoch]).permutation(samples).astype(np.int64)
    return order
