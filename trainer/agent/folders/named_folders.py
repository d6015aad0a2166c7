"""The folders a job names, inputs and outputs, as its command finds them on this machine.

In a container they are mounts at their very paths. On a rented machine they are links there; on
the local cloud, whose machines share one file system, links below the machine's own folder. The
variables LOWTIDE_INPUT_… and LOWTIDE_OUTPUT_… say where in every case. Not here: their content
(`input_folders`, `output_folders`).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.agent.machine.machine_folders import AttemptFolders, MachineFolders
from trainer.protocol.run_config import RunConfig, folder_variable


class FolderTaken(Exception):
    """Something of the machine's own lies where a folder is to be; the message names it."""


@dataclass(frozen=True)
class Mount:
    """A folder of this machine at a path in a container."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class NamedFolders:
    """What is where: paths as the command sees them, by the names of the spec."""

    variables: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()


def output_folders(config: RunConfig, attempt: AttemptFolders) -> dict[str, Path]:
    """Where an attempt's outputs lie on this machine, by their names in the spec."""
    return {path: attempt.output(number) for number, path in enumerate(sorted(config.outputs))}


def present(
    config: RunConfig,
    inputs: Mapping[str, Path],
    machine: MachineFolders,
    attempt: AttemptFolders,
    paths_root: Path,
) -> NamedFolders:
    """Make empty output folders, and every folder appear at its path.

    paths_root: below it whole paths are linked; nothing is where the job runs in a container.
    Raises FolderTaken and OSError.
    """
    outputs = output_folders(config, attempt)
    for folder in outputs.values():
        folder.mkdir(parents=True)
        machine.give_away(folder)
    variables, mounts = {}, []
    for noun, folders in (("INPUT", inputs), ("OUTPUT", outputs)):
        for path, folder in folders.items():
            if path.startswith("/") and config.image is not None:
                mounts.append(Mount(folder, path, read_only=noun == "INPUT"))
                variables[folder_variable(noun, path)] = path
                continue
            if path.startswith("/"):
                link = paths_root / path.lstrip("/")
                _require_free(link, machine.root)
            else:
                link = machine.workdir / path
                _clear(link, machine)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(folder)
            variables[folder_variable(noun, path)] = str(link)
    return NamedFolders(variables, tuple(mounts))


def _clear(link: Path, machine: MachineFolders) -> None:
    """In the working folder an output begins empty, whatever was packed there."""
    root = machine.workdir.resolve()
    # The command could have put a link there in an earlier attempt, to lead us elsewhere.
    if link.parent.resolve() != root / link.parent.relative_to(machine.workdir):
        raise FolderTaken(f"{link.parent} leads out of the working folder; remove that link")
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)


def _require_free(link: Path, ours: Path) -> None:
    """Remove our own link of an earlier attempt, or an empty folder; nothing else."""
    if link.is_symlink():
        if not link.readlink().is_relative_to(ours):
            raise FolderTaken(f"{link} is a link of this machine's image; choose another path")
        link.unlink()
    elif link.is_dir() and not any(link.iterdir()):
        link.rmdir()
    elif link.exists():
        raise FolderTaken(f"{link} holds files of this machine's image; choose another path")
