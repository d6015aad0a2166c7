"""The modules that a user's own script finds on a machine: lowtide_hooks and lowtide_callbacks.

Here: copying them into a folder that goes on the script's PYTHONPATH, under names that do not
collide with the user's (``trainer`` would). Not here: what they do (`trainer.hooks`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]


def place_script_modules(folder: Path) -> None:
    """Makes both importable from `folder`. Plain copies: the script's Python may be another one,
    in a container too.
    """
    for name in ("hooks", "callbacks"):
        placed = folder / f"lowtide_{name}"
        placed.mkdir(parents=True, exist_ok=True)
        for path in sorted((PACKAGE / name).glob("*.py")):
            shutil.copyfile(path, placed / path.name)
