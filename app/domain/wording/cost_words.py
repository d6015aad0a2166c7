"""What the parts of a bill are called, for people.

Reports, the API and the CSV name components as they are stored. Not here: what each of them is
charged by (`billing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.domain.billing.billing import Component
from app.domain.wording.stored_words import stored_words

_COMPONENT_WORDS: Final[Mapping[str, str]] = {
    Component.COMPUTE: "machine time",
    Component.DISK: "disks",
    Component.PUBLIC_IP: "public IP addresses",
    Component.OBJECT_STORAGE: "storage of checkpoints and logs in buckets",
    Component.EGRESS: "data transfer between regions (egress)",
    Component.CROSS_ZONE: "data transfer between zones",
}


def component_words(name: str) -> str:
    """ "cross_zone" → "data transfer between zones"; of another version's parts, their names."""
    return _COMPONENT_WORDS.get(name) or stored_words(name)
