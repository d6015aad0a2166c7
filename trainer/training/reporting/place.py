"""Where a run is: the part of its state that is a handful of numbers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Place:
    """Saved in every checkpoint, equal on all ranks.

    ``step`` counts finished optimizer steps; the place in the data and the learning rate follow
    from it. ``epoch_loss_sum`` is the summed loss of this epoch's ``epoch_samples`` samples so far;
    ``metrics`` holds the newest scores, ``best_score`` the best one so far.
    """

    step: int = 0
    evaluated_step: int = -1
    epoch_loss_sum: float = 0.0
    epoch_samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    best_score: float | None = None
