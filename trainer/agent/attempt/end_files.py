"""How the trainer of this machine ended: end markers first, exit status only without them.

torchrun answers 1 to everything that is not success, so a rank writes `ended-rank<R>.json` beside
the progress file: `{"outcome", "step", "exit_code", "error": {...} | null, "at_seconds"}`. A user
command writes none: then 0 is finished, 75 is drained, anything else failed, and the last line of
its output that names an error says why.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from trainer.agent.rules.agent_state import TrainerEnd
from trainer.protocol.agent_report import (
    EXIT_DRAINED,
    STORE_UNAVAILABLE,
    TrainerError,
    TrainerOutcome,
)
from trainer.protocol.error_line import error_line

EXIT_FAILED = 1
MARKER_BYTES_MAX = 1 << 20
MESSAGE_CHARACTERS_MAX = 2_000
_UPTIME_SECONDS_MAX = 10 * 366 * 24 * 3_600
_RANK = re.compile(r"^(started|ended)-rank(\d{1,6})\.json$")
_OUTCOMES = {
    outcome.value: outcome
    for outcome in (TrainerOutcome.FINISHED, TrainerOutcome.DRAINED, TrainerOutcome.FAILED)
}
_MEMORY_FULL = "the kernel ended the process (SIGKILL), because the machine's memory was full"
_MEMORY_WAS_FULL = (
    "the machine's memory was full about then, and the kernel ended a process, maybe this one"
)
# As torchrun tells of a rank that a signal ended: "Signal 9 (SIGKILL) received by PID 31".
_SIGNAL_TOLD = re.compile(r"\bSignal (\d{1,3}) \(\S+\) received by PID (\d{1,9})\b")
_KILLED_CODES = (-signal.SIGKILL, 128 + signal.SIGKILL)
# As torchrun, torch's data loader and shells tell of a child that was killed.
_KILLED_WORDS = re.compile(r"\bSIGKILL\b|signal: Killed|^Killed$")
# As torch, CUDA and XLA say it; Python and NumPy begin their line with the name.
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|\b[Oo]ut of memory\b|^[\w.]*MemoryError\b")
_NOT_MET = ("DistStoreError", "DistNetworkError")
"""What torchrun ends with when another machine's torchrun did not come, by the error's type."""


@dataclass(frozen=True)
class EndMarker:
    """What one rank wrote last."""

    rank: int
    outcome: TrainerOutcome
    step: int | None
    exit_code: int | None
    error: TrainerError | None


def read_end(
    folder: Path,
    return_code: int,
    error_file: Path | None = None,
    asked_before_start: bool = False,
    printed: str = "",
    memory_was_full: bool = False,
) -> TrainerEnd:
    """Decide the end from the markers in `folder`, torchrun's error file and the exit status.

    return_code: as subprocess gives it, negative for a signal. All ranks finished or all drained
    is an end whatever the exit status says; a rank that started and left no marker was killed.
    asked_before_start: the bundled trainer was told to stop before any rank could listen; torchrun
    then answers 1, but nothing had begun. printed: the end of a command's output, which names the
    error where nothing else does. memory_was_full: the kernel has just ended a process for it,
    any of the machine: a rank ran out of memory only if SIGKILL is told of it.
    """
    started, ended = read_markers(folder)
    if not started and not ended:
        if asked_before_start:
            return TrainerEnd(TrainerOutcome.DRAINED, EXIT_DRAINED)
        return _end_by_status(return_code, error_file, printed, memory_was_full)
    step = max((marker.step for marker in ended if marker.step is not None), default=None)
    failed = [marker for marker in ended if marker.outcome is TrainerOutcome.FAILED]
    silent = sorted(started - {marker.rank for marker in ended})
    if failed or silent or not ended:
        signals = _signals_told(folder, silent, printed, return_code)
        return _failed_end(failed, silent, return_code, step, signals, memory_was_full)
    drained = any(marker.outcome is TrainerOutcome.DRAINED for marker in ended)
    if drained:
        return TrainerEnd(TrainerOutcome.DRAINED, EXIT_DRAINED, step)
    return TrainerEnd(TrainerOutcome.FINISHED, 0, step)


def failed_already(folder: Path, is_dead: Callable[[int], bool]) -> TrainerEnd | None:
    """The end of a rank that failed of itself by now, while others may still run; or None.

    Asked right before the rest is killed: afterwards every rank looks the same. Losing a peer is
    no failure of its own.
    """
    started, ended = read_markers(folder)
    own = [
        marker
        for marker in ended
        if marker.outcome is TrainerOutcome.FAILED
        and not (marker.error is not None and marker.error.peer_communication)
    ]
    dead = []
    for rank in sorted(started - {marker.rank for marker in ended}):
        pid = _pid(folder, rank)
        if pid is not None and is_dead(pid):
            dead.append(rank)
    if not own and not dead:
        return None
    step = max((marker.step for marker in own if marker.step is not None), default=None)
    return replace(_failed_end(own, dead, EXIT_FAILED, step, {}), before_kill=True)


def _pid(folder: Path, rank: int) -> int | None:
    return _whole(_read_json(folder / f"started-rank{rank}.json").get("pid"))


def _signals_told(
    folder: Path, silent: list[int], printed: str, return_code: int
) -> dict[int, int]:
    """By silent rank the signal that ended it, as far as anybody told.

    torchrun prints it with the process; a launcher or a command that was killed itself takes all of
    its ranks along.
    """
    by_pid = {int(pid): int(number) for number, pid in _SIGNAL_TOLD.findall(printed)}
    whole = signal.SIGKILL if return_code in _KILLED_CODES else max(0, -return_code)
    told = {rank: by_pid.get(_pid(folder, rank) or 0, whole) for rank in silent}
    return {rank: number for rank, number in told.items() if number}


def started_pids(folder: Path) -> list[int]:
    """Processes of the ranks that have started here, by rank; they may have ended since."""
    pids = (
        _whole(_read_json(path).get("pid")) for path in sorted(folder.glob("started-rank*.json"))
    )
    return [pid for pid in pids if pid is not None]


def all_ended_well(folder: Path, ranks: int) -> bool:
    """Whether so many ranks have written that they finished or drained: nothing is left to do."""
    _, ended = read_markers(folder)
    well = [marker for marker in ended if marker.outcome is not TrainerOutcome.FAILED]
    return len(well) == len(ended) == ranks


def read_markers(folder: Path) -> tuple[frozenset[int], list[EndMarker]]:
    """(ranks that started, markers of those that ended by their own word)."""
    started, ended = set(), []
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return frozenset(), []
    for name in names:
        match = _RANK.match(name)
        if match is None:
            continue
        rank = int(match[2])
        started.add(rank)
        marker = _read_marker(folder / name, rank) if match[1] == "ended" else None
        if marker is not None:
            ended.append(marker)
    return frozenset(started), ended


def _read_marker(path: Path, rank: int) -> EndMarker | None:
    document = _read_json(path)
    outcome = _OUTCOMES.get(str(document.get("outcome")))
    if outcome is None:
        return None
    error, at = document.get("error"), document.get("at_seconds")
    described = None
    if isinstance(error, dict):
        described = TrainerError(
            message=str(error.get("message", ""))[:MESSAGE_CHARACTERS_MAX],
            rank=rank,
            type=_type_of(error),
            out_of_memory=error.get("out_of_memory") is True,
            peer_communication=error.get("peer_communication") is True,
            failed_uptime_ms=round(at * 1000) if _is_uptime(at) else None,
        )
    return EndMarker(
        rank,
        outcome,
        _whole(document.get("step")),
        _whole(document.get("exit_code")),
        described,
    )


def _type_of(error: dict[str, Any]) -> str | None:
    """The error's type; data that did not answer by the word that the control plane knows."""
    if error.get("kind") == STORE_UNAVAILABLE:
        return STORE_UNAVAILABLE
    return str(error["type"])[:200] if error.get("type") else None


