"""What a job runs on a machine; the same for every instance and attempt of the job.

Lives here: the shape sent with the registration reply. Not here: rank, peers and fence, which
belong to an attempt and travel in the directive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunConfig:
    """Everything an agent needs to run the job of its instance.

    trainer: configuration of the bundled trainer, or None when `run` is given.
    run: the user's shell command, or None.
    workdir: digest `sha256:<hex>` of the packed working folder, fetched from the control plane.
    checkpoint_uri: where manifests and shards go, e.g. `file:///…`, `s3://bucket/prefix`; the
        keys below it are those of `trainer.protocol.checkpoint_manifest`.
    gpus_per_node: processes torchrun starts on each machine.
    """

    job_id: str
    job_name: str
    num_nodes: int
    gpus_per_node: int
    checkpoint_uri: str
    checkpoint_keep: int
    stall_timeout_seconds: float
    trainer: dict[str, Any] | None = None
    run: str | None = None
    setup: str | None = None
    workdir: str | None = None
    env: dict[str, str] = field(default_factory=dict)
