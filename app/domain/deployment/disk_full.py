"""That a disk of a machine is full: how it is kept beside what an agent reports, and said.

Lives here: the key and the sentences. Not here: what an agent does about it (`trainer.agent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DISK_FULL_KEY: Final = "lowtide.disk_full_free_bytes"
"""Among the numbers of an agent's newest report, while a disk of its machine is full."""
DISK_FULL_SHORT: Final = "disk full"
DISK_FULL_SENTENCE: Final = (
    "Disk full: a machine has no room left. It trains on; checkpoints that do not fit are left out "
    "until there is room."
)


def free_bytes_when_full(metrics: Mapping[str, float]) -> int | None:
    """What is free on the full disk; None while none is full."""
    found = metrics.get(DISK_FULL_KEY)
    return None if found is None else int(found)


def without_disk(metrics: Mapping[str, float]) -> dict[str, float]:
    """The numbers that the trainer itself gave."""
    return {name: value for name, value in metrics.items() if name != DISK_FULL_KEY}
