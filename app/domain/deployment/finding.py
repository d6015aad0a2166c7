"""One thing that was looked at in a deployment's set-up, and what a person should do about it.

Lives here: the finding, and what a difference between clocks means. Not here: looking
(`app.orchestration.deployment.diagnose` and what it calls).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.domain.units.durations import measured_duration

CLOCK_SKEW_SECONDS_MAX: Final = 5.0
"""More makes prices, deadlines and signatures doubtful; AWS refuses requests from 300 s on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    name: a few words, as `quota us-east-1 G spot`. sentence: what was found, with the figures.
    remedy: what a person should do; empty when `ok` without a warning. warns: in order for some
    uses, and not for others, which the sentence names.
    """

    name: str
    ok: bool
    sentence: str
    remedy: str = ""
    warns: bool = False


def warning(name: str, sentence: str, remedy: str) -> Finding:
    """A finding that fails nobody who does not need what it is about."""
    return Finding(name, True, sentence, remedy, warns=True)


def clock_finding(name: str, ours: datetime, theirs: datetime) -> Finding:
    """How far another clock is from ours; both aware, read at the same moment."""
    skew = (theirs - ours).total_seconds()
    told = f"{measured_duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine"
    if abs(skew) <= CLOCK_SKEW_SECONDS_MAX:
        return Finding(name, True, told)
    return Finding(name, False, told, "set the clocks by NTP (timedatectl set-ntp true) on both")