def _failed_end(
    failed: list[EndMarker],
    silent: list[int],
    return_code: int,
    step: int | None,
    signals: dict[int, int],
    memory_was_full: bool = False,
) -> TrainerEnd:
    """The earliest rank that failed by itself; then a killed one; then one that lost a peer.

    signals: what ended silent ranks, as far as that is told.
    """

    def order(marker: EndMarker) -> tuple[bool, float, int]:
        error = marker.error
        at = error.failed_uptime_ms if error and error.failed_uptime_ms is not None else None
        return (
            bool(error and error.peer_communication),
            float("inf") if at is None else float(at),
            marker.rank,
        )

    failed = sorted(failed, key=order)
    own = [marker for marker in failed if not (marker.error and marker.error.peer_communication)]
    if own or (failed and not silent):
        first = (own or failed)[0]
        error = first.error or TrainerError("the rank failed and gave no reason", first.rank)
        return TrainerEnd(TrainerOutcome.FAILED, first.exit_code, step, error)
    rank = next((one for one in silent if one in signals), silent[0] if silent else None)
    number = None if rank is None else signals.get(rank)
    if memory_was_full and number == signal.SIGKILL:
        error = TrainerError(f"rank {rank}: {_MEMORY_FULL}", rank, "Killed", out_of_memory=True)
        return TrainerEnd(TrainerOutcome.FAILED, return_code, step, error)
    how = _signal_name(number) if number else "it was killed or crashed"
    killed = TrainerError(
        message=f"rank {rank} ended without a word: {how}"
        + (f"; {_MEMORY_WAS_FULL}" if memory_was_full and number is None else ""),
        rank=rank,
        type="Killed",
        signal=number,
    )
    return TrainerEnd(TrainerOutcome.FAILED, return_code, step, killed)


