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

from trainer.agent.folders.hazard_file import PRICE_VARIABLE, sets_price, write_hazard
from trainer.agent.machine.agent_settings import without_secrets
from trainer.agent.machine.machine_folders import AttemptFolders
from trainer.agent.machine.process_group import ATTEMPT_MARK, MACHINE_MARK
from trainer.agent.machine.script_modules import place_script_modules
from trainer.hooks.notice import NOTICE_VARIABLE
from trainer.protocol.directive import Directive
from trainer.protocol.run_config import RunConfig
from trainer.protocol.train_options.parallel import ParallelOptions

SHARES_VARIABLE = "LOWTIDE_CHECKPOINT_SHARES"
TORCHRUN_SHUTDOWN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
TORCHRUN_SHUTDOWN_SECONDS = 120
"""torchrun kills its ranks 30 s after SIGTERM by default: too short to save a large model.

In its environment, because torchrun refuses options it does not know, and the one for this is
younger than PyTorch 2.11. Source: `torch.distributed.launcher.api.LaunchConfig`, PyTorch 2.13.
"""


@dataclass(frozen=True)
class CommandContext:
    """What stays the same for all attempts of this machine.

    python: what the bundled trainer runs on; package_root: where it finds its own code.
    """

    machine_id: str
    private_address: str
    interface: str
    inherited: Mapping[str, str]
    python: str = sys.executable
    package_root: str = str(Path(__file__).resolve().parents[3])


def trainer_command(
    context: CommandContext, config: RunConfig, directive: Directive, folders: AttemptFolders
) -> list[str]:
    """The bundled trainer under torchrun, or the user's command in a shell.

    Writes the trainer's configuration file, and hazard and price as far as they are known. Both
    get the same torchrun arguments, the user's command as LOWTIDE_TORCHRUN_ARGS.
    """
    write_hazard(config, directive, folders.hazard_file)
    if config.run is not None:
        place_script_modules(folders.script_modules)
        return ["/bin/sh", "-c", config.run]
    folders.config_file.write_text(json.dumps(config.trainer or {}, sort_keys=True))
    return [
        context.python,
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
    arguments = [
        f"--nnodes={gang_size(directive)}",
        f"--node-rank={directive.node_rank or 0}",
        f"--nproc-per-node={max(1, config.gpus_per_node)}",
        f"--master-addr={directive.master_addr or '127.0.0.1'}",
        f"--master-port={directive.master_port or 0}",
        "--rdzv-backend=static",
        "--max-restarts=0",
        f"--rdzv-id={attempt_id(directive)}",
    ]
    if config.trainer is not None:
        # torchrun waits for the other machines before a rank can: no longer than a rank would.
        default = ParallelOptions.rendezvous_timeout_seconds
        limit = config.trainer.get("rendezvous_timeout_seconds", default)
        arguments.append(f"--rdzv-conf=timeout={max(1, round(float(limit)))}")
    return arguments


def setup_environment(
    context: CommandContext,
    config: RunConfig,
    directive: Directive,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What setup and trainer share: no secret of the agent, and both marks.

    variables: where the job's named folders are (`named_folders`).
    """
    environment = without_secrets(context.inherited)
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
            **(variables or {}),
        }
    )
    return environment


def trainer_environment(
    context: CommandContext,
    config: RunConfig,
    directive: Directive,
    folders: AttemptFolders,
    resume_folder: Path | None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The whole environment of the trainer. LOWTIDE_RESUME_DIR is absent for a fresh start."""
    environment = setup_environment(context, config, directive, variables)
    environment.update(
        {
            "LOWTIDE_CHECKPOINT_DIR": str(folders.checkpoints),
            "LOWTIDE_HAZARD_FILE": str(folders.hazard_file),
            NOTICE_VARIABLE: str(folders.notice_file),
            "LOWTIDE_PROGRESS_FILE": str(folders.progress_file),
            "LOWTIDE_END_FILE_DIR": str(folders.progress_file.parent),
            "LOWTIDE_TORCHRUN_ARGS": " ".join(torchrun_arguments(config, directive)),
            "LOWTIDE_MASTER_ADDR": directive.master_addr or "127.0.0.1",
            "LOWTIDE_MASTER_PORT": str(directive.master_port or 0),
            "LOWTIDE_NODE_IPS": "\n".join(_addresses(context, directive)),
            "TORCHELASTIC_ERROR_FILE": str(folders.error_file),
            TORCHRUN_SHUTDOWN_VARIABLE: environment.get(
                TORCHRUN_SHUTDOWN_VARIABLE, str(TORCHRUN_SHUTDOWN_SECONDS)
            ),
            "WANDB_RUN_ID": config.job_id,
            "WANDB_RESUME": "allow",
        }
    )
    if directive.price_per_hour_usd is not None and not sets_price(config):
        environment[PRICE_VARIABLE] = f"{directive.price_per_hour_usd:.6f}"
    environment.pop(SHARES_VARIABLE, None)
    if saves_shares(directive):
        environment[SHARES_VARIABLE] = "1"
    environment.pop("LOWTIDE_RESUME_DIR", None)
    if resume_folder is not None:
        environment["LOWTIDE_RESUME_DIR"] = str(resume_folder)
    if context.interface:
        environment.setdefault("GLOO_SOCKET_IFNAME", context.interface)
        environment.setdefault("NCCL_SOCKET_IFNAME", context.interface)
    if config.trainer is not None:
        # The trainer is part of this installation, whatever the working folder holds.
        paths = [context.package_root, environment.get("PYTHONPATH", "")]
    else:
        paths = [environment.get("PYTHONPATH", ""), str(folders.script_modules)]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


def attempt_id(directive: Directive) -> str:
    """The run id of the rendezvous."""
    return directive.attempt_id or f"attempt-{directive.fence}"


def saves_shares(directive: Directive) -> bool:
    """Whether every machine of the gang may save a share, which its agent uploads.

    The bundled trainer always does; a user's command where its manifests say so.
    """
    return gang_size(directive) > 1


def gang_size(directive: Directive) -> int:
    """Machines in the gang; one when the directive names no peers."""
    return max(1, len(directive.peers))


def _addresses(context: CommandContext, directive: Directive) -> list[str]:
    peers = sorted(directive.peers, key=lambda peer: peer.node_rank)
    return [peer.address for peer in peers] or [context.private_address]
