"""Reads the recordings' .npz files with the standard library alone.

numpy would cost the daemon more memory than everything else in it. Here: the file format, for the
few kinds of number the recordings hold. Not here: what the arrays mean (`market`).
"""

from __future__ import annotations

import ast
import struct
import sys
import zipfile
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"\x93NUMPY"
_ARRAY_CODES = {"<f4": "f", "|u1": "B", "<i8": "q"}


class TraceFileError(ValueError):
    """A recording cannot be read; the message names file and array."""


@dataclass(frozen=True)
class SpotHistory:
    """One recording. Rows are zones, columns are ticks of `gap_seconds`.

    prices: $ per hour, NaN where not recorded. on_demand: $ per hour per zone. available: machines
    that could be had, 0 to `gang`.
    """

    zones: tuple[str, ...]
    gap_seconds: int
    gang: int
    prices: tuple[array[float], ...]
    on_demand: tuple[float, ...]
    available: tuple[bytes, ...]


def read_trace(path: Path) -> SpotHistory:
    """The recording in `path`. Raises TraceFileError."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {
                name: archive.read(f"{name}.npy")
                for name in ("zones", "gap_seconds", "gang", "price", "od", "avail")
            }
        return _trace(members, path.name)
    except TraceFileError:
        raise
    except Exception as error:
        # Broken bytes make zipfile, zlib and the parser of headers raise almost anything.
        reason = str(error) or type(error).__name__
        raise TraceFileError(f"{path.name}: cannot be read: {reason}") from error


def _trace(members: Mapping[str, bytes], where: str) -> SpotHistory:
    zones = _texts(members["zones"], where)
    prices = _numbers(members["price"], where)
    available = _numbers(members["avail"], where)
    if not zones:
        raise TraceFileError(f"{where}: zones names no zone")
    ticks = len(prices) // len(zones)
    if ticks < 1 or len(available) != len(prices) or len(prices) != ticks * len(zones):
        raise TraceFileError(f"{where}: price and avail differ in shape, or are empty")
    rows = [slice(row * ticks, (row + 1) * ticks) for row in range(len(zones))]
    return SpotHistory(
        zones=zones,
        gap_seconds=int(_numbers(members["gap_seconds"], where)[0]),
        gang=int(_numbers(members["gang"], where)[0]),
        prices=tuple(prices[row] for row in rows),
        on_demand=tuple(_numbers(members["od"], where)),
        available=tuple(available[row].tobytes() for row in rows),
    )


def _body(raw: bytes, where: str) -> tuple[str, bytes]:
    """Element type and data of one .npy member (NumPy format versions 1 and 2)."""
    if raw[:6] != _MAGIC or raw[6] not in (1, 2):
        raise TraceFileError(f"{where}: not an array file of a known version")
    size_format, start = ("<H", 10) if raw[6] == 1 else ("<I", 12)
    (length,) = struct.unpack_from(size_format, raw, 8)
    header = ast.literal_eval(raw[start : start + length].decode("latin-1"))
    if header["fortran_order"]:
        raise TraceFileError(f"{where}: column-major arrays are not used here")
    return header["descr"], raw[start + length :]


def _numbers(raw: bytes, where: str) -> array[float]:
    kind, data = _body(raw, where)
    if kind not in _ARRAY_CODES:
        raise TraceFileError(f"{where}: unexpected element type {kind!r}")
    values: array[float] = array(_ARRAY_CODES[kind])
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _texts(raw: bytes, where: str) -> tuple[str, ...]:
    kind, data = _body(raw, where)
    if not kind.startswith("<U"):
        raise TraceFileError(f"{where}: unexpected element type {kind!r} for names")
    size = 4 * int(kind[2:])
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return tuple(piece.decode("utf-32-le").rstrip("\0") for piece in pieces)
