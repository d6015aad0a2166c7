"""Collects what several checks of a spec refuse, so that a person is told all of it at once.

Not here: the checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.units.errors import SpecError, SpecProblem


class CollectedProblems:
    """Problems in the order of the checks; of one field only the first, as later ones follow."""

    def __init__(self) -> None:
        self._found: list[SpecProblem] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, problem: SpecProblem) -> None:
        """One more, unless its field has one."""
        if not problem.field or all(one.field != problem.field for one in self._found):
            self._found.append(problem)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """A check whose SpecError is one more problem, and no end."""
        try:
            yield
        except SpecError as error:
            for problem in error.problems:
                self.add(problem)

    def raise_any(self) -> None:
        """Raises SpecError with all of them, if there are any."""
        if self._found:
            raise SpecError(self._found)
