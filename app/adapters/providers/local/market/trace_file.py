"""Reads the recordings' .npz files. Not here: what the arrays mean (`market`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ARRAYS = ("zones", "gap_seconds", "gang", "price", "od", "avail")


class TraceFileError(ValueError):
    """A recording cannot be read; the message names the file."""


@dataclass(frozen=True)
class SpotHistory:
    """One recording. Rows are zones, columns are ticks of `gap_seconds`.

    prices: $ per hour, NaN where not recorded. on_demand: $ per hour per zone. available: machines
    that could be had, 0 to `gang`.
    """

    zones: tuple[str, ...]
    gap_seconds: int
    gang: int
    prices: tuple[tuple[float, ...], ...]
    on_demand: tuple[float, ...]
    available: tuple[bytes, ...]


def read_trace(path: Path) -> SpotHistory:
    """The recording in `path`. Raises TraceFileError."""
    try:
        # Opened here: numpy leaves the file open when it turns out to be no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return _history({name: archive[name] for name in _ARRAYS})
    except Exception as error:
        # Broken bytes make numpy, zipfile, zlib and the parser of headers raise almost anything.
        reason = str(error) or type(error).__name__
        raise TraceFileError(f"{path.name}: cannot be read: {reason}") from error


def _history(arrays: Mapping[str, NDArray[Any]]) -> SpotHistory:
    zones, prices, available = arrays["zones"], arrays["price"], arrays["avail"]
    if prices.ndim != 2 or not prices.size or prices.shape != available.shape:
        raise ValueError("price and avail differ in shape, or are empty")
    if len(zones) != len(prices):
        raise ValueError("zones has not one name for each row of price")
    return SpotHistory(
        zones=tuple(map(str, zones)),
        gap_seconds=int(arrays["gap_seconds"].item()),
        gang=int(arrays["gang"].item()),
        prices=tuple(map(tuple, prices.tolist())),
        on_demand=tuple(arrays["od"].tolist()),
        available=tuple(row.tobytes() for row in available.astype(np.uint8)),
    )
