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
    written before that step.
    """


class StepOutOfMemoryError(RuntimeError):
    """A step does not fit into memory; the message says what needs how much, and what would do."""


class CheckpointNotSavedError(RuntimeError):
    """The last checkpoint of an attempt could not be written; the message says why, and which
    step is the newest that is safe.
    """


_MEMORY_TYPES = ("OutOfMemoryError", "MemoryError")
# cudaErrorMemoryAllocation. Source: CUDA Runtime API, cudaError_t.
_CUDA_OUT_OF_MEMORY = 2


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the GPU's memory was short, or Python's: by type and number, never by the words.

    torch's own allocator for CPUs has no type for it: there it is an error like others.
    """
    name = type(error).__name__
    if name == "AcceleratorError":
        return getattr(error, "error_code", None) == _CUDA_OUT_OF_MEMORY
    return isinstance(error, StepOutOfMemoryError) or name in _MEMORY_TYPES


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
