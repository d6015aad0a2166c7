"""What people call a job's attempts: by their count, 1, 2, 3, wherever a number is read.

Lives here: an attempt, the program it runs and its log as people read them. Not here: fences, which
order attempts, leave numbers out after a gap, and are the key of all that an attempt stores
(`entities`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from app.domain.wording.machine_words import machines_in_words, node_words

LOG_STREAM: Final = re.compile(r"attempt-(\d{1,9})/node-(\d{1,9})\.log")
"""A machine's part of an attempt, which is named by its fence."""


def attempt_words(ordinals: Mapping[int, int], fence: int) -> str:
    """ "attempt 2"; ordinals: of the job's attempts, by fence.

    An attempt whose row was lost has no ordinal: its fence tells it from those that have one.
    """
    ordinal = ordinals.get(fence)
    return f"the attempt with fence {fence}" if ordinal is None else f"attempt {ordinal}"


def sentence_about(ordinals: Mapping[int, int], fence: int, told: str) -> str:
    """ "Attempt 2 ended."; told: what the attempt did."""
    name = attempt_words(ordinals, fence)
    return f"{name[:1].upper()}{name[1:]} {told}"


CommandKind = Literal["trainer", "run"]
"""Whether the bundled trainer does the work or the user's own command."""


def program_starting(kind: CommandKind, machines: int, origin: str) -> str:
    """That the first program of an attempt starts. origin: ", from step 20", or "" of a first one.

    That is before its first step, so the sentence speaks of the program, not of training.
    """
    return f"The {_program(kind)} is starting on {machines_in_words(machines)}{origin}."


def program_ended(kind: CommandKind, rank: int, machines: int, outcome: str) -> str:
    """How the program of one machine ended, by its rank."""
    return f"The {_program(kind)} on {node_words(rank, machines)} ended: {outcome}."


def work_finished(kind: CommandKind, machines: int) -> str:
    """That all of the work is done."""
    done = "Training is complete" if kind == "trainer" else "The command has finished"
    return f"{done}{'' if machines == 1 else ' on every machine'}."


def _program(kind: CommandKind) -> str:
    return "trainer" if kind == "trainer" else "command"


def stream_words(stream: str, ordinal: int | None) -> str:
    """ "attempt-0002/node-0.log": a stream's name with the ordinal in place of the fence.

    Without an ordinal it is "fence-0007/node-0.log", which cannot pass for that of attempt 7.
    """
    found = LOG_STREAM.fullmatch(stream)
    if found is None:
        return stream
    if ordinal is None:
        return f"fence-{found[1]}/node-{found[2]}.log"
    return named_stream(ordinal, int(found[2]))


def stream_ordinal(stream: str, ordinals: Mapping[int, int]) -> int | None:
    """The ordinal of the attempt that a stream is of; None of a stream of another name."""
    found = LOG_STREAM.fullmatch(stream)
    return None if found is None else ordinals.get(int(found[1]))


def named_stream(number: int, rank: int) -> str:
    """The stream of one machine, by its rank, in the attempt of a number."""
    return f"attempt-{number:04d}/node-{rank}.log"
