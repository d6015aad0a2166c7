"""``python -m trainer.training.data.convert tfrecord|folder FROM TO``: to WebDataset shards.

Shards are plain tar files of a size that is quick to copy, with members in a fixed form, so that
the same input gives the same bytes. A shard appears by rename, complete or not at all.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.training.data.sources.data_layout import part_in_name
from trainer.training.data.sources.folders import class_files
from trainer.training.data.sources.progress_line import ProgressLine
from trainer.training.data.sources.source import open_source
from trainer.training.data.sources.tfrecord import Feature, parse_example, records
from trainer.training.training_errors import ConfigError, DataError

IMAGE_KEYS = ("image/encoded", "image", "image_raw", "jpeg")
LABEL_KEYS = ("image/class/label", "label", "class", "image/class/text")
MARKS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"RIFF": "webp", b"BM": "bmp", b"GIF8": "gif"}
TFRECORD_MARK = "tfrecord"


@dataclass(frozen=True)
class Sample:
    """One image on its way: ``part`` "" where the source names none."""

    part: str
    image: bytes
    ending: str
    label: str


class ShardWriter:
    """Writes samples into ``PART-000000.tar`` and on, a new one when ``shard_bytes`` is reached."""

    def __init__(self, folder: Path, shard_bytes: int) -> None:
        self._folder = folder
        self._shard_bytes = shard_bytes
        self._open: dict[str, tarfile.TarFile] = {}
        self._shards: dict[str, int] = {}
        self.samples = 0

    def write(self, sample: Sample) -> None:
        """Appends a sample to the shard of its part."""
        name = sample.part or "data"
        archive = self._open.get(name)
        if archive is None:
            path = self._path(name).with_suffix(".tmp")
            archive = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
            self._open[name] = archive
        key = f"{self.samples:09d}"
        _add(archive, f"{key}.{sample.ending}", sample.image)
        _add(archive, f"{key}.cls", sample.label.encode())
        self.samples += 1
        if archive.offset >= self._shard_bytes:
            self._close(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Completes the shards that are open; after an error it removes them."""
        for name in list(self._open):
            if error is None:
                self._close(name)
            else:
                self._open.pop(name).close()
                self._path(name).with_suffix(".tmp").unlink()

    def _close(self, name: str) -> None:
        path = self._path(name)
        self._open.pop(name).close()
        path.with_suffix(".tmp").replace(path)
        self._shards[name] = self._shards.get(name, 0) + 1

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}-{self._shards.get(name, 0):06d}.tar"


def from_tfrecords(
    folder: Path, image_key: str | None, label_key: str | None, label_offset: int
) -> Iterator[Sample]:
    """The samples of all TFRecord files below ``folder``, or of one file."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    for path in paths:
        if not path.is_file() or TFRECORD_MARK not in path.name:
            continue
        for number, record in enumerate(records(path)):
            where = f"data: {path}: record {number}"
            try:
                features = parse_example(record)
            except ValueError as error:
                raise DataError(f"{where} is no tf.train.Example: {error}") from error
            image = _feature(features, image_key, IMAGE_KEYS, where)
            label = _feature(features, label_key, LABEL_KEYS, where)
            if not isinstance(image, bytes):
                raise DataError(f"{where}: the image is no file but numbers; name --image-key")
            if isinstance(label, int):
                word = str(label + label_offset)
            else:
                word = label.decode() if isinstance(label, bytes) else str(label)
            yield Sample(part_in_name(path.name), image, _ending(image, where), word)


def from_folders(address: str) -> Iterator[Sample]:
    """The samples of image folders, labelled with their classes' names."""
    source = open_source(address, None)
    for found in class_files(source):
        ending = found.file.path.rpartition(".")[2].lower()
        yield Sample(found.part, source.read(found.file.path), ending, found.class_name)


def _feature(
    features: dict[str, Feature], name: str | None, usual: tuple[str, ...], where: str
) -> bytes | int | float:
    names = (name,) if name else usual
    for each in names:
        if features.get(each):
            return features[each][0]
    raise DataError(
        f"{where} has no {' or '.join(names)}, but {', '.join(sorted(features)) or 'nothing'}; name"
        " the right one with --image-key and --label-key"
    )


def _ending(image: bytes, where: str) -> str:
    for mark, ending in MARKS.items():
        if image.startswith(mark):
            return ending
    raise DataError(f"{where}: the image is no JPEG, PNG, WebP, BMP or GIF file")


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644
    archive.addfile(member, io.BytesIO(content))


def main() -> int:
    """The command line; 0 done, 2 what is there cannot be converted."""
    parser = argparse.ArgumentParser(prog="trainer.training.data.convert", description=__doc__)
    parser.add_argument("kind", choices=("tfrecord", "folder"))
    parser.add_argument("source", help="a folder, or one TFRecord file")
    parser.add_argument("target", type=Path, help="a folder that is not there or empty")
    parser.add_argument("--image-key", help=f"tfrecord: one of {', '.join(IMAGE_KEYS)}")
    parser.add_argument("--label-key", help=f"tfrecord: one of {', '.join(LABEL_KEYS)}")
    parser.add_argument(
        "--label-offset", type=int, default=0, help="tfrecord: added to each label; -1 for ImageNet"
    )
    parser.add_argument("--shard-mb", type=float, default=256.0, help="size of a shard")
    options = parser.parse_args()
    try:
        options.target.mkdir(parents=True, exist_ok=True)
        if any(options.target.iterdir()):
            raise DataError(f"data: {options.target} is not empty")
        if options.kind == "folder":
            samples = from_folders(options.source)
        else:
            source = Path(options.source)
            if not source.exists():
                raise DataError(f"data: {source} is not there")
            samples = from_tfrecords(
                source, options.image_key, options.label_key, options.label_offset
            )
        shard_bytes = int(options.shard_mb * 1e6)
        with ShardWriter(options.target, shard_bytes) as writer, ProgressLine("samples") as line:
            for sample in samples:
                writer.write(sample)
                line.advance()
        if writer.samples == 0:
            raise DataError(f"data: {options.source} holds nothing to convert")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{writer.samples:,} samples written to {options.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
