"""What is started for an attempt, and the environment it is started with.

Lives here: the trainer contract's "environment in". Not here: starting it (`trainer_run`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.agent.agent_settings import SECRETS
from trainer.agent.machine_folders import AttemptFolders
from trainer.agent.process_group import ATTEMPT_MARK, MACHINE_MARK
from trainer.protocol.directive import Directive
from trainer.protocol.run_config import RunConfig

TORCHRUN_SHUTDOWN_SECONDS = 120
"""torchrun kills its ranks 30 s after SIGTERM by default: too short to save a large model."""


@dataclass(frozen=True)
class CommandContext:
    """What stays the same for all attempts of this machine."""

    machine_id: str
    private_address: str
    interface: str
    inherited: Mapping[str, str]


def trainer_command(config: RunConfig, directive: Directive, folders: AttemptFolders) -> list[str]:
    """The bundled trainer under torchrun, or the user's command in a shell.

    Writes the trainer's configuration file. Both get the same torchrun arguments, the user's
    command as LOWTIDE_TORCHRUN_ARGS.
    """
    if config.run is not None:
        return ["/bin/sh", "-c", config.run]
    folders.config_file.write_text(json.dumps(config.trainer or {}, sort_keys=True))
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *torchrun_arguments(config, directive),
        "-m",
        "trainer.training.train",
        "--config",
        str(folders.config_file),
    ]


def torchrun_arguments(config: RunConfig, directive: Directive) -> list[str]:
    """Static rendezvous, no restarts: a lost rank ends the attempt, and the next one re-forms."""
    return [
        f"--nnodes={gang_size(directive)}",
        f"--node-rank={directive.node_rank or 0}",
        f"--nproc-per-node={max(1, config.gpus_per_node)}",
        f"--master-addr={directive.master_addr or '127.0.0.1'}",
        f"--master-port={directive.master_port or 0}",
        "--rdzv-backend=static",
        "--max-restarts=0",
        f"--rdzv-id={attempt_id(directive)}",
        f"--shutdown-timeout={TORCHRUN_SHUTDOWN_SECONDS}",
    ]


def setup_environment(
    context: CommandContext, config: RunConfig, directive: Directive
) -> dict[str, str]:
    """What setup and trainer share: no secret of the agent, and both marks."""
    environment = {name: value for name, value in context.inherited.items() if name not in SECRETS}
    environment.update(config.env)
    environment.update(
        {
            MACHINE_MARK: context.machine_id,
            ATTEMPT_MARK: attempt_id(directive),
            "LOWTIDE_JOB_ID": config.job_id,
            "LOWTIDE_FENCE": str(directive.fence or 0),
            "LOWTIDE_NODE_RANK": str(directive.node_rank or 0),
            "LOWTIDE_NUM_NODES": str(gang_size(directive)),
            "LOWTIDE_GPUS_PER_NODE": str(max(1, config.gpus_per_node)),
            "PYTHONUNBUFFERED": "1",
        }
    )
    return environment


def trainer_environment(
    context: CommandContext,
    config: RunConfig,
    directive: Directive,
    folders: AttemptFolders,
    resume_folder: Path | None,
) -> dict[str, str]:
    """The whole environment of the trainer. LOWTIDE_RESUME_DIR is absent for a fresh start."""
    environment = setup_environment(context, config, directive)
    environment.update(
        {
            "LOWTIDE_CHECKPOINT_DIR": str(folders.checkpoints),
            "LOWTIDE_PROGRESS_FILE": str(folders.progress_file),
            "LOWTIDE_END_FILE_DIR": str(folders.progress_file.parent),
            "LOWTIDE_TORCHRUN_ARGS": " ".join(torchrun_arguments(config, directive)),
            "LOWTIDE_MASTER_ADDR": directive.master_addr or "127.0.0.1",
            "LOWTIDE_MASTER_PORT": str(directive.master_port or 0),
            "LOWTIDE_NODE_IPS": "\n".join(_addresses(context, directive)),
            "TORCHELASTIC_ERROR_FILE": str(folders.error_file),
            "WANDB_RUN_ID": config.job_id,
            "WANDB_RESUME": "allow",
        }
    )
    environment.pop("LOWTIDE_RESUME_DIR", None)
    if resume_folder is not None:
        environment["LOWTIDE_RESUME_DIR"] = str(resume_folder)
    if context.interface:
        environment.setdefault("GLOO_SOCKET_IFNAME", context.interface)
        environment.setdefault("NCCL_SOCKET_IFNAME", context.interface)
    if config.trainer is not None:
        # The trainer is part of this installation, whatever the working folder holds.
        package_root = str(Path(__file__).resolve().parents[2])
        paths = [package_root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


def attempt_id(directive: Directive) -> str:
    """The run id of the rendezvous."""
    return directive.attempt_id or f"attempt-{directive.fence}"


def gang_size(directive: Directive) -> int:
    """Machines in the gang; one when the directive names no peers."""
    return max(1, len(directive.peers))


def _addresses(context: CommandContext, directive: Directive) -> list[str]:
    peers = sorted(directive.peers, key=lambda peer: peer.node_rank)
    return [peer.address for peer in peers] or [context.private_address]
