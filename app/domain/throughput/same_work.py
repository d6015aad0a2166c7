"""Which jobs do the same work: a step of one is as much as a step of the other.

Here: the digest that they share. Not here: what follows from their paces (`kind_speed`) and from
how long they take to start (`start_up`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

_TRAINER_PARTS = (("trainer", "model"), ("trainer", "batch_size"), ("trainer", "precision"))
_COMMAND_PARTS = (("run",), ("image",))


def work_digest(project_id: UUID, spec: Mapping[str, Any]) -> str:
    """SHA-256 of a project and of what makes a step of its job.

    The bundled trainer's model, batch and precision, or the command and its image. spec: as a job
    stores it.
    """
    parts = _COMMAND_PARTS if spec.get("run") is not None else _TRAINER_PARTS
    values = [str(project_id), *(_at(spec, path) for path in parts)]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _at(spec: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = spec
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
