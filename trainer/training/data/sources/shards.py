"""WebDataset shards: tar files in which the members of one sample share the name before the dot.

A sample is an image (``000017.jpg``) and its label: ``000017.cls`` (a number or a class's name) or
``000017.json`` with ``label`` or ``class``. The headers of all shards are read once into an index
of places, so that any sample is one read and the shuffling is over all shards. The index is kept in
the cache; shards of a bucket are copied there on the way, as far as they fit.
Source of the format: https://github.com/webdataset/webdataset, README.
"""

from __future__ import annotations

import functools
import io
import json
import multiprocessing
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from trainer.protocol.train_options.data import PHOTO_SIZE, DataOptions
from trainer.training.data.loading.cores import usable_cores
from trainer.training.data.loading.data_parts import DataSet, short_digest
from trainer.training.data.sources.cache import DataCache
from trainer.training.data.sources.data_layout import in_three, part_in_name
from trainer.training.data.sources.images import (
    IMAGE_ENDINGS,
    EncodedImages,
    check_channels,
    require_decoder,
)
from trainer.training.data.sources.source import BucketSource, File, LocalSource, Source
from trainer.training.training_errors import DataError

LABEL_ENDINGS = ("cls", "cls.txt", "json")
MOST_LABEL_BYTES = 1 << 20
INDEX_PROCESSES = 8
_BLOCK = 512  # the unit of tar files


@dataclass(frozen=True)
class ShardIndex:
    """Where each sample lies: arrays of equal length, samples in the order of the shards.

    ``labels`` are the words that were found; ``shards`` counts into the list of files.
    """

    shards: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    labels: npt.NDArray[np.str_]

    def to_bytes(self) -> bytes:
        """The index as one .npz file."""
        file = io.BytesIO()
        np.savez(file, **vars(self))
        return file.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> ShardIndex:
        """What ``to_bytes`` made; nothing in it is executed."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return ShardIndex(**{name: arrays[name] for name in arrays.files})


@dataclass(frozen=True)
class ShardImages(EncodedImages):
    """Images at places in shards."""

    source: Source
    paths: tuple[str, ...]
    index: ShardIndex
    labels: npt.NDArray[np.int64]
    channels: int
    at_least: int

    def encoded(self, index: int) -> tuple[bytes, int]:
        """As ``EncodedPart.encoded``."""
        path = self.paths[self.index.shards[index]]
        start, size = int(self.index.starts[index]), int(self.index.sizes[index])
        return self.source.read(path, start, size), int(self.labels[index])

    def name(self, index: int) -> str:
        """As ``Part.name``."""
        path = self.paths[self.index.shards[index]]
        return f"{self.source.address}/{path} at byte {int(self.index.starts[index])}"


def shards(source: Source, options: DataOptions, seed: int, cache: DataCache | None) -> DataSet:
    """All ``.tar`` files below the source. Raises ``DataError``, ``DataUnavailableError``."""
    require_decoder()
    check_channels(options.channels)
    files = tuple(file for file in source.files if file.path.endswith(".tar"))
    digest = short_digest(*(f"{file.path} {file.size}" for file in files))
    index = _index(source, files, cache)
    labels, names = numbered(index.labels)
    size = options.image_size or PHOTO_SIZE
    paths = tuple(file.path for file in files)
    whole = ShardImages(source, paths, index, labels, options.channels, size)
    parts = np.array([part_in_name(path) for path in paths] or [""])[index.shards]
    train, validation, test = in_three(whole, parts.tolist(), options.split, seed)
    return DataSet(
        kind="images",
        train=train,
        validation=validation,
        test=test,
        shape=(options.channels, size, size),
        classes=len(names),
        class_names=names,
        photos=True,
        digest=digest,
        remote=isinstance(source, BucketSource),
    )


def numbered(words: npt.NDArray[np.str_]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Labels as numbers, and the classes' names: numbers stand for themselves, words by order."""
    if all(word.isascii() and word.isdigit() for word in np.unique(words)):
        labels = words.astype(np.int64)
        return labels, tuple(str(each) for each in range(int(labels.max(initial=-1)) + 1))
    names, labels = np.unique(words, return_inverse=True)
    return labels.astype(np.int64), tuple(str(name) for name in names)


