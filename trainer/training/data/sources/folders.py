"""Image files in one folder for each class, with or without folders for train, val and test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.protocol.train_options.data import PHOTO_SIZE, DataOptions
from trainer.training.data.loading.data_parts import BadSampleError, DataSet, short_digest
from trainer.training.data.sources.data_layout import in_three, part_of_folder
from trainer.training.data.sources.images import (
    IMAGE_ENDINGS,
    EncodedImages,
    check_channels,
    require_decoder,
)
from trainer.training.data.sources.source import BucketSource, File, Source
from trainer.training.training_errors import DataError


@dataclass(frozen=True)
class ClassFile:
    """One image: its file, its class's name, and the part its folder names ("" for none)."""

    file: File
    class_name: str
    part: str


class Paths:
    """Very many paths in little memory, and in few objects, which forked workers share."""

    def __init__(self, paths: list[str]) -> None:
        encoded = [path.encode(errors="surrogateescape") for path in paths]
        self._ends = np.cumsum([0] + [len(path) for path in encoded])
        self._text = np.frombuffer(b"".join(encoded), np.uint8)

    def __getitem__(self, index: int) -> str:
        first, last = self._ends[index], self._ends[index + 1]
        return self._text[first:last].tobytes().decode(errors="surrogateescape")


@dataclass(frozen=True)
class ImageFiles(EncodedImages):
    """One image a file."""

    source: Source
    paths: Paths
    labels: npt.NDArray[np.int64]
    channels: int
    at_least: int

    def encoded(self, index: int) -> tuple[bytes, int]:
        """As ``EncodedPart.encoded``."""
        data = self.source.read(self.paths[index])
        if not data:
            raise BadSampleError("the file is empty")
        return data, int(self.labels[index])

    def name(self, index: int) -> str:
        """As ``Part.name``."""
        return f"{self.source.address}/{self.paths[index]}"


def image_folders(source: Source, options: DataOptions, seed: int) -> DataSet:
    """The classes are the folders' names in order. Raises ``DataError``, ``ConfigError``."""
    require_decoder()
    check_channels(options.channels)
    found = class_files(source)
    if not found:
        raise DataError(
            f"data: {source.address} holds no class folders with images; expected CLASS/IMAGE or"
            " train/CLASS/IMAGE, see docs/data.md"
        )
    _require_content(found, source.address, options)
    names = sorted({each.class_name for each in found})
    number = {name: place for place, name in enumerate(names)}
    labels = np.array([number[each.class_name] for each in found], dtype=np.int64)
    size = options.image_size or PHOTO_SIZE
    paths = Paths([each.file.path for each in found])
    whole = ImageFiles(source, paths, labels, options.channels, size)
    parts = [each.part for each in found]
    train, validation, test = in_three(whole, parts, options.split, seed)
    _require_trained_classes(found, source.address)
    return DataSet(
        kind="images",
        train=train,
        validation=validation,
        test=test,
        shape=(options.channels, size, size),
        classes=len(names),
        class_names=tuple(names),
        photos=True,
        digest=short_digest(*(f"{each.file.path} {each.file.size}" for each in found)),
        remote=isinstance(source, BucketSource),
    )


def class_files(source: Source) -> list[ClassFile]:
    """Every image that lies in a class's folder, in the order of the paths.

    Folders that name parts count only if they hold class folders themselves: a class may be called
    "test".
    """
    images = [file for file in source.files if file.path.lower().endswith(IMAGE_ENDINGS)]
    in_parts = any(
        part_of_folder(file.path) == "train" and file.path.count("/") >= 2 for file in images
    )
    found = []
    for file in images:
        folders = file.path.split("/")[:-1]
        part = part_of_folder(file.path) if in_parts else ""
        if in_parts and not part:
            continue
        if part:
            folders = folders[1:]
        if folders:
            found.append(ClassFile(file, folders[0], part))
    return found


def _require_content(found: list[ClassFile], address: str, options: DataOptions) -> None:
    """Sizes are all that is looked at before a run starts; ``doctor`` looks at everything."""
    empty = [each.file.path for each in found if each.file.size == 0]
    if empty and options.on_bad_sample == "fail":
        raise DataError(
            f"data: {len(empty)} of {len(found)} files are empty, such as {address}/{empty[0]};"
            " remove them, or set on_bad_sample: skip"
        )


def _require_trained_classes(found: list[ClassFile], address: str) -> None:
    trained = {each.class_name for each in found if each.part in ("train", "")}
    for each in found:
        if each.class_name not in trained:
            raise DataError(
                f"data: {address}: class {each.class_name!r} is in {each.part} but not in train"
            )
