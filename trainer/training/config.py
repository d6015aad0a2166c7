"""The run's configuration: a JSON file to a checked ``TrainConfig``.

Standard library only, so that a bad file is refused before PyTorch's slow import. What the machine
and the launcher say (rank, folders) lives in ``rank_environment.py``.
"""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from trainer.training.errors import ConfigError

MODEL_NAMES = ("cnn", "mlp", "resnet18")
DATA_NAMES = ("digits", "synthetic")
PRECISION_NAMES = ("fp32", "bf16", "fp16")
OPTIMIZER_NAMES = ("adamw", "sgd")
DEFAULT_LEARNING_RATES = {"adamw": 0.002, "sgd": 0.05}
MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Sizes are in samples, durations in seconds.

    ``batch_size`` is global: it stays the same when the number of ranks changes. Exactly one of
    ``epochs`` and ``steps`` is set, and at most one of the two checkpoint intervals.
    ``eval_every_epochs`` 0 evaluates at the end only.
    """

    model: str
    data: str
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 64
    precision: str = "fp32"
    optimizer: str = "adamw"
    learning_rate: float | None = None
    weight_decay: float = 0.01
    warmup_steps: int = 20
    accumulation: int = 1
    seed: int = 0
    checkpoint_interval_steps: int | None = None
    checkpoint_interval_seconds: float | Literal["auto"] | None = None
    eval_every_epochs: int = 1
    step_delay_seconds: float = 0.0

    @property
    def peak_learning_rate(self) -> float:
        """The rate at the end of warm-up: the configured one, else the optimizer's default."""
        if self.learning_rate is not None:
            return self.learning_rate
        return DEFAULT_LEARNING_RATES[self.optimizer]

    def total_steps(self, train_samples: int) -> int:
        """Number of optimizer steps of the whole run over ``train_samples`` samples an epoch."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return math.ceil(self.epochs * train_samples / self.batch_size)

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint of one run to be continued by another."""
        return {
            "model": self.model,
            "data": self.data,
            "batch_size": self.batch_size,
            "optimizer": self.optimizer,
            "seed": self.seed,
        }


_CHOICES = {
    "model": MODEL_NAMES,
    "data": DATA_NAMES,
    "precision": PRECISION_NAMES,
    "optimizer": OPTIMIZER_NAMES,
}
_WHOLE_NUMBERS = {
    "epochs": (1, 1_000_000),
    "steps": (1, 1_000_000_000),
    "batch_size": (1, 1_000_000),
    "warmup_steps": (0, 1_000_000),
    "accumulation": (1, 10_000),
    "seed": (0, 2**32 - 1),
    "checkpoint_interval_steps": (1, 1_000_000_000),
    "eval_every_epochs": (0, 1_000_000),
}
_NUMBERS = {
    "learning_rate": (1e-12, 1e3),
    "weight_decay": (0.0, 10.0),
    "checkpoint_interval_seconds": (0.1, 86_400.0),
    "step_delay_seconds": (0.0, 60.0),
}
_OPTIONAL = ("epochs", "steps", "learning_rate", "checkpoint_interval_steps")


def load_config(path: Path) -> TrainConfig:
    """Reads and checks the JSON file at ``path``. Raises ``ConfigError``."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_CONFIG_BYTES} bytes")
    try:
        document = json.loads(text, object_pairs_hook=_without_repeated_keys)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} is not JSON: {error}") from error
    return parse_config(document)


def parse_config(document: object) -> TrainConfig:
    """Checks a decoded JSON object. Raises ``ConfigError`` for the first thing that is wrong."""
    if not isinstance(document, dict):
        raise ConfigError(f"expected a JSON object, got {type(document).__name__}")
    known = [field.name for field in fields(TrainConfig)]
    for key in document:
        if key not in known:
            raise ConfigError(f"unknown key {key!r}{_nearest(key, known)}")
    for key in ("model", "data"):
        if key not in document:
            raise ConfigError(f"{key} is missing: one of {', '.join(_CHOICES[key])}")
    values = {key: _checked(key, value) for key, value in document.items()}
    if (values.get("epochs") is None) == (values.get("steps") is None):
        raise ConfigError("set exactly one of epochs and steps")
    config = TrainConfig(**values)
    if config.checkpoint_interval_steps and config.checkpoint_interval_seconds is not None:
        raise ConfigError(
            "set at most one of checkpoint_interval_steps and checkpoint_interval_seconds"
        )
    if config.accumulation > config.batch_size:
        raise ConfigError(
            f"accumulation: {config.accumulation} parts cannot be cut from a batch_size of"
            f" {config.batch_size}"
        )
    return config


def _checked(key: str, value: object) -> Any:
    if value is None and key in _OPTIONAL:
        return None
    if key in _CHOICES:
        return _choice(key, value)
    if key == "checkpoint_interval_seconds" and value in ("auto", None):
        return value
    if key in _WHOLE_NUMBERS:
        least, most = _WHOLE_NUMBERS[key]
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise ConfigError(f"{key}: expected a whole number {least} to {most}, got {_shown(value)}")
    low, high = _NUMBERS[key]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise ConfigError(f"{key}: expected a number {low:g} to {high:g}, got {_shown(value)}")


def _choice(key: str, value: object) -> str:
    if isinstance(value, str) and value in _CHOICES[key]:
        return value
    nearest = _nearest(value, _CHOICES[key]) if isinstance(value, str) else ""
    raise ConfigError(
        f"{key}: {_shown(value)} is not known; one of {', '.join(_CHOICES[key])}{nearest}"
    )


def _nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ConfigError("a key is given twice")
    return document
