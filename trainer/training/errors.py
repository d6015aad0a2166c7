"""The errors that end a run with an exit code of their own. Standard library only."""

from __future__ import annotations


class ConfigError(ValueError):
    """The configuration cannot be used; the message says which key, why, and what would do."""


class CheckpointCorruptError(RuntimeError):
    """A checkpoint is not what was written; the message names the file and what is wrong."""
