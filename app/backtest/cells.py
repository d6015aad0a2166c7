"""Which jobs are replayed: the cells of a groups file, as data.

Here: reading groups, and one Cell per (group, zone, start, slack, overhead). Not here: reading the
recordings (`traces`) or replaying (`run_cells`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from app.backtest.policy_view import WHOLE_SECOND
from app.backtest.start_ups import NO_START_UPS, SECONDS_MAX, StartUps
from app.backtest.traces import COUNT_MAX, Trace, TraceProblem

ALL_ZONES = "*"
"""What a row names as its zone when it used several."""

_LARGEST = 1e9


class PoolSetting(StrEnum):
    """One pool alone, or the pools of a group together."""

    ONE_ZONE = "one-zone"
    ZONES = "zones"


@dataclass(frozen=True)
class PoolGroup:
    """Pools of one recording that a gang of `gang` machines may use; None: all of them."""

    name: str
    file: str
    gang: int
    pools: tuple[str, ...] | None


@dataclass(frozen=True)
class ComparisonPlan:
    """What is compared: slack is deadline over job length; starts are counted per pool or group."""

    groups: tuple[PoolGroup, ...]
    slacks: tuple[float, ...]
    overhead_hours: tuple[float, ...]
    job_hours: float
    starts: int
    longest_slack: float
    start_ups: StartUps = NO_START_UPS

    @property
    def restarts_hours(self) -> tuple[float, ...]:
        """The longest restart of each overhead."""
        return tuple(overhead + self.start_ups.most / 3600 for overhead in self.overhead_hours)


@dataclass(frozen=True)
class Cell:
    """One job: where, from which tick on, and how tight. ticks: how long its window is.

    start_up_seconds: its trainer's own part of every restart, beside the overhead.
    """

    group: PoolGroup
    zone: str
    pools: tuple[str, ...]
    start: int
    ticks: int
    slack: float
    overhead_hours: float
    job_hours: float
    start_up_seconds: float = 0.0

    @property
    def restart_seconds(self) -> float:
        """From a launch until work goes on."""
        return self.overhead_hours * 3600 + self.start_up_seconds


@dataclass(frozen=True)
class PlanOverrides:
    """What a person asks for instead of the groups file's own figures; None: as in the file.

    Sentences name them as options of the command do: `--slack`.
    """

    slacks: tuple[float, ...] | None = None
    overhead_hours: tuple[float, ...] | None = None
    job_hours: float | None = None
    starts: int | None = None
    start_ups: StartUps = NO_START_UPS


def read_plan(path: Path, setting: PoolSetting, overrides: PlanOverrides) -> ComparisonPlan:
    """The plan in a groups file. Raises TraceProblem."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TraceProblem(f"{path.name}: there is no such file in {path.parent}") from None
    except OSError as error:
        raise TraceProblem(f"{path.name}: cannot be read: {error.strerror}") from error
    except RecursionError:
        raise TraceProblem(f"{path.name}: is nested too deeply to be read as JSON") from None
    except ValueError as error:
        raise TraceProblem(f"{path.name}: cannot be read as JSON: {error}") from error
    if not isinstance(document, dict):
        raise TraceProblem(f"{path.name}: must hold one JSON object")
    key = "one_zone" if setting is PoolSetting.ONE_ZONE else "zones"
    entries = _part(document, key, list, path)
    slacks = _numbers(_part(document, "slacks", list, path), "slacks", path)
    chosen = overrides.slacks or slacks
    overheads = overrides.overhead_hours or _numbers(
        _of_setting(document, "overhead_hours", key, path), f"overhead_hours of {key}", path
    )
    starts = overrides.starts
    if starts is None:
        starts = _of_setting(document, "starts", key, path)
    job_hours = overrides.job_hours
    if job_hours is None:
        job_hours = _part(document, "job_hours", (int, float), path)
    _check_terms(_sources(path, overrides), chosen, overheads, starts, job_hours)
    _check_start_ups(overrides.start_ups)
    groups = tuple(_group(entry, number, path) for number, entry in enumerate(entries, 1))
    if not groups:
        raise TraceProblem(f"{path.name}: {key} names no group")
    if len({group.name for group in groups}) != len(groups):
        raise TraceProblem(f"{path.name}: two groups of {key} have the same name")
    longest = max(*slacks, *chosen)
    return ComparisonPlan(
        groups, chosen, overheads, float(job_hours), starts, longest, overrides.start_ups
    )


def cells_of(
    group: PoolGroup, trace: Trace, plan: ComparisonPlan, setting: PoolSetting
) -> Iterator[Cell]:
    """The group's cells. Raises TraceProblem when its pools or its length do not fit."""
    pools = trace.zones if group.pools is None else group.pools
    unknown = [pool for pool in pools if pool not in trace.zones]
    if unknown:
        raise TraceProblem(f"{trace.file} has no zone {', '.join(unknown)} ({group.name})")
    ticks = math.ceil(plan.longest_slack * plan.job_hours * 3600 / trace.gap_seconds) + 2
    if ticks > trace.ticks:
        raise TraceProblem(
            f"{trace.file} holds {trace.ticks} ticks, {ticks} are needed for a window "
            f"of {plan.longest_slack:g} x {plan.job_hours:g} h ({group.name})"
        )
    _check_ticks(group, trace, plan)
    starts = np.linspace(0, trace.ticks - ticks, plan.starts).astype(int).tolist()
    alone = setting is PoolSetting.ONE_ZONE
    sets = [(pool, (pool,)) for pool in pools] if alone else [(ALL_ZONES, pools)]
    for zone, chosen in sets:
        for start in starts:
            start_up = plan.start_ups.of_job(group.name, zone, start)
            for overhead_hours in plan.overhead_hours:
                for slack in plan.slacks:
                    yield Cell(
                        group, zone, chosen, start, ticks, slack, overhead_hours, plan.job_hours,
                        start_up,
                    )  # fmt: skip


