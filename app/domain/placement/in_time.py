"""Which machines are quick enough for a deadline, where several kinds are accepted.

Lives here: passing over offers on which the work that is left would end too late. Not here: whether
they fit otherwise, and their order (`placement`), or when on-demand machines must be asked for
(`deadline_policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.placement import RankedOffer
from app.domain.throughput.gpu_throughput import GpuThroughput, gpu_shape_of
from app.domain.throughput.measured_run import GpuShape
from app.domain.units.durations import MINUTE_SECONDS, exact_duration


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """seconds: until the deadline, less what a start takes. work_seconds: what is left to do, on a
    machine of the kind told_for.
    """

    seconds: float
    work_seconds: float
    told_for: GpuShape


def in_time(
    considered: Sequence[RankedOffer], speeds: GpuThroughput, left: TimeLeft
) -> tuple[RankedOffer, ...]:
    """The same, those that fit first: of them only machines that end in time, else the quickest.

    Prices play no part, so that raising one can still only move its offer back.
    """
    # Once for each shape: thousands of offers are of a few, and a job may be locked meanwhile.
    takes: dict[GpuShape, float] = {}
    for item in considered:
        shape = gpu_shape_of(item.offer.hardware)
        if item.fits and shape not in takes:
            takes[shape] = speeds.seconds_on(shape, left.work_seconds, left.told_for)
    if not takes:
        return tuple(considered)
    most = max(left.seconds, min(takes.values()))
    judged = []
    for item in considered:
        seconds = takes[gpu_shape_of(item.offer.hardware)] if item.fits else 0.0
        judged.append(_too_slow(item, seconds) if seconds > most else item)
    return tuple(sorted(judged, key=lambda item: not item.fits))


def _too_slow(item: RankedOffer, seconds: float) -> RankedOffer:
    whole = max(MINUTE_SECONDS, round(seconds / MINUTE_SECONDS) * MINUTE_SECONDS)
    why = f"too slow for the deadline: the remaining work would take {exact_duration(whole)} there"
    return replace(item, verdict=FitVerdict.TOO_SLOW, why=why)
