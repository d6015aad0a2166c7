"""What a trainer is told while it runs: how often its machines are lost, and what they cost.

Lives here: writing the file that LOWTIDE_HAZARD_FILE names. Not here: when it changes
(`directive_rules`), or reading it (`trainer.training.reporting.hazard`).
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from trainer.protocol.directive import Directive
from trainer.protocol.run_config import RunConfig

PRICE_VARIABLE = "LOWTIDE_PRICE_PER_HOUR_USD"


def write_hazard(config: RunConfig, directive: Directive, path: Path) -> None:
    """Replace the file as a whole: who reads it meanwhile sees the old one or the new one.

    Nothing is written where nothing is known. A disk that is full is no reason to end anything:
    the trainer then goes on with what it was told before.
    """
    told = {"per_hour": directive.hazard_per_hour}
    if not sets_price(config):
        told["price_per_hour_usd"] = directive.price_per_hour_usd
    known = {name: value for name, value in told.items() if value is not None}
    if not known:
        return
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".hazard-", dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps(known))
        Path(temporary).chmod(0o644)  # the trainer may be another user
        Path(temporary).replace(path)
    except OSError:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()


def sets_price(config: RunConfig) -> bool:
    """Whether the job says itself what its machines cost."""
    return PRICE_VARIABLE in config.env
