"""What is said of a job's name that no job has: the near ones, where a letter may be wrong."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

_NAMES_MAX: Final = 3
_CUTOFF: Final = 0.6
_WORD_MAX: Final = 80


def no_such_job(written: str, names: Sequence[str]) -> str:
    """The sentence for a person. names: of jobs of the project, those to prefer first."""
    word = written[:_WORD_MAX]
    told = f"There is no job {word!r} in this project"
    near = difflib.get_close_matches(word.lower(), list(dict.fromkeys(names)), _NAMES_MAX, _CUTOFF)
    if not near:
        return f"{told}; see the list of jobs (`lowtide jobs`)."
    *others, last = map(repr, near)
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"{told}; did you mean {listed}?"
