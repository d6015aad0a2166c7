"""Who this process is and where it may write: the environment variables it was started with.

Set by the launcher (RANK, LOCAL_RANK, WORLD_SIZE, GROUP_RANK) and by whoever starts the launcher
(LOWTIDE_*).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.training.training_errors import ConfigError


@dataclass(frozen=True)
class RankEnvironment:
    """One rank's place in the gang and its folders, all on this machine.

    ``checkpoint_dir`` is this machine's own where ``saves_together``: then every machine saves its
    share of a checkpoint; else only the first one's ranks write. ``resume_dir`` holds one complete
    checkpoint, or is None for a fresh start. ``end_dir`` receives ``started-rank<R>.json`` and
    ``ended-rank<R>.json``. ``under_torchrun`` is false when one process was started by hand.
    """

    rank: int
    local_rank: int
    world_size: int
    checkpoint_dir: Path
    resume_dir: Path | None
    progress_file: Path
    end_dir: Path
    fence: int
    under_torchrun: bool
    node_rank: int = 0
    local_world_size: int = 1
    saves_together: bool = False


def read_rank_environment(
    variables: Mapping[str, str], folder: Path | None = None, *, fresh: bool = False
) -> RankEnvironment:
    """Reads the process environment. Raises ``ConfigError`` naming the variable.

    ``folder`` holds what no variable names a place for. A run that keeps its checkpoints there
    goes on from the newest of them, unless it is to begin ``fresh`` or LOWTIDE_RESUME_DIR is set.
    """
    progress_file = _path(variables, "LOWTIDE_PROGRESS_FILE", folder, "progress.jsonl")
    checkpoint_dir = _path(variables, "LOWTIDE_CHECKPOINT_DIR", folder, "checkpoints")
    resume_dir = variables.get("LOWTIDE_RESUME_DIR", "")
    if not variables.get("LOWTIDE_CHECKPOINT_DIR") and "LOWTIDE_RESUME_DIR" not in variables:
        resume_dir = "" if fresh else str(checkpoint_dir)
    end_dir = variables.get("LOWTIDE_END_FILE_DIR", "")
    return RankEnvironment(
        rank=_whole_number(variables, "RANK", 0),
        local_rank=_whole_number(variables, "LOCAL_RANK", 0),
        world_size=_whole_number(variables, "WORLD_SIZE", 1),
        checkpoint_dir=checkpoint_dir,
        resume_dir=Path(resume_dir) if resume_dir else None,
        progress_file=progress_file,
        end_dir=Path(end_dir) if end_dir else progress_file.parent,
        fence=_whole_number(variables, "LOWTIDE_FENCE", 0),
        under_torchrun="TORCHELASTIC_RUN_ID" in variables,
        node_rank=_whole_number(variables, "GROUP_RANK", 0),
        local_world_size=_whole_number(variables, "LOCAL_WORLD_SIZE", 1),
        saves_together=variables.get("LOWTIDE_CHECKPOINT_SHARES", "") == "1",
    )


def _path(variables: Mapping[str, str], name: str, folder: Path | None, default: str) -> Path:
    value = variables.get(name, "")
    if value:
        return Path(value)
    if folder is None:
        raise ConfigError(f"the environment variable {name} is not set")
    return folder / default


def _whole_number(variables: Mapping[str, str], name: str, default: int) -> int:
    value = variables.get(name, "")
    if not value:
        return default
    if not (value.isascii() and value.isdigit()):
        raise ConfigError(f"the environment variable {name} is {value!r}, not a whole number")
    return int(value)
