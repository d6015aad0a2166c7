"""The run's configuration file: a JSON file to a checked ``TrainConfig``.

Standard library only, so that a bad file is refused before PyTorch's slow import. The options
themselves are described in ``trainer/protocol/train_options``; what the machine and the launcher
say (rank, folders) lives in ``rank_environment.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.protocol.train_options import OptionError, TrainConfig, parse_options
from trainer.protocol.train_options.run import DATA_NAMES, MODEL_NAMES
from trainer.training.training_errors import ConfigError

__all__ = ["DATA_NAMES", "MODEL_NAMES", "TrainConfig", "load_config", "parse_config"]

MAX_CONFIG_BYTES = 1 << 20


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
    try:
        return parse_options(document)
    except OptionError as error:
        raise ConfigError(str(error)) from None


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ConfigError("a key is given twice")
    return document
