"""``--validate``: whether a run's configuration and its data can be used here. Trains nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from trainer.training.config import load_config
from trainer.training.data import load_data
from trainer.training.gang import ending
from trainer.training.training_errors import ConfigError


def check_config(config_path: Path) -> int:
    """Checks the configuration and that its data can be loaded here; says so in one line."""
    try:
        config = load_config(config_path)
        load_data(config.data, config.seed, config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ending.EXIT_CONFIG
    print(f"{config_path}: ok")
    return ending.EXIT_FINISHED
