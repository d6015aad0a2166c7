"""A decoded JSON object to a ``TrainConfig``, or the first thing that is wrong with it."""

from __future__ import annotations

from trainer.protocol.train_options.check import accepted, checked, nearest
from trainer.protocol.train_options.option import REQUIRED, OptionError
from trainer.protocol.train_options.train_config import OPTIONS, TrainConfig


def parse_options(document: object) -> TrainConfig:
    """Checks every key, then what options ask of each other. Raises ``OptionError``."""
    if not isinstance(document, dict):
        raise OptionError("", f"expected a JSON object, got {type(document).__name__}")
    known = {option.name: option for option in OPTIONS}
    for key in document:
        if key not in known:
            hint = nearest(str(key), known, "; docs/trainer-options.md lists all")
            raise OptionError("", f"unknown key {key!r}{hint}")
    for option in OPTIONS:
        if option.default is REQUIRED and option.name not in document:
            raise OptionError("", f"{option.name} is missing: {accepted(option)}")
    values = {key: checked(known[key], value) for key, value in document.items()}
    config = TrainConfig(**values)
    config.check()
    return config
