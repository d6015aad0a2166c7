"""Reading TFRecord files of ``tf.train.Example`` without TensorFlow.

Sources: the TFRecord section of TensorFlow's guide (length, masked CRC-32C of the length, data,
masked CRC-32C of the data, little-endian); tensorflow/core/example/feature.proto; the wire format
of protocol buffers.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from trainer.training.training_errors import ConfigError, DataError

Feature = list[bytes] | list[int] | list[float]
MOST_RECORD_BYTES = 1 << 30
_GZIP_MARK = b"\x1f\x8b"
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


def require_crc32c() -> Callable[[bytes], int]:
    """CRC-32C of some bytes. Raises ``ConfigError`` where google-crc32c is not installed."""
    try:
        import google_crc32c
    except ImportError as error:
        raise ConfigError(
            "data: TFRecord files need google-crc32c; run `pip install google-crc32c`, or install"
            " lowtide[tfrecord]"
        ) from error
    crc32c: Callable[[bytes], int] = google_crc32c.value
    return crc32c


def masked(checksum: int) -> int:
    """A CRC-32C as TFRecord stores it. Source: tensorflow/tsl, lib/hash/crc32c.h, ``Mask``."""
    return (((checksum >> 15) | (checksum << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def records(path: Path) -> Iterator[bytes]:
    """The records of a file, gzipped or not; both checksums of each are checked.

    Raises ``DataError`` with the number of the first record that is damaged, ``ConfigError``
    where google-crc32c is not installed.
    """
    crc32c = require_crc32c()
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP_MARK
        raw.seek(0)
        file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        number = 0
        while header := _exactly(file, _HEADER.size, path, number, may_end=True):
            length, check = _HEADER.unpack(header)
            if masked(crc32c(header[:8])) != check or length > MOST_RECORD_BYTES:
                raise DataError(f"data: {path}: the length of record {number} is damaged")
            data = _exactly(file, length, path, number)
            (check,) = _FOOTER.unpack(_exactly(file, _FOOTER.size, path, number))
            if masked(crc32c(data)) != check:
                raise DataError(f"data: {path}: record {number} is damaged")
            yield data
            number += 1


def parse_example(record: bytes) -> dict[str, Feature]:
    """The features of one ``tf.train.Example`` by name. Raises ``ValueError``."""
    features: dict[str, Feature] = {}
    for field, message in _fields(record):
        if field != 1 or not isinstance(message, bytes):
            continue
        for inner, entry in _fields(message):
            if inner == 1 and isinstance(entry, bytes):
                parts = dict(_fields(entry))
                name, value = parts.get(1, b""), parts.get(2, b"")
                if isinstance(name, bytes) and isinstance(value, bytes):
                    features[name.decode()] = _feature(value)
    return features


def _feature(message: bytes) -> Feature:
    for kind, values in _fields(message):
        if not isinstance(values, bytes):
            continue
        entries = [entry for field, entry in _fields(values) if field == 1]
        if kind == 1:
            return [entry for entry in entries if isinstance(entry, bytes)]
        if kind == 2:
            packed = b"".join(entry for entry in entries if isinstance(entry, bytes))
            return list(struct.unpack(f"<{len(packed) // 4}f", packed))
        if kind == 3:
            numbers: list[int] = []
            for entry in entries:
                numbers += [entry] if isinstance(entry, int) else _varints(entry)
            return [each - (1 << 64) if each >> 63 else each for each in numbers]
    return []


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field: whole numbers of varints, bytes of all others."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            length, place = _varint(message, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind} is not known")
        if place + length > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if place >= len(message):
            raise ValueError("the message ends inside a number")
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("a number is too long")


def _varints(message: bytes) -> list[int]:
    numbers, place = [], 0
    while place < len(message):
        number, place = _varint(message, place)
        numbers.append(number)
    return numbers


def _exactly(
    file: IO[bytes], length: int, path: Path, number: int, *, may_end: bool = False
) -> bytes:
    try:
        data = file.read(length)
    except (EOFError, OSError) as error:
        raise DataError(f"data: {path}: record {number} cannot be read: {error}") from error
    if len(data) == length or (may_end and not data):
        return data
    raise DataError(f"data: {path} ends in the middle of record {number}")
