"""The data that needs no files: scikit-learn's digits, and synthetic samples of any size."""

from __future__ import annotations

import functools
import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.protocol.train_options.data import DIGITS_CLASSES, DIGITS_SHAPE, DataOptions
from trainer.training.data.loading.data_parts import Array, DataSet, short_digest, split_parts
from trainer.training.data.loading.order import Indices
from trainer.training.training_errors import ConfigError

# Of 256: how much of a synthetic image is its class's pattern; the rest is noise of its own.
PATTERN_SHARE = 96
_SALT = 20_260


@dataclass(frozen=True)
class HeldImages:
    """Images in memory or mapped: (samples, channels, height, width) and (samples,) labels."""

    images: Array
    labels: npt.NDArray[np.int64]
    source: str

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> tuple[Array, Any]:
        """As ``Part.read``."""
        return np.array(self.images[index]), int(self.labels[index])

    def read_many(self, ids: Indices) -> tuple[Array, Array] | None:
        """As ``Part.read_many``."""
        return self.images[ids], self.labels[ids]

    def name(self, index: int) -> str:
        """As ``Part.name``."""
        return f"{self.source}[{index}]"


def digits(options: DataOptions, seed: int) -> DataSet:
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
    images = ((table[:, :-1].reshape(-1, *DIGITS_SHAPE) / 16.0 - 0.3) / 0.38).astype(np.float32)
    whole = HeldImages(images, table[:, -1].astype(np.int64), "digits")
    train, validation, test = split_parts(whole, options.split, seed)
    return DataSet(
        kind="images",
        train=train,
        validation=validation,
        test=test,
        shape=DIGITS_SHAPE,
        classes=DIGITS_CLASSES,
        class_names=tuple(str(digit) for digit in range(DIGITS_CLASSES)),
        digest=short_digest("digits"),
        in_memory=True,
    )


@dataclass(frozen=True)
class SyntheticImages:
    """Noisy images of bytes, each class around a pattern of its own, so that they can be learned.

    Made when they are read: nothing is held but the patterns.
    """

    samples: int
    classes: int
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.samples

    def read(self, index: int) -> tuple[Array, Any]:
        """As ``Part.read``."""
        label = index % self.classes
        noise = _random_bytes(index, self.shape).astype(np.uint16)
        mixed = _pattern(label, self.shape) * PATTERN_SHARE + noise * (256 - PATTERN_SHARE)
        return (mixed >> 8).astype(np.uint8), label

    def read_many(self, ids: Indices) -> tuple[Array, Array] | None:
        """As ``Part.read_many``."""
        return None

    def name(self, index: int) -> str:
        """As ``Part.name``."""
        return f"synthetic[{index}]"


@dataclass(frozen=True)
class SyntheticTokens:
    """Windows in which each token decides the next one, up to a little noise."""

    samples: int
    vocabulary: int
    length: int

    def __len__(self) -> int:
        return self.samples

    def read(self, index: int) -> tuple[Array, Any]:
        """As ``Part.read``."""
        noise = _random_bytes(index, (self.length + 1,)) < 16
        steps = np.where(noise, 7, 1).cumsum()
        window = (index + steps) % self.vocabulary
        return window[:-1].astype(np.int64), window[1:].astype(np.int64)

    def read_many(self, ids: Indices) -> tuple[Array, Array] | None:
        """As ``Part.read_many``."""
        return None

    def name(self, index: int) -> str:
        """As ``Part.name``."""
        return f"synthetic[{index}]"


def synthetic(options: DataOptions, seed: int) -> DataSet:
    """Samples of the size that the options ask for."""
    samples, classes = options.synthetic_samples, options.synthetic_classes
    shape = options.synthetic_shape
    tokens = len(shape) == 1
    whole: SyntheticImages | SyntheticTokens
    if tokens:
        whole = SyntheticTokens(samples, classes, shape[0])
    else:
        if options.image_size is not None:
            shape = (shape[0], options.image_size, options.image_size)
        whole = SyntheticImages(samples, classes, shape)
    train, validation, test = split_parts(whole, options.split, seed)
    return DataSet(
        kind="tokens" if tokens else "images",
        train=train,
        validation=validation,
        test=test,
        shape=shape,
        classes=classes,
        digest=short_digest("synthetic", repr((samples, classes, shape))),
        in_memory=True,
    )


@functools.lru_cache(maxsize=1024)
def _pattern(label: int, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
    return _random_bytes(2**40 + label, shape).astype(np.uint16)


def _random_bytes(key: int, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Bytes from the raw stream of Philox, which numpy does not change between versions."""
    count = int(np.prod(shape))
    words = np.random.Philox(key=key, counter=_SALT).random_raw((count + 7) // 8)
    return words.view(np.uint8)[:count].reshape(shape)
