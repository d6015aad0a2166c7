"""Which machines are quick enough for a deadline, where several kinds are accepted.

Lives here: passing over offers on which the work that is left would end too late. Not here: whether
they fit otherwise, and their order (`placement`), or when on-demand machines must be asked for
(`deadline_policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.placement import Considered
from app.domain.throughput.kind_speed import KindSpeeds, kind_of
from app.domain.throughput.measured_run import Kind
from app.domain.units.durations import MINUTE_SECONDS, exact_duration


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """seconds: until the deadline, less what a start takes. work_seconds: what is left to do, on a
    machine of the kind told_for."""

    seconds: float
    work_seconds: float
    told_for: Kind


def in_time(
    considered: Sequence[Considered], speeds: KindSpeeds, left: TimeLeft
) -> tuple[Considered, ...]:
    """The same, those that fit first: of them only machines that end in time, else the quickest.

    Prices play no part, so that raising one can still only move its offer back.
    """
    # Once for each kind: thousands of offers are of a few, and a job may be locked meanwhile.
    takes: dict[Kind, float] = {}
    for item in considered:
        kind = kind_of(item.offer.hardware)
        if item.fits and kind not in takes:
            takes[kind] = speeds.seconds_on(kind, left.work_seconds, left.told_for)
    if not takes:
        return tuple(considered)
    most = max(left.seconds, min(takes.values()))
    judged = []
    for item in considered:
        seconds = takes[kind_of(item.offer.hardware)] if item.fits else 0.0
        judged.append(_too_slow(item, seconds) if seconds > most else item)
    return tuple(sorted(judged, key=lambda item: not item.fits))


def _too_slow(item: Considered, seconds: float) -> Considered:
    whole = max(MINUTE_SECONDS, round(seconds / MINUTE_SECONDS) * MINUTE_SECONDS)
    why = f"too slow for the deadline: the remaining work would take {exact_duration(whole)} there"
    return replace(item, verdict=FitVerdict.TOO_SLOW, why=why)
