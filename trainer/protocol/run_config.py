"""What a job runs on a machine; the same for every instance and attempt of the job.

Lives here: the shape sent with the registration reply, and that of secrets, which are asked for
apart from it. Not here: rank, peers and fence, which
belong to an attempt and travel in the directive.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

TRAINING_DATA_INPUT = "/lowtide/training-data"
"""The input that a bucket becomes which the bundled trainer's `data` names."""

IN_MEMORY = "/dev/shm"
"""Where a machine keeps secrets that are files."""

AWS_SECRETS, GOOGLE_SECRETS = "aws-sm", "gcp-sm"
"""The services of clouds that jobs' secrets may be in: AWS Secrets Manager, Google's."""


@dataclass(frozen=True)
class SecretUse:
    """How a job's command gets a secret, by its name: one of the project, or one of a cloud.

    file: the name of a file that has the value, and whose path the variable `name` has; None: the
    variable has the value itself. source: of a cloud's secret, as `aws-sm:NAME`.
    """

    name: str
    file: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class CloudSecrets:
    """Secrets that the machine reads itself, of one service and place, and what opens them alone.

    place: region of AWS, or project of Google. names: of secrets there, by the names in the job.
    credential: of AWS `access_key_id`, `secret_access_key` and `token`; of Google `token`. It stays
    in the agent's memory.
    """

    service: str
    place: str
    endpoint: str
    names: dict[str, str]
    credential: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class SecretDelivery:
    """The answer to a machine that asks for the secrets of its attempt: values by name, and what to
    read from clouds.
    """

    values: dict[str, str] = field(repr=False)
    cloud: tuple[CloudSecrets, ...] = ()


@dataclass(frozen=True)
class RunConfig:
    """Everything an agent needs to run the job of its instance.

    trainer: configuration of the bundled trainer, or None when `run` is given.
    run: the user's shell command, or None.
    workdir: digest `sha256:<hex>` of the packed working folder, fetched from the control plane.
    checkpoint_uri: where manifests and shards go, e.g. `file:///…`, `s3://bucket/prefix`; the
        keys below it are those of `trainer.protocol.checkpoint_manifest`.
    gpus_per_node: processes torchrun starts on each machine.
    image: the container image in which setup and command run; None: on the machine itself.
    shm_mb: size of the container's /dev/shm; None: the machine's own.
    inputs: whole path on the machine → address, `s3://…`, `gs://…`, `file:///…`, read-only there.
    outputs: path on the machine, relative ones in the working folder → address; what lies in it
        when the work is finished goes to a folder below the address that is the job's alone.
    secrets: what the machine asks for with each attempt (`SecretDelivery`); never a value.
    image_secret: the secret that the image is pulled with, `user:password`; no command gets it.
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
    env: dict[str, str] = field(default_factory=dict, repr=False)
    image: str | None = None
    shm_mb: int | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    secrets: tuple[SecretUse, ...] = ()
    image_secret: str | None = None


def secret_folder_name(machine_id: str) -> str:
    """Of the folder in `IN_MEMORY` with a machine's secrets; machines of one host differ in it."""
    return f"lowtide-{hashlib.sha256(machine_id.encode()).hexdigest()[:24]}"


def job_folder(address: str, job_id: str) -> str:
    """Below an output's address, the folder that is the job's alone."""
    return f"{address.rstrip('/')}/{job_id}"


def folder_variable(noun: str, path: str) -> str:
    """The variable that names a folder to the command: `/data/train` → `LOWTIDE_INPUT_DATA_TRAIN`.

    noun: INPUT or OUTPUT.
    """
    return f"LOWTIDE_{noun}_{re.sub('[^A-Z0-9]+', '_', path.upper()).strip('_')}"