def _end_by_status(
    return_code: int, error_file: Path | None, printed: str, memory_was_full: bool
) -> TrainerEnd:
    if return_code == 0:
        return TrainerEnd(TrainerOutcome.FINISHED, 0)
    if return_code == EXIT_DRAINED:
        return TrainerEnd(TrainerOutcome.DRAINED, EXIT_DRAINED)
    said = _torchrun_error(error_file) if error_file is not None else None
    message = said or error_line(printed) or "it printed no error"
    was_killed = return_code in _KILLED_CODES or _KILLED_WORDS.search(message) is not None
    if memory_was_full and was_killed:
        error = TrainerError(_MEMORY_FULL, type="Killed", out_of_memory=True)
        return TrainerEnd(TrainerOutcome.FAILED, return_code, None, error)
    if return_code < 0:
        number = -return_code
        error = TrainerError(
            f"the command was ended by {_signal_name(number)}", type="Signal", signal=number
        )
        return TrainerEnd(TrainerOutcome.FAILED, return_code, None, error)
    if said is not None and said.startswith(_NOT_MET):
        told = f"the machines of the gang did not meet: {said}"
        lonely = TrainerError(told, type="RendezvousError", peer_communication=True)
        return TrainerEnd(TrainerOutcome.FAILED, return_code, None, lonely)
    error = TrainerError(message, out_of_memory=_OUT_OF_MEMORY.search(message) is not None)
    return TrainerEnd(TrainerOutcome.FAILED, return_code, None, error)


def _torchrun_error(path: Path) -> str | None:
    """The message of torchrun's error file: {"message": text | {"message", "extraInfo"}}."""
    message = _read_json(path).get("message")
    if isinstance(message, dict):
        message = message.get("message")
    return str(message)[:MESSAGE_CHARACTERS_MAX] if message else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MARKER_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_uptime(value: object) -> TypeGuard[float]:
    """Seconds as a machine's uptime can be; JSON as it is read here also has NaN and 1e999."""
    return isinstance(value, int | float) and 0 <= value < _UPTIME_SECONDS_MAX


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
