"""Finding and reading the checkpoint to go on from: verified by all ranks, or passed over by all.

``LOWTIDE_RESUME_DIR`` names one checkpoint, or a folder of them: then the newest complete one that
verifies is taken, and a damaged one is moved out of the way. Each rank of a machine verifies its
share of the chunks, and none uses a byte before all have agreed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.training.checkpoint import CheckpointFolder, CheckpointReader, own_tensors
from trainer.training.checkpoint.manifest import MANIFEST
from trainer.training.gang.distributed import Gang
from trainer.training.gang.rank_environment import RankEnvironment
from trainer.training.loop.module_state import BUFFERS
from trainer.training.saving.own_tensors import own_state_of
from trainer.training.training_errors import CheckpointCorruptError, ConfigError

CANDIDATES_MAX = 64
_ALWAYS_THERE = ("weights", "training_state")


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A verified checkpoint. ``weights`` are views of the files, ``training_state`` is a copy;
    ``random`` is this rank's random state, None when another number of ranks was training;
    ``own`` what the rank had besides (``module_state.py``), as far as anybody can go on with it.
    """

    manifest: dict[str, Any]
    weights: dict[str, Any]
    training_state: dict[str, Any]
    random: dict[str, Tensor] | None
    own: dict[str, Any]


def restore(
    folder: Path, environment: RankEnvironment, gang: Gang, identity: Mapping[str, Any]
) -> LoadedCheckpoint | None:
    """Reads the checkpoint in ``folder``, or the newest good one below it; None if it has none.

    A collective. Raises ``CheckpointCorruptError`` on all ranks if nothing that is there can be
    used, ``ConfigError`` if it belongs to another run.
    """
    reader = _agreed_reader(folder, environment, gang)
    if reader is None:
        return None
    _check_identity(reader.manifest, identity)
    contents = reader.read()
    mine = None
    tensors = reader.tensors("training_state")
    same_ranks = reader.manifest["world_size"] == gang.world_size
    if same_ranks:
        prefix = f"random.{gang.rank}."
        mine = {
            key.removeprefix(prefix): tensor
            for key, tensor in tensors.items()
            if key.startswith(prefix)
        }
    return LoadedCheckpoint(
        manifest=reader.manifest,
        weights=contents["weights"],
        # The optimizer keeps what it is given: not the mapped file.
        training_state=own_tensors(_training_state(reader.manifest, contents)),
        random=mine or None,
        own=_own_state(tensors, gang.rank if same_ranks else 0),
    )


def _own_state(tensors: Mapping[str, Tensor], rank: int) -> dict[str, Any]:
    """The rank's own; of buffers that it did not save, the first rank's."""
    first, mine = own_state_of(0, tensors), own_state_of(rank, tensors)
    buffers = {**first.get(BUFFERS, {}), **mine.get(BUFFERS, {})}
    return {**mine, BUFFERS: buffers}


def check_weights(
    weights: Mapping[str, Any], model: Mapping[str, Any], any_form: Collection[str] = ()
) -> None:
    """Raises ``ConfigError`` naming the first tensor that the model has otherwise.

    any_form: keys of extra states, which may be anything.
    """
    for key in sorted(weights.keys() | model.keys()):
        if key not in weights or key not in model:
            here, there = ("model", "checkpoint") if key in model else ("checkpoint", "model")
            raise ConfigError(
                f"model: the checkpoint is of another one: {key} is in the {here},"
                f" not in the {there}"
            )
        if key not in any_form and weights[key].shape != model[key].shape:
            raise ConfigError(
                f"model: the checkpoint is of another one: {key} has the shape"
                f" {tuple(weights[key].shape)} there and {tuple(model[key].shape)} here"
            )


def _training_state(manifest: Mapping[str, Any], contents: Mapping[str, Any]) -> dict[str, Any]:
    """With what lay in files of its own, as far as it came along."""
    apart = {group: tree for group, tree in contents.items() if group not in _ALWAYS_THERE}
    if manifest.get("optional") and not apart:
        print(
            "note: the averages of the weights were left behind at a notice that was too short;"
            " they begin anew from the weights",
            flush=True,
        )
    return {**contents["training_state"], **apart}


def _agreed_reader(
    folder: Path, environment: RankEnvironment, gang: Gang
) -> CheckpointReader | None:
    if gang.any(folder.name.startswith("step-") or (folder / MANIFEST).exists()):
        reader, problems = _verified(folder, environment, gang)
        if reader is None:
            raise CheckpointCorruptError(problems[0])
        return reader
    damaged = False
    for _ in range(CANDIDATES_MAX):
        newest = _steps_below(folder, gang)
        if not newest:
            break
        reader, problems = _verified(folder / newest[0], environment, gang)
        if reader is not None:
            return reader
        damaged = True
        if gang.rank == 0:
            print(f"warning: {problems[0]}; trying the one before", file=sys.stderr, flush=True)
        if environment.local_rank == 0:
            CheckpointFolder(folder).quarantine(folder / newest[0])
        gang.barrier()
    if damaged:
        raise CheckpointCorruptError(f"no checkpoint in {folder} is as it was written")
    return None


def _steps_below(folder: Path, gang: Gang) -> list[str]:
    """Names of the complete checkpoints that every machine has, newest first."""
    names = [path.name for path in CheckpointFolder(folder).complete()]
    everywhere = set(names).intersection(*gang.gather(names))
    return [name for name in names if name in everywhere]


def _verified(
    folder: Path, environment: RankEnvironment, gang: Gang
) -> tuple[CheckpointReader | None, list[str]]:
    """The opened checkpoint if all ranks found it good and the same; else what they found."""
    reader, problem, digest = None, "", ""
    try:
        reader = CheckpointReader(folder)
        digest = reader.manifest["digest"]
        reader.verify(environment.local_rank, environment.local_world_size)
    except CheckpointCorruptError as error:
        problem = str(error)
    answers = gang.gather((problem, digest))
    problems = [f"rank {rank}: {each[0]}" for rank, each in enumerate(answers) if each[0]]
    for rank, (_, other) in enumerate(answers):
        if not problems and other != answers[0][1]:
            problems = [f"rank {rank} has another checkpoint than rank 0"]
    return (None, problems) if problems else (reader, [])


def _check_identity(manifest: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    # As JSON has it: a list where the configuration has a tuple.
    for key, mine in json.loads(json.dumps(dict(identity))).items():
        if manifest["identity"].get(key) != mine:
            raise ConfigError(
                f"{key}: {mine!r} cannot continue a checkpoint made with"
                f" {manifest['identity'].get(key)!r}"
            )
    made_with, here = manifest.get("torch"), torch.__version__
    if made_with != here:
        print(
            f"note: the checkpoint was made with PyTorch {made_with}, this is {here}:"
            " the last bits of losses may differ",
            flush=True,
        )
