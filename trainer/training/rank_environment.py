"""Who this process is and where it may write: the environment variables it was started with.

Set by the launcher (RANK, LOCAL_RANK, WORLD_SIZE) and by whoever starts the launcher (LOWTIDE_*).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.training.errors import ConfigError


@dataclass(frozen=True)
class RankEnvironment:
    """One rank's place in the gang and its folders, all on this machine.

    ``checkpoint_dir`` is written by rank 0 only. ``resume_dir`` holds one complete checkpoint, or
    is None for a fresh start. ``end_dir`` receives ``started-rank<R>.json`` and
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


def read_rank_environment(variables: Mapping[str, str]) -> RankEnvironment:
    """Reads the process environment. Raises ``ConfigError`` naming the variable."""
    progress_file = _required_path(variables, "LOWTIDE_PROGRESS_FILE")
    resume_dir = variables.get("LOWTIDE_RESUME_DIR", "")
    end_dir = variables.get("LOWTIDE_END_FILE_DIR", "")
    return RankEnvironment(
        rank=_whole_number(variables, "RANK", 0),
        local_rank=_whole_number(variables, "LOCAL_RANK", 0),
        world_size=_whole_number(variables, "WORLD_SIZE", 1),
        checkpoint_dir=_required_path(variables, "LOWTIDE_CHECKPOINT_DIR"),
        resume_dir=Path(resume_dir) if resume_dir else None,
        progress_file=progress_file,
        end_dir=Path(end_dir) if end_dir else progress_file.parent,
        fence=_whole_number(variables, "LOWTIDE_FENCE", 0),
        under_torchrun="TORCHELASTIC_RUN_ID" in variables,
    )


def _required_path(variables: Mapping[str, str], name: str) -> Path:
    value = variables.get(name, "")
    if not value:
        raise ConfigError(f"the environment variable {name} is not set")
    return Path(value)


def _whole_number(variables: Mapping[str, str], name: str, default: int) -> int:
    value = variables.get(name, "")
    if not value:
        return default
    if not (value.isascii() and value.isdigit()):
        raise ConfigError(f"the environment variable {name} is {value!r}, not a whole number")
    return int(value)
