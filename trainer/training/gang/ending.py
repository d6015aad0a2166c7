"""How a rank ended: the marker files next to the progress file.

``started-rank<R>.json`` says which process the rank is. ``ended-rank<R>.json`` is written last and
at once (temporary file, then rename). torchrun turns every non-zero exit into 1, so these markers,
not the launcher's exit code, tell what happened. A rank without a marker was killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from trainer.training.gang.rank_environment import RankEnvironment
from trainer.training.reporting.progress import boot_seconds
from trainer.training.training_errors import (
    CheckpointCorruptError,
    CheckpointNotSavedError,
    ConfigError,
    DataUnavailableError,
    LossNotFiniteError,
    PreflightError,
    RendezvousError,
    is_out_of_memory,
)

EXIT_FINISHED = 0
EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_CHECKPOINT_CORRUPT = 65
EXIT_DRAINED = 75
_ROOM_BYTES = 4096

Outcome = Literal["finished", "drained", "failed"]
_OWN_KINDS: dict[type[BaseException], str] = {
    ConfigError: "configuration",
    CheckpointCorruptError: "checkpoint_corrupt",
    CheckpointNotSavedError: "checkpoint_not_saved",
    DataUnavailableError: "store_unavailable",
    RendezvousError: "rendezvous",
    PreflightError: "preflight",
    LossNotFiniteError: "loss_not_finite",
}
_PEER_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError")


@dataclass(frozen=True)
class EndError:
    """Why a rank failed. ``kind`` is one of configuration, checkpoint_corrupt,
    checkpoint_not_saved, store_unavailable, out_of_memory, peer_communication, rendezvous,
    preflight, loss_not_finite, exception; ``message`` is one line.
    """

    kind: str
    type: str
    message: str
    out_of_memory: bool
    peer_communication: bool


@dataclass(frozen=True)
class Ending:
    """The end of one rank. ``step`` is the last finished step (0 if it never trained).

    ``reason`` says why a run is finished before its last step, "" if it is not.
    """

    outcome: Outcome
    step: int
    exit_code: int
    error: EndError | None = None
    reason: str = ""


def failure(
    error: BaseException, step: int, lost_a_peer: Callable[[], bool] = lambda: False
) -> Ending:
    """The ending that an exception makes: its kind and exit code.

    lost_a_peer: looks whether another rank has gone; asked about errors that do not say it.
    """
    text = " ".join(str(error).split())[:1000]
    kind = _kind(error, lost_a_peer)
    codes = {"configuration": EXIT_CONFIG, "checkpoint_corrupt": EXIT_CHECKPOINT_CORRUPT}
    described = EndError(
        kind=kind,
        type=type(error).__name__,
        message=text,
        out_of_memory=kind == "out_of_memory",
        # Whoever waited in vain has not failed of itself.
        peer_communication=kind in ("peer_communication", "rendezvous"),
    )
    return Ending("failed", step, codes.get(kind, EXIT_FAILED), described)


def _kind(error: BaseException, lost_a_peer: Callable[[], bool]) -> str:
    for error_type, kind in _OWN_KINDS.items():
        if isinstance(error, error_type):
            return kind
    if is_out_of_memory(error):
        return "out_of_memory"
    if type(error).__name__ in _PEER_TYPES:
        return "peer_communication"
    # gloo raises plain RuntimeErrors, as much else does.
    if isinstance(error, RuntimeError) and lost_a_peer():
        return "peer_communication"
    return "exception"


def write_started(environment: RankEnvironment) -> None:
    """Says which process this rank is, so that its stacks can be asked for."""
    marker = {
        "rank": environment.rank,
        "local_rank": environment.local_rank,
        "world_size": environment.world_size,
        "fence": environment.fence,
        "pid": os.getpid(),
        "at_seconds": boot_seconds(),
    }
    # A marker of an earlier attempt in the same folder must not be taken for ours.
    _ended_path(environment).unlink(missing_ok=True)
    _write_at_once(environment.end_dir / f"started-rank{environment.rank}.json", marker)
    # Room for the marker that counts, which must be written even when the disk is full.
    with suppress(OSError):
        _room_path(environment).write_bytes(b" " * _ROOM_BYTES)


def write_ending(environment: RankEnvironment, ending: Ending) -> None:
    """Writes the marker that counts; durable when this returns."""
    marker = {"rank": environment.rank, "fence": environment.fence, **asdict(ending)}
    marker["at_seconds"] = boot_seconds()
    room = _room_path(environment)
    try:
        _write_at_once(_ended_path(environment), marker)
        room.unlink(missing_ok=True)
    except OSError:
        # Written over the room that was kept for it, and padded with what JSON passes over.
        with room.open("r+b") as file:
            file.write(json.dumps(marker).encode().ljust(_ROOM_BYTES))
            file.flush()
            os.fsync(file.fileno())
        room.replace(_ended_path(environment))


def _room_path(environment: RankEnvironment) -> Path:
    return environment.end_dir / f"ended-rank{environment.rank}.json.room"


def _ended_path(environment: RankEnvironment) -> Path:
    return environment.end_dir / f"ended-rank{environment.rank}.json"


def _write_at_once(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
