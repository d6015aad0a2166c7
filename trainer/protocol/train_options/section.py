"""What the sections of options have in common."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section. ``TrainConfig`` is all of them, so ``check`` may read its own options only."""

    def check(self) -> None:
        """Raises ``OptionError`` when options of this section do not go together."""
