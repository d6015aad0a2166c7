"""The machine's environment turned into one frozen value; the agent's only reader of it.

Not here: what the job runs (`trainer.protocol.run_config`, from the registration).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CLOUDS = ("ec2", "gce")
SECRETS = frozenset({"LOWTIDE_LAUNCH_TOKEN", "LOWTIDE_CONTROL_URL"})
"""Never handed to the trainer or the setup command."""


class EnvironmentInvalid(Exception):
    """The environment cannot be used; the message names the variable."""


@dataclass(frozen=True)
class AgentSettings:
    """Everything the machine's boot decided.

    notice_seconds: what GCE grants between `preempted` and the power cut.
    power_off_command: run by the independent timer when the agent let the lease run out.
    trainer_user: OS user of the trainer and the setup command, by name or number; None for the
    agent's own.
    trainer_prefix: what stands before their commands and makes them run as that user; empty where
    the agent itself switches.
    paths_root: below it the folders that a job names by whole paths appear: `/` where the machine
    is the job's alone, else a folder of the agent's own.
    failures: how often in a row the agent of this machine has failed, by who starts it.
    """

    control_url: str
    launch_token: str
    machine_dir: Path
    cloud: str
    metadata_url: str
    private_address: str
    port_from: int
    port_to: int
    machine_id: str | None = None
    gpu_count: int = 0
    interface: str = ""
    notice_seconds: float = 30.0
    power_off_command: str = "systemctl poweroff"
    trainer_user: str | None = None
    trainer_prefix: tuple[str, ...] = ()
    paths_root: Path | None = None
    failures: int = 0

    @property
    def named_root(self) -> Path:
        """`paths_root`, or the machine's own folder for it."""
        return self.paths_root or self.machine_dir / "paths"


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """What a command of the machine may be given."""
    return {name: value for name, value in environment.items() if name not in SECRETS}


def read_settings(environment: Mapping[str, str]) -> AgentSettings:
    """Read and check; raises EnvironmentInvalid."""
    cloud = _required(environment, "LOWTIDE_CLOUD")
    if cloud not in CLOUDS:
        raise EnvironmentInvalid(f"LOWTIDE_CLOUD is {cloud!r}, expected one of {', '.join(CLOUDS)}")
    port_from = _whole(environment, "LOWTIDE_PORT_FROM", 29_500)
    port_to = _whole(environment, "LOWTIDE_PORT_TO", port_from + 99)
    if not 0 < port_from < port_to < 65_536:
        raise EnvironmentInvalid(
            f"LOWTIDE_PORT_FROM and LOWTIDE_PORT_TO are {port_from} and {port_to};"
            " at least two ports between 1 and 65535 are needed"
        )
    return AgentSettings(
        control_url=_required(environment, "LOWTIDE_CONTROL_URL").rstrip("/"),
        launch_token=_required(environment, "LOWTIDE_LAUNCH_TOKEN"),
        machine_dir=Path(_required(environment, "LOWTIDE_MACHINE_DIR")).absolute(),
        cloud=cloud,
        metadata_url=_metadata_url(environment, cloud),
        private_address=_required(environment, "LOWTIDE_PRIVATE_ADDRESS"),
        port_from=port_from,
        port_to=port_to,
        machine_id=environment.get("LOWTIDE_MACHINE_ID") or None,
        gpu_count=_whole(environment, "LOWTIDE_GPU_COUNT", 0),
        interface=environment.get("LOWTIDE_INTERFACE", ""),
        notice_seconds=float(_whole(environment, "LOWTIDE_NOTICE_SECONDS", 30)),
        power_off_command=environment.get("LOWTIDE_POWEROFF_COMMAND") or "systemctl poweroff",
        trainer_user=environment.get("LOWTIDE_TRAINER_USER") or None,
        trainer_prefix=tuple(shlex.split(environment.get("LOWTIDE_TRAINER_PREFIX", ""))),
        paths_root=_path(environment.get("LOWTIDE_PATHS_ROOT", "")),
        failures=_whole(environment, "LOWTIDE_AGENT_FAILURES", 0),
    )


def _path(value: str) -> Path | None:
    return Path(value).absolute() if value else None


def _metadata_url(environment: Mapping[str, str], cloud: str) -> str:
    if cloud == "ec2":
        default = "http://169.254.169.254"
        return (environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or default).rstrip("/")
    host = environment.get("GCE_METADATA_HOST") or "metadata.google.internal"
    return (host if host.startswith("http://") else f"http://{host}").rstrip("/")


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise EnvironmentInvalid(f"{name} is not set; the machine's boot script sets it")
    return value


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, "")
    if not value:
        return default
    if not (value.isascii() and value.isdigit()):
        raise EnvironmentInvalid(f"{name} is {value!r}, not a whole number")
    return int(value)
