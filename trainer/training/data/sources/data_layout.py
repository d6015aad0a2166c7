"""Which part a file belongs to, told from its path, in every layout alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainer.training.data.loading.data_parts import DataSet, Part, SubPart, split_parts
from trainer.training.data.loading.order import Indices

# What people call the three parts.
PART_WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
_WORD = re.compile(rf"(?:^|[/_.-])({'|'.join(PART_WORDS)})(?=$|[/_.\-0-9])", re.IGNORECASE)


def part_of_folder(path: str) -> str:
    """The part that the first folder of ``path`` names, "" for another folder."""
    return PART_WORDS.get(path.partition("/")[0].lower(), "")


def part_in_name(path: str) -> str:
    """The part that a folder or the name of a file like ``flowers-train-0001.tar`` tells, or ""."""
    found = _WORD.search(path)
    return PART_WORDS[found.group(1).lower()] if found else ""


def in_three(
    whole: Part, parts: Sequence[str], shares: tuple[int, ...], seed: int
) -> tuple[Part, Part, Part]:
    """Train, validation and test of samples whose part is named, in the order of ``whole``.

    Without any name all are split by ``shares``; without a validation part one is cut from the
    training samples; without a test part that stays empty.
    """
    names = np.asarray(parts)
    if not np.isin(names, ("train", "validation", "test")).any():
        return split_parts(whole, shares, seed)
    train, validation, test = (
        _chosen(whole, np.flatnonzero(names == name)) for name in ("train", "validation", "test")
    )
    if len(validation) == 0 and shares[1] > 0:
        train, validation, _ = split_parts(train, (shares[0], shares[1], 0), seed)
    return train, validation, test


def resized(data: DataSet, image_size: int | None) -> DataSet:
    """``data`` with the shape that images have after they were brought to ``image_size``."""
    if data.kind != "images" or image_size is None:
        return data
    return replace(data, shape=(data.shape[0], image_size, image_size))


def _chosen(whole: Part, ids: Indices) -> Part:
    return SubPart(whole, ids.astype(np.int64))
