"""One thing that was looked at in a deployment's set-up, and what a person should do about it.

Lives here: the result, and what a difference between clocks means. Not here: looking
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
class CheckResult:
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


def warning(name: str, sentence: str, remedy: str) -> CheckResult:
    """A result that fails nobody who does not need what it is about."""
    return CheckResult(name, True, sentence, remedy, warns=True)


def clock_check(name: str, ours: datetime, theirs: datetime) -> CheckResult:
    """How far another clock is from ours; both aware, read at the same moment."""
    skew = (theirs - ours).total_seconds()
    told = f"{measured_duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine"
    if abs(skew) <= CLOCK_SKEW_SECONDS_MAX:
        return CheckResult(name, True, told)
    return CheckResult(
        name, False, told, "set the clocks by NTP (timedatectl set-ntp true) on both"
    )