def _index(source: Source, files: Sequence[File], cache: DataCache | None) -> ShardIndex:
    """The index from the cache, or made now by a process for each core."""
    if cache is None:
        return _build(source, files, cache)
    stamps = (f"{file.path} {file.size} {_changed_at(source, file)}" for file in files)
    key = short_digest("shards", source.address, *stamps)
    path = cache.root / "index" / f"{key}.npz"
    with cache.only_one(f"index-{key}"):
        if path.exists():
            return ShardIndex.from_bytes(path.read_bytes())
        index = _build(source, files, cache)
        cache.write(path, index.to_bytes())
        return index


def _changed_at(source: Source, file: File) -> int:
    return (source.root / file.path).stat().st_mtime_ns if isinstance(source, LocalSource) else 0


def _build(source: Source, files: Sequence[File], cache: DataCache | None) -> ShardIndex:
    limit = cache.limit_bytes if cache is not None else 0
    fits = np.cumsum([file.size for file in files]) <= limit
    work = functools.partial(_index_one, source)
    count = min(INDEX_PROCESSES, usable_cores(), len(files))
    if count <= 1 and isinstance(source, LocalSource):
        found = [work(file, False) for file in files]
    else:
        # Forked: a bucket's client must not be opened in this process, whose workers are forked.
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(max(1, count), mp_context=context) as pool:
            found = list(pool.map(work, files, fits.tolist()))
    return ShardIndex(
        shards=np.repeat(np.arange(len(files), dtype=np.int32), [len(each) for each in found]),
        starts=np.array([start for each in found for start, _, _ in each], dtype=np.int64),
        sizes=np.array([size for each in found for _, size, _ in each], dtype=np.int64),
        labels=np.array([label for each in found for _, _, label in each], dtype=np.str_),
    )


def _index_one(source: Source, file: File, keep: bool) -> list[tuple[int, int, str]]:
    """(start, size, label) of each sample of one shard, in its order."""
    with _opened(source, file, keep) as stream:
        name = f"{source.address}/{file.path}"
        samples: list[tuple[int, int, str]] = []
        for key, image, label in shard_samples(stream, name, file.size):
            if image is None or label is None:
                missing = "image" if image is None else "label (.cls or .json)"
                raise DataError(f"data: {name}: sample {key!r} has no {missing}")
            samples.append((*image, label))
        return samples


@contextmanager
def _opened(source: Source, file: File, keep: bool) -> Iterator[IO[bytes]]:
    if isinstance(source, LocalSource):
        with (source.root / file.path).open("rb") as stream:
            yield stream
        return
    assert isinstance(source, BucketSource)
    with source.opened(file.path, keep) as stream:
        yield stream


def shard_samples(
    stream: IO[bytes], name: str, size: int
) -> Iterator[tuple[str, tuple[int, int] | None, str | None]]:
    """(key, (start, size) of the image, label) of each sample of a tar file read from its start.

    ``size`` is the whole file's. What is missing is None. Raises ``DataError`` for a tar file that
    is damaged or cut short, and for a label that cannot be read.
    """
    key, image, label, end = "", None, None, 0
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                end = member.offset_data + -(-member.size // _BLOCK) * _BLOCK
                if not member.isfile():
                    continue
                folder, _, base = member.name.rpartition("/")
                stem, _, ending = base.partition(".")
                this = f"{folder}/{stem}" if folder else stem
                if this != key:
                    if image is not None or label is not None:
                        yield key, image, label
                    key, image, label = this, None, None
                if f".{ending.lower()}".endswith(IMAGE_ENDINGS):
                    image = (member.offset_data, member.size)
                elif ending.lower() in LABEL_ENDINGS and member.size <= MOST_LABEL_BYTES:
                    content = archive.extractfile(member)
                    assert content is not None
                    label = _label(content.read(), ending.lower(), f"{name}: {member.name}")
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"data: {name} is not a whole tar file: {error}") from error
    if size < end + _BLOCK:
        # tarfile takes the end of the file for the end of the archive, which has a mark of its own.
        raise DataError(f"data: {name} is not a whole tar file: it is cut off at byte {size}")
    if image is not None or label is not None:
        yield key, image, label


def _label(content: bytes, ending: str, name: str) -> str:
    try:
        if ending != "json":
            return content.decode().strip()
        document = json.loads(content)
        for key in ("label", "class", "cls"):
            if isinstance(document, dict) and isinstance(document.get(key), (int, str)):
                return str(document[key])
    except ValueError as error:
        raise DataError(f"data: {name} cannot be read as a label: {error}") from error
    raise DataError(f"data: {name} has no number or text under `label` or `class`")