def _check_ticks(group: PoolGroup, trace: Trace, plan: ComparisonPlan) -> None:
    """Whether on-demand alone is in time in whole ticks of the recording."""
    for slack in plan.slacks:
        had = math.floor(slack * plan.job_hours * 3600 / trace.gap_seconds + WHOLE_SECOND)
        for overhead in plan.restarts_hours:
            seconds = (plan.job_hours + overhead) * 3600
            needed = math.ceil(seconds / trace.gap_seconds - WHOLE_SECOND)
            if needed > had:
                raise TraceProblem(
                    f"{trace.file}: {plan.job_hours:g} h of work and {overhead:g} h to start need "
                    f"{needed} ticks of {trace.gap_seconds} s, and the deadline leaves {had} "
                    f"(slack {slack:g}, {group.name})"
                )


def _check_start_ups(start_ups: StartUps) -> None:
    if not 0 <= start_ups.least <= start_ups.most <= SECONDS_MAX:
        raise TraceProblem(
            f"--start-up-seconds must be from 0 to {SECONDS_MAX:g}, the lesser figure first"
        )


def _group(entry: Any, number: int, path: Path) -> PoolGroup:
    if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
        raise TraceProblem(f"{path.name}: group {number} names no file")
    file, gang, pools = entry["file"], entry.get("gang", 1), entry.get("zones")
    if Path(file).name != file:
        raise TraceProblem(f"{path.name}: group {number}: file is a name, not the path {file!r}")
    if isinstance(gang, bool) or not isinstance(gang, int) or not 1 <= gang <= COUNT_MAX:
        raise TraceProblem(
            f"{path.name}: group {number}: gang must be a count from 1 to {COUNT_MAX}"
        )
    if pools is not None and not (
        isinstance(pools, list) and pools and all(isinstance(pool, str) for pool in pools)
    ):
        raise TraceProblem(f"{path.name}: group {number}: zones must be a list of names")
    name = str(entry.get("name") or f"{Path(file).stem}>={gang}")
    return PoolGroup(name, file, gang, None if pools is None else tuple(dict.fromkeys(pools)))


def _part(document: Mapping[str, Any], key: str, kind: Any, path: Path) -> Any:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TraceProblem(f"{path.name}: {key} is missing, or of the wrong kind")
    return value


def _of_setting(document: Mapping[str, Any], key: str, setting: str, path: Path) -> Any:
    """A value that may be given for each setting, or once for both."""
    value = document.get(key)
    if isinstance(value, dict):
        value = value.get(setting)
    if value is None:
        raise TraceProblem(f"{path.name}: {key} is missing for {setting}")
    return value


def _numbers(values: Any, what: str, path: Path) -> tuple[float, ...]:
    listed = values if isinstance(values, list) else [values]
    if not listed or not all(
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
        for value in listed
    ):
        raise TraceProblem(f"{path.name}: {what} must be numbers up to {_LARGEST:g}")
    return tuple(float(value) for value in listed)


@dataclass(frozen=True)
class _Sources:
    """Where each figure comes from, as a sentence names it: an option, or a part of the file."""

    slack: str
    overhead_hours: str
    starts: str
    job_hours: str
    together: str


def _sources(path: Path, overrides: PlanOverrides) -> _Sources:
    def source(part: str, option: str, given: object) -> str:
        return f"{path.name}: {part}" if given is None else option

    options = {
        "--slack": overrides.slacks,
        "--overhead-hours": overrides.overhead_hours,
        "--job-hours": overrides.job_hours,
    }
    return _Sources(
        slack=source("a slack", "--slack", overrides.slacks),
        overhead_hours=source("overhead_hours", "--overhead-hours", overrides.overhead_hours),
        starts=source("starts", "--starts", overrides.starts),
        job_hours=source("job_hours", "--job-hours", overrides.job_hours),
        together=" and ".join(option for option, given in options.items() if given) or path.name,
    )


def _check_terms(
    told: _Sources,
    slacks: tuple[float, ...],
    overheads: tuple[float, ...],
    starts: Any,
    hours: Any,
) -> None:
    if not all(1 <= slack <= 100 for slack in slacks):
        raise TraceProblem(f"{told.slack} is deadline over job length, from 1 to 100")
    if not all(0 <= overhead <= 24 for overhead in overheads):
        raise TraceProblem(f"{told.overhead_hours} must be from 0 to 24")
    if isinstance(starts, bool) or not isinstance(starts, int) or not 1 <= starts <= 10_000:
        raise TraceProblem(f"{told.starts} must be a count from 1 to 10000")
    if not 0 < hours <= 10_000:
        raise TraceProblem(f"{told.job_hours} must be above 0 and at most 10000")
    for slack in slacks:
        for overhead in overheads:
            if slack * hours < hours + overhead:
                raise TraceProblem(
                    f"{told.together}: {hours:g} h of work and {overhead:g} h to start do not fit "
                    f"in {slack * hours:g} h (slack {slack:g})"
                )
