"""Recordings of spot availability and prices, read with numpy and checked.

Here: the .npz layout (`zones` [R], `avail` [R,T] machines to be had, `gap_seconds`, `price` [R,T]
$/h with NaN where not recorded, `od` [R] $/h, `gang`) and windows cut from it. Not here: which
windows are compared (`cells`). The local provider reads the same layout, of the recordings that
it carries.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPOT_PRICE_RATIO = 0.9731 / 3.06
"""Spot price over on-demand where a recording has none: p3.2xlarge in the NSDI '24 setting."""

COUNT_MAX = 1_000_000
PRICE_MAX = 1e6
"""More machines in a zone, or $ per hour, are a mistake in the recording."""

_KEYS = ("zones", "avail", "gap_seconds", "price", "od")


class TraceProblem(ValueError):
    """A recording or a groups file is of no use; the message names file, part and reason."""


@dataclass(frozen=True)
class Trace:
    """One recording: [zones, ticks] of `gap_seconds`.

    counts: machines that could be had or were kept. prices: $ per machine-hour, missing ones
    filled in with SPOT_PRICE_RATIO of on-demand. on_demand: $ per machine-hour, per zone.
    """

    file: str
    zones: tuple[str, ...]
    gap_seconds: int
    counts: NDArray[np.int64]
    prices: NDArray[np.float64]
    on_demand: NDArray[np.float64]

    @property
    def ticks(self) -> int:
        """How many ticks were recorded."""
        return int(self.counts.shape[1])


@dataclass(frozen=True)
class Window:
    """What one job lives through, and what was before it.

    up [pools, ticks]: whether the whole gang can be had or is kept in that tick; prices likewise,
    in $/h. The `past_…` arrays are the ticks before the window, [pools, n], n may be 0.
    on_demand: $/h, the lowest among the pools.
    """

    pools: tuple[str, ...]
    tick_seconds: int
    up: NDArray[np.bool_]
    prices: NDArray[np.float64]
    past_up: NDArray[np.bool_]
    past_prices: NDArray[np.float64]
    on_demand: float


def read_trace(path: Path) -> Trace:
    """The recording in `path`. Raises TraceProblem."""
    where = path.name
    arrays = _arrays(path)
    counts, prices = arrays["avail"], arrays["price"]
    on_demand = np.atleast_1d(arrays["od"])
    zones = tuple(str(name) for name in np.atleast_1d(arrays["zones"]).flat)
    if not zones:
        raise TraceProblem(f"{where}: zones names no zone")
    if counts.ndim != 2 or counts.shape[1] == 0 or counts.shape[0] != len(zones):
        raise TraceProblem(
            f"{where}: avail has the shape {counts.shape}, expected ({len(zones)} zones, ticks)"
        )
    if prices.shape != counts.shape or on_demand.shape != (len(zones),):
        raise TraceProblem(f"{where}: price must have avail's shape, and od one price per zone")
    gaps = arrays["gap_seconds"].ravel()
    if gaps.size != 1 or not 1 <= gaps[0] <= 86_400 or gaps[0] != int(gaps[0]):
        raise TraceProblem(f"{where}: gap_seconds must be one whole number from 1 to 86400")
    if len(set(zones)) != len(zones):
        raise TraceProblem(f"{where}: a zone stands twice in zones")
    # Said so that what is not a number fails, too.
    if not ((counts >= 0) & (counts <= COUNT_MAX)).all() or (counts % 1).any():
        raise TraceProblem(
            f"{where}: avail holds a count that is negative, not whole or above {COUNT_MAX}"
        )
    if not ((on_demand > 0) & (on_demand <= PRICE_MAX)).all():
        raise TraceProblem(f"{where}: od must be a price above 0 for every zone, to {PRICE_MAX:g}")
    if ((prices < 0) | (prices > PRICE_MAX)).any():
        raise TraceProblem(f"{where}: price holds a price that is negative or above {PRICE_MAX:g}")
    return Trace(
        file=where,
        zones=zones,
        gap_seconds=int(gaps[0]),
        counts=counts.astype(np.int64),
        prices=_filled(prices.astype(np.float64), on_demand.astype(np.float64)),
        on_demand=on_demand.astype(np.float64),
    )


def cut_window(
    trace: Trace, pools: tuple[str, ...], gang: int, start: int, ticks: int, past_ticks: int
) -> Window:
    """`ticks` of the named pools from tick `start` on, with up to `past_ticks` before it."""
    rows = [trace.zones.index(pool) for pool in pools]
    up = trace.counts[rows] >= gang
    prices = trace.prices[rows]
    before = slice(max(0, start - past_ticks), start)
    within = slice(start, start + ticks)
    return Window(
        pools=pools,
        tick_seconds=trace.gap_seconds,
        up=up[:, within],
        prices=prices[:, within],
        past_up=up[:, before],
        past_prices=prices[:, before],
        on_demand=float(trace.on_demand[rows].min()),
    )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        # Opened here: numpy leaves the file open when it turns out to be no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [key for key in _KEYS if key not in archive.files]
            if missing:
                raise TraceProblem(f"{path.name}: lacks {', '.join(missing)}")
            arrays = {key: archive[key] for key in _KEYS}
    except FileNotFoundError:
        raise TraceProblem(f"{path.name}: there is no such file in {path.parent}") from None
    except TraceProblem:
        raise
    except Exception as error:
        # Broken bytes make numpy, zipfile, zlib and the parser of headers raise almost anything.
        reason = str(error) or type(error).__name__
        raise TraceProblem(f"{path.name}: cannot be read as a numpy .npz file: {reason}") from error
    for name, array in arrays.items():
        kinds, needed = ("U", "text is") if name == "zones" else ("biuf", "numbers are")
        if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
            held = getattr(array, "dtype", "no array")
            raise TraceProblem(f"{path.name}: {name} holds {held}, {needed} needed")
    return arrays


def _filled(prices: NDArray[np.float64], on_demand: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(prices), SPOT_PRICE_RATIO * on_demand[:, None], prices)
