"""How many machines a gang may have: one number, or a range that the policy chooses from.

Lives here: the value and its written form. Not here: the choice (`gang_size`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeRange:
    """From `least` to `most` machines, both included; a fixed gang has the same twice."""

    least: int
    most: int

    @property
    def is_elastic(self) -> bool:
        """Whether there is anything to choose."""
        return self.least < self.most

    def __str__(self) -> str:
        return f"{self.least}..{self.most}" if self.is_elastic else str(self.least)

    def to_json(self) -> int | str:
        """The stored form: a number, or text like `2..4`."""
        return str(self) if self.is_elastic else self.least
