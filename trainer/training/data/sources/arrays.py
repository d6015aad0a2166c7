"""Memory-mapped arrays: images with labels as .npy files, and files of tokens for language models.

Layouts: ``images.npy`` and ``labels.npy`` in the folder or in its train/ val/ test/; token files
``train.bin val.bin test.bin`` (bare uint16 or uint32) or ``.npy``, or one file of any name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.protocol.train_options.data import GPT2_VOCABULARY, DataOptions
from trainer.training.data.loading.data_parts import (
    Array,
    BadSampleError,
    DataSet,
    Part,
    short_digest,
    split_parts,
)
from trainer.training.data.loading.order import Indices
from trainer.training.data.sources.builtin import HeldImages
from trainer.training.data.sources.data_layout import PART_WORDS, part_in_name
from trainer.training.training_errors import DataError

TOKEN_ENDINGS = (".bin", ".npy")
MOST_META_BYTES = 1 << 20


@dataclass(frozen=True)
class TokenWindows:
    """Windows of ``length`` tokens that follow each other in a mapped file, and what follows."""

    tokens: Array
    length: int
    vocabulary: int
    source: str

    def __len__(self) -> int:
        # One token more than the windows, as the last window needs its next token.
        return max(0, (len(self.tokens) - 1) // self.length)

    def read(self, index: int) -> tuple[Array, Any]:
        """As ``Part.read``."""
        inputs, labels = self.read_many(np.array([index]))
        return inputs[0], labels[0]

    def read_many(self, ids: Indices) -> tuple[Array, Array]:
        """As ``Part.read_many``."""
        places = ids[:, None] * self.length + np.arange(self.length + 1)
        windows = self.tokens[places].astype(np.int64)
        most = int(windows.max(initial=0))
        if most >= self.vocabulary:
            raise BadSampleError(f"token {most} is outside the vocabulary of {self.vocabulary}")
        return windows[:, :-1].copy(), windows[:, 1:].copy()

    def name(self, index: int) -> str:
        """As ``Part.name``."""
        return f"{self.source} from token {index * self.length}"


def is_image_arrays(root: Path) -> bool:
    """Whether the folder, or its train/, holds ``images.npy``."""
    return any((folder / "images.npy").is_file() for folder in (root, *_part_folders(root)))


def token_files(root: Path) -> list[Path]:
    """The files of tokens at ``root``: itself, or those in the folder; [] for other data."""
    if root.is_file():
        return [root] if root.suffix in TOKEN_ENDINGS else []
    return sorted(
        path
        for path in root.iterdir()
        if path.suffix in TOKEN_ENDINGS and path.stem not in ("images", "labels")
    )


def image_arrays(root: Path, options: DataOptions, seed: int) -> DataSet:
    """Images and labels of .npy files. Raises ``DataError``."""
    folders = [folder for folder in _part_folders(root) if (folder / "images.npy").is_file()]
    if folders:
        parts: dict[str, Part] = {
            PART_WORDS[folder.name.lower()]: _held(folder) for folder in folders
        }
        three = _three(parts, options, seed, root)
    else:
        three = split_parts(_held(root), options.split, seed)
    whole = [_held(folder) for folder in folders or [root]]
    first = whole[0].images
    for each in whole[1:]:
        if each.images.shape[1:] != first.shape[1:]:
            raise DataError(f"data: {each.source} has images of another shape than {first.shape}")
    return DataSet(
        kind="images",
        train=three[0],
        validation=three[1],
        test=three[2],
        shape=tuple(first.shape[1:]),
        classes=max(int(each.labels.max(initial=-1)) for each in whole) + 1,
        digest=short_digest(*(f"{each.source} {each.images.shape}" for each in whole)),
        in_memory=True,
    )


def token_windows(root: Path, options: DataOptions, seed: int) -> DataSet:
    """Windows of ``context_length`` tokens. Raises ``DataError``."""
    files = token_files(root)
    vocabulary = options.vocabulary or _vocabulary(root if root.is_dir() else root.parent)
    parts: dict[str, Part] = {}
    for path in files:
        tokens = _mapped_tokens(path, options.token_type)
        windows = TokenWindows(tokens, options.context_length, vocabulary, str(path))
        name = part_in_name(path.stem) if len(files) > 1 else "train"
        if not name or name in parts:
            raise DataError(
                f"data: {path} cannot be told to be train, val or test; name the files"
                " train.bin, val.bin and test.bin"
            )
        parts[name] = windows
    if len(files) == 1:
        train, validation, test = split_parts(parts["train"], options.split, seed)
    else:
        train, validation, test = _three(parts, options, seed, root)
    return DataSet(
        kind="tokens",
        train=train,
        validation=validation,
        test=test,
        shape=(options.context_length,),
        classes=vocabulary,
        digest=short_digest(*(f"{path.name} {path.stat().st_size}" for path in files)),
        in_memory=True,
    )


def _three(
    parts: dict[str, Part], options: DataOptions, seed: int, root: Path
) -> tuple[Part, Part, Part]:
    """Named parts; a missing validation part is cut from the training samples."""
    if "train" not in parts:
        raise DataError(f"data: {root} has no training samples (train)")
    train, empty = parts["train"], split_parts(parts["train"], (1, 0, 0), seed)[2]
    validation, test = parts.get("validation", empty), parts.get("test", empty)
    if len(validation) == 0 and options.split[1] > 0:
        train, validation, _ = split_parts(train, (*options.split[:2], 0), seed)
    return train, validation, test


def _part_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(
        path for path in root.iterdir() if path.is_dir() and path.name.lower() in PART_WORDS
    )


def _held(folder: Path) -> HeldImages:
    images, labels = (_load(folder / name) for name in ("images.npy", "labels.npy"))
    if images.ndim not in (3, 4) or images.dtype not in (np.uint8, np.float32):
        raise DataError(
            f"data: {folder / 'images.npy'} holds {images.dtype} of shape {images.shape}; expected"
            " uint8 or float32 of (samples, height, width, channels) or (samples, channels, ...)"
        )
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"data: {folder / 'labels.npy'} holds {labels.dtype} of shape {labels.shape}; expected"
            f" {len(images)} whole numbers"
        )
    if images.ndim == 3:
        images = images[:, None]
    elif images.shape[1] not in (1, 3, 4) and images.shape[3] in (1, 3, 4):
        images = images.transpose(0, 3, 1, 2)
    if labels.min(initial=0) < 0:
        raise DataError(f"data: {folder / 'labels.npy'} holds a label below 0")
    return HeldImages(images, np.asarray(labels, np.int64), str(folder / "images.npy"))


def _load(path: Path) -> Array:
    try:
        mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped
    except (OSError, ValueError) as error:
        raise DataError(f"data: {path} cannot be read: {error}") from error


def _mapped_tokens(path: Path, token_type: str) -> Array:
    if path.suffix == ".npy":
        tokens = _load(path)
        if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
            raise DataError(f"data: {path} holds {tokens.dtype} of shape {tokens.shape}, no tokens")
        return tokens
    size, width = path.stat().st_size, np.dtype(token_type).itemsize
    if size == 0 or size % width:
        raise DataError(f"data: {path} has {size} bytes, which is no number of {token_type} tokens")
    return np.memmap(path, dtype=np.dtype(token_type).newbyteorder("<"), mode="r")


def _vocabulary(folder: Path) -> int:
    """``vocab_size`` of meta.json, else GPT-2's."""
    path = folder / "meta.json"
    if not path.is_file() or path.stat().st_size > MOST_META_BYTES:
        return GPT2_VOCABULARY
    try:
        size = json.loads(path.read_text())["vocab_size"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"data: {path} has no whole number under vocab_size") from error
    if not isinstance(size, int) or size < 2:
        raise DataError(f"data: {path} has no whole number under vocab_size")
    return size
