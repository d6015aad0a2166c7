"""What every kind of data looks like to the rest: parts of samples, three of which make a set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from trainer.training.data.loading.order import Indices
from trainer.training.training_errors import DataError

PART_NAMES = ("train", "validation", "test")
Array = npt.NDArray[Any]


class BadSampleError(Exception):
    """One sample cannot be read; the message names its file and what is wrong."""


class Part(Protocol):
    """Samples by number. Reading is pure: the same number gives the same sample, in any process."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> tuple[Array, Any]:
        """The sample and its label: an image (channels, height, width), uint8 or float32, and an
        ``int``; or a window of tokens (length,) and the tokens that follow, both int64.

        Raises ``BadSampleError``.
        """
        ...

    def read_many(self, ids: Indices) -> tuple[Array, Array] | None:
        """Many samples of one shape stacked, and their labels, where that is quicker than one by
        one; else None. Raises ``BadSampleError`` if one of them is bad.
        """
        ...

    def name(self, index: int) -> str:
        """Where the sample is kept, for messages."""
        ...


@runtime_checkable
class EncodedPart(Protocol):
    """A part whose samples are image files, which somebody else may decode."""

    def encoded(self, index: int) -> tuple[bytes, int]:
        """The file and its label. Raises ``BadSampleError``."""
        ...


@dataclass(frozen=True)
class SubPart:
    """The samples ``ids`` of another part."""

    whole: Part
    ids: Indices

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, index: int) -> tuple[Array, Any]:
        """As ``Part.read``."""
        return self.whole.read(int(self.ids[index]))

    def read_many(self, ids: Indices) -> tuple[Array, Array] | None:
        """As ``Part.read_many``."""
        return self.whole.read_many(self.ids[ids])

    def encoded(self, index: int) -> tuple[bytes, int]:
        """As ``EncodedPart.encoded``, where the whole part is one."""
        assert isinstance(self.whole, EncodedPart)
        return self.whole.encoded(int(self.ids[index]))

    def name(self, index: int) -> str:
        """As ``Part.name``."""
        return self.whole.name(int(self.ids[index]))


@dataclass(frozen=True)
class DataSet:
    """Three parts and what a model must know of them.

    shape: what the model gets of one sample: (channels, height, width), or (tokens,).
    classes: number of classes, or of tokens in the vocabulary.
    class_names: "" where the data has none; as many as classes for images.
    photos: the images are files of any size, for which crops and flips are usual.
    digest: 16 hex digits that change when other samples would be read under the same numbers.
    in_memory: reading costs so little that worker processes would only add to it.
    remote: samples are read from a bucket, which may fall silent.
    """

    kind: Literal["images", "tokens"]
    train: Part
    validation: Part
    test: Part
    shape: tuple[int, ...]
    classes: int
    class_names: tuple[str, ...] = ()
    photos: bool = False
    digest: str = ""
    in_memory: bool = False
    remote: bool = False

    def part(self, name: str) -> Part:
        """One of ``PART_NAMES``."""
        found: Part = getattr(self, name)
        return found


def split_parts(whole: Part, shares: tuple[int, ...], seed: int) -> tuple[Part, Part, Part]:
    """Train, validation and test by ``shares``, drawn by the seed.

    A permutation cut in three: every sample is in exactly one part, whatever the shares.
    """
    # An epoch number that training never reaches, so that the split is independent of the order.
    order = np.random.RandomState([seed, 2**32 - 1]).permutation(len(whole)).astype(np.int64)
    total = sum(shares)
    first = len(whole) * shares[0] // total
    second = len(whole) * (shares[0] + shares[1]) // total
    return tuple(  # type: ignore[return-value]
        SubPart(whole, ids) for ids in np.split(order, [first, second])
    )


def require_samples(data: DataSet, source: str) -> DataSet:
    """Returns ``data``. Raises ``DataError`` when there is nothing to train on."""
    if len(data.train) == 0:
        raise DataError(f"data: {source} has no sample to train on")
    return data


def short_digest(*texts: str) -> str:
    """16 hex digits over the texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
