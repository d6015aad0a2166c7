"""The quick reading of a report that carries no news; anything unusual takes the full way.

Not here: the full reading (`trainer.protocol.wire.decode`), which also says what is wrong, or the
rule by which memory answers (`steady_reports`).
"""

from __future__ import annotations

from typing import TypeGuard
from uuid import UUID

from app.orchestration.directives.steady_reports import SteadyReport
from trainer.protocol.agent_report import PROTOCOL_VERSION, MachinePhase, Pace

PROTOCOLS = (PROTOCOL_VERSION, PROTOCOL_VERSION - 1)
"""Versions that are spoken here: this one and the one before."""

INT_MAX = 2**31 - 1
"""What a counter of the protocol may reach."""
STEP_MAX = 2**62
SECONDS_MAX = 1e9
"""What a duration may be: beyond any calendar, and still a number that can be added."""
METRICS_MAX = 64
TEXT_MAX = 200
_PHASES = frozenset(phase.value for phase in MachinePhase)


def read_steady(document: object) -> SteadyReport | None:
    """The report in a JSON document; None when it has facts, or anything the full way must see."""
    if type(document) is not dict or document.get("facts") or document.get("disk_full"):
        return None
    get = document.get
    session_id, phase = get("session_id"), get("phase")
    seq, fence = get("seq"), get("fence")
    if (
        get("protocol") not in PROTOCOLS
        or type(session_id) is not str
        or type(get("boot_id")) is not str
        or phase not in _PHASES
        or not _is_count(seq, INT_MAX)
        or not _is_count(get("uptime_ms"), STEP_MAX)
        or not (fence is None or _is_count(fence, INT_MAX))
    ):
        return None
    try:
        instance_id = UUID(get("instance_id"))
    except (ValueError, TypeError, AttributeError):
        return None
    if get("progress") is None:
        return SteadyReport(instance_id, session_id, seq, fence, phase, None, None, {})
    progress = _progress(get("progress"))
    if progress is None:
        return None
    return SteadyReport(instance_id, session_id, seq, fence, phase, *progress)


def _progress(value: object) -> tuple[int, int | None, dict[str, float], Pace | None] | None:
    if type(value) is not dict:
        return None
    step, total = value.get("step"), value.get("total_steps")
    metrics = value.get("metrics", {})
    if not _is_count(step, STEP_MAX) or not (total is None or _is_count(total, STEP_MAX)):
        return None
    if type(metrics) is not dict or len(metrics) > METRICS_MAX:
        return None
    if not all(type(number) in (int, float) for number in metrics.values()):
        return None
    pace = None
    if value.get("pace") is not None:
        pace = _pace(value["pace"])
        if pace is None:
            return None
    return step, total, metrics, pace


def _pace(value: object) -> Pace | None:
    if type(value) is not dict:
        return None
    first, last = value.get("first_step"), value.get("last_step")
    stepping, start_up = value.get("stepping_seconds"), value.get("start_up_seconds")
    if not (_is_count(first, STEP_MAX) and _is_count(last, STEP_MAX) and first <= last):
        return None
    if not (_is_duration(stepping) and _is_duration(start_up)):
        return None
    return Pace(first, last, float(stepping), float(start_up))


def _is_duration(value: object) -> TypeGuard[float]:
    return (type(value) is int or type(value) is float) and 0 <= value <= SECONDS_MAX


def _is_count(value: object, most: int) -> TypeGuard[int]:
    """A whole number from 0; `True` is none."""
    return type(value) is int and 0 <= value <= most
