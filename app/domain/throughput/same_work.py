"""Which jobs do the same work: a step of one is as much as a step of the other.

Here: the digest that they share. Not here: what follows from their paces (`gpu_throughput`) and
from how long they take to start (`start_up`).
"""

from __future__ import annotations

import hashlib
import json
from uuid import UUID

from app.domain.spec.spec_document import OptionValue, SpecDocument


def work_digest(project_id: UUID, spec: SpecDocument) -> str:
    """SHA-256 of a project and of what makes a step of its job.

    The bundled trainer's model, batch and precision, or the command and its image. spec: as a job
    stores it.
    """
    values: list[OptionValue | None]
    if spec.get("run") is not None:
        values = [spec.get("run"), spec.get("image")]
    else:
        trainer = spec.get("trainer") or {}
        values = [trainer.get("model"), trainer.get("batch_size"), trainer.get("precision")]
    written = json.dumps([str(project_id), *values], sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()
