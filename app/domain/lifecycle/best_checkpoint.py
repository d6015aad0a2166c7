"""Which checkpoint of a job is the best one: by the score that its training told.

Lives here: the choice among checkpoints. Not here: which score is better
(`trainer.protocol.best_score`, as for the trainer's own folder), or keeping the best
(`app.orchestration.checkpoints.prune_checkpoints`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.domain.spec.job_spec import JobSpec
from trainer.protocol.best_score import USUAL_METRIC, less_is_better


@dataclass(frozen=True, slots=True)
class Scored:
    """A checkpoint's place, and the newest numbers that training had told when it was saved."""

    fence: int
    step: int
    metrics: Mapping[str, float]


def metric_of(spec: JobSpec) -> str:
    """The score that decides: the trainer's `target_metric`, else the usual one."""
    config = spec.trainer_config() or {}
    return str(config.get("target_metric") or USUAL_METRIC)


def best_of(checkpoints: Iterable[Scored], metric: str) -> Scored | None:
    """The first with the best score, the greatest or of a loss the least; None without a score.

    The first: a later one of the same score was trained on since it was scored.
    """
    scored = [one for one in checkpoints if metric in one.metrics]
    sign = 1.0 if less_is_better(metric) else -1.0
    return min(
        scored,
        key=lambda one: (sign * one.metrics[metric], one.fence, one.step),
        default=None,
    )
