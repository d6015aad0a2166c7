"""Which of two scores is the better one, and which score counts where nobody has named one.

Lives here: what the trainer and the control plane must judge alike. Not here: which checkpoint is
kept as the best (`lifecycle.best_checkpoint`), or the trainer's own (`loop.target`).
"""

from __future__ import annotations

from typing import Final

USUAL_METRIC: Final = "validation_accuracy"
"""What is best where no target is set."""


def less_is_better(metric: str) -> bool:
    """Of a loss the least is the best; of any other score the greatest."""
    return metric.endswith("_loss")
