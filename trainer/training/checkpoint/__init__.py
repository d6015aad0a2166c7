"""Checkpoints: taken beside training, hashed, committed by rename, verified before they are used.

``checkpoint_engine.py`` saves (``snapshot.py`` copies, ``tensor_slices.py`` lays out,
``writing.py`` and ``files.py`` write, ``folder.py`` commits), ``reader.py`` reads,
``content_hash.py`` is the hash, ``manifest.py`` the last file. ``python -m
trainer.training.checkpoint FOLDER`` shows, verifies and exports one. What is in a checkpoint,
``rank_run.py`` decides. The format for other readers: docs/checkpoints.md.
"""

from trainer.training.checkpoint.checkpoint_engine import CheckpointEngine, InFlight
from trainer.training.checkpoint.folder import CheckpointFolder, KeepRule
from trainer.training.checkpoint.manifest import read_manifest
from trainer.training.checkpoint.reader import CheckpointReader, load_checkpoint, own_tensors
from trainer.training.checkpoint.writing import Saved, Writer

__all__ = [
    "CheckpointEngine",
    "CheckpointFolder",
    "CheckpointReader",
    "InFlight",
    "KeepRule",
    "Saved",
    "Writer",
    "load_checkpoint",
    "own_tensors",
    "read_manifest",
]
