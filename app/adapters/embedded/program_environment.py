"""The environment that `lowtide up` gives to the programs it starts.

Not here: what the settings mean, or reading any of them (`app.settings`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_CODE = Path(__file__).parents[3]


def program_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Our own environment with these settings in place of what it says of them."""
    paths = (str(_CODE), os.environ.get("PYTHONPATH", ""))
    return {
        **os.environ,
        # The very code that runs here, whatever else is installed.
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        # Lines come out as they are written, and threads share their heaps: a few MB less each.
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "1",
        **settings,
    }
