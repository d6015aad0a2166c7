"""What scores are good for: ending a run at the target that was set, and keeping the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.protocol.best_score import USUAL_METRIC, less_is_better
from trainer.training.config import TrainConfig
from trainer.training.reporting.place import Place
from trainer.training.training_errors import ConfigError

METRICS = ("accuracy", "loss")


def require_scored(config: TrainConfig, parts: Sequence[str]) -> None:
    """Raises ``ConfigError`` when ``target_metric`` is none that evaluations of ``parts`` give."""
    known = [f"{part}_{metric}" for part in parts for metric in METRICS]
    if config.target_metric is not None and config.target_metric not in known:
        raise ConfigError(
            f"target_metric: {config.target_metric} is not scored here; one of {', '.join(known)}"
        )


def target_reached(config: TrainConfig, scores: Mapping[str, float]) -> str:
    """Why the run can end with these scores, "" if it cannot. Of a loss less is better."""
    name, target = config.target_metric, config.target_value
    if name is None or target is None or name not in scores:
        return ""
    reached = scores[name] <= target if less_is_better(name) else scores[name] >= target
    sign = "<=" if less_is_better(name) else ">="
    return f"target reached: {name} {scores[name]:.6g} {sign} {target:g}" if reached else ""


def is_best(config: TrainConfig, place: Place, scores: Mapping[str, float]) -> bool:
    """Whether no evaluation of this run was better; ``place`` remembers it if so."""
    name = config.target_metric or USUAL_METRIC
    score, best = scores.get(name), place.best_score
    if score is None:
        return False
    if best is not None and (score >= best if less_is_better(name) else score <= best):
        return False
    place.best_score = score
    return True
