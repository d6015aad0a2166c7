"""What a job's command finds around it: its image, its inputs, the folders it names.

One call makes all of it for an attempt. Not here: the single deeds (`container_image`,
`input_folders`, `named_folders`), the working folder and setup (`workdir`).
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.agent.attempt.container_image import ensure_image
from trainer.agent.attempt.docker_command import Docker
from trainer.agent.attempt.run_place import ContainerPlace, MachinePlace, RunPlace
from trainer.agent.attempt.trainer_command import CommandContext
from trainer.agent.checkpoints.storage_credentials import StorageAccess
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.folders.input_folders import InputFolders
from trainer.agent.folders.named_folders import present
from trainer.agent.machine.agent_settings import AgentSettings
from trainer.agent.machine.machine_folders import AttemptFolders, MachineFolders
from trainer.agent.secrets.attempt_secrets import GivenSecrets
from trainer.protocol.run_config import RunConfig

SCRATCH_VARIABLE = "LOWTIDE_SCRATCH_DIR"


@dataclass(frozen=True)
class CommandEnvironment:
    """Where commands run, the variables they get besides the contract's, and the exact image."""

    place: RunPlace
    variables: dict[str, str] = field(default_factory=dict)
    image: str | None = None


@dataclass(frozen=True)
class EnvironmentMaker:
    """What is used for every attempt of a machine. secrets: what this one was given."""

    settings: AgentSettings
    folders: MachineFolders
    docker: Docker
    context: CommandContext
    open_store: Callable[[], StorageRoot]
    access: StorageAccess
    secrets: GivenSecrets

    def make(
        self,
        config: RunConfig,
        attempt: AttemptFolders,
        is_cancelled: Callable[[], bool],
        say: Callable[[str], None],
        on_start: Callable[[subprocess.Popen[bytes]], None],
        enter: Callable[[str], None],
    ) -> CommandEnvironment:
        """Everything there and in its place; the working folder must be unpacked.

        on_start: gets a process that a cancelled preparation is to kill. enter: told what is done
        next, "image" or "inputs". Raises ContainerFailed, InputsFailed, FolderTaken,
        RestoreCancelled, StoreUnavailable and OSError.
        """
        settings, folders = self.settings, self.folders
        reference = None
        if config.image is not None:
            enter("image")
            docker, registry = self.docker, self.secrets.registry
            if registry is not None:
                docker = docker.with_configuration(registry)
            try:
                reference = ensure_image(docker, config.image, self.open_store, say, on_start)
            finally:
                if registry is not None:
                    # The job's own commands are given the folder that it is in.
                    shutil.rmtree(registry, ignore_errors=True)
        enter("inputs")
        open_at = functools.partial(StorageRoot, make_folder=False, access=self.access)
        brought = InputFolders(folders.inputs, self.open_store, is_cancelled, say, open_at)
        folders.inputs.mkdir(exist_ok=True)
        inputs = brought.fetch(config.inputs)
        named = present(config, inputs, folders, attempt, settings.named_root)
        for variable, path in sorted(named.variables.items()):
            say(f"{variable} is {path}")
        variables = {SCRATCH_VARIABLE: str(folders.scratch), **named.variables}
        if reference is None:
            user, prefix = settings.trainer_user, settings.trainer_prefix
            return CommandEnvironment(MachinePlace(self.context, user, prefix, folders), variables)
        place = ContainerPlace(
            self.docker,
            reference,
            self.context,
            folders,
            named.mounts,
            settings.trainer_user,
            settings.gpu_count,
            config.shm_mb,
            self.secrets.folder,
        )
        return CommandEnvironment(place, variables, reference)
