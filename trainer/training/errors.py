"""The errors that end a run with an exit code of their own. Standard library only."""

from __future__ import annotations


class ConfigError(ValueError):
    """The configuration cannot be used; the message says which key, why, and what would do."""


class CheckpointCorruptError(RuntimeError):
    """A checkpoint is not what was written; the message names the file and what is wrong."""


class DataError(ConfigError):
    """The data cannot be trained on as it is; the message names the file and what is wrong."""


class DataUnavailableError(RuntimeError):
    """A bucket does not answer; the message names it. Worth another try."""


class RendezvousError(RuntimeError):
    """Not all ranks have met; the message says which are missing, and where they are awaited."""


class PreflightError(RuntimeError):
    """The ranks met but do not fit together; the message names the node and what is wrong."""


class LossNotFiniteError(FloatingPointError):
    """The loss is not a number any more; the message says at which step. The last checkpoint was
    written before that step."""


class StepOutOfMemoryError(RuntimeError):
    """A step does not fit into memory; the message says what needs how much, and what would do."""


class CheckpointNotSavedError(RuntimeError):
    """The last checkpoint of an attempt could not be written; the message says why, and which
    step is the newest that is safe."""


_MEMORY_TYPES = ("OutOfMemoryError", "MemoryError")
_MEMORY_PHRASES = ("out of memory", "can't allocate memory", "not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the processor's or the GPU's memory was short; torch mostly says so in text only."""
    if isinstance(error, StepOutOfMemoryError) or type(error).__name__ in _MEMORY_TYPES:
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and any(each in said for each in _MEMORY_PHRASES)


# What says all there is to say: a traceback would only bury it.
ONE_LINE_ERRORS = (
    ConfigError,
    CheckpointCorruptError,
    CheckpointNotSavedError,
    DataUnavailableError,
    RendezvousError,
    PreflightError,
    LossNotFiniteError,
    StepOutOfMemoryError,
)
