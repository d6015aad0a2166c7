"""The data sets one can name in a configuration, and the order in which samples are seen.

A data set is small enough to be held in memory by every rank. The order is a pure function of
(seed, epoch, index): it knows nothing of ranks, so a run can be continued at any step, by any
number of ranks, without reading what came before.
"""

from __future__ import annotations

import functools
import gzip
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.training.errors import ConfigError

Indices = npt.NDArray[np.int64]
SYNTHETIC_SAMPLES = 1280
SYNTHETIC_SHAPE = (3, 32, 32)
CLASSES = 10


@dataclass(frozen=True)
class Part:
    """``images`` (samples, channels, height, width) float32; ``labels`` (samples,) int64."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """The three parts of a data set, split 7 : 2 : 1 by the run's seed."""

    train: Part
    validation: Part
    test: Part
    classes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""
        _, channels, height, width = self.train.images.shape
        return channels, height, width


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
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs = places // self.samples
        return np.concatenate(
            [
                self._shuffled(int(epoch))[places[epochs == epoch] % self.samples]
                for epoch in np.unique(epochs)
            ]
        )

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


def load_data(name: str, seed: int) -> DataSet:
    """Loads a data set by name. Raises ``ConfigError`` when its files are not there."""
    images, labels = DATA_SETS[name]()
    # An epoch number that training never reaches, so that the split is independent of the order.
    order = np.random.RandomState([seed, 2**32 - 1]).permutation(len(labels))
    images, labels = images[order], labels[order]
    first, second = len(labels) * 7 // 10, len(labels) * 9 // 10
    return DataSet(
        train=Part(images[:first], labels[:first]),
        validation=Part(images[first:second], labels[first:second]),
        test=Part(images[second:], labels[second:]),
        classes=CLASSES,
    )


def read_digits() -> tuple[Any, Any]:
    """1,797 handwritten digits of 8 x 8 pixels, as bundled with scikit-learn (UCI, 1998).

    The file is read without importing scikit-learn, which would add a second to every start.
    """
    package = importlib.util.find_spec("sklearn")
    folders = package.submodule_search_locations if package else None
    if not folders:
        raise ConfigError("data: digits needs scikit-learn; install it on the training machine")
    path = Path(folders[0]) / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(f"data: digits cannot be read from {path}: {error}") from error
    images = (table[:, :64].reshape(-1, 1, 8, 8) / 16.0 - 0.3) / 0.38
    return images.astype(np.float32), table[:, 64].astype(np.int64)


def make_synthetic() -> tuple[Any, Any]:
    """1,280 noisy 32 x 32 colour images, each class around a pattern of its own: learnable."""
    generator = np.random.RandomState(20_260)
    patterns = generator.standard_normal((CLASSES, *SYNTHETIC_SHAPE))
    labels = np.arange(SYNTHETIC_SAMPLES, dtype=np.int64) % CLASSES
    noise = generator.standard_normal((SYNTHETIC_SAMPLES, *SYNTHETIC_SHAPE))
    return (0.5 * patterns[labels] + noise).astype(np.float32), labels


DATA_SETS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "digits": read_digits,
    "synthetic": make_synthetic,
}
