"""Make a machine ready for an attempt: its environment, setup, parent checkpoint, peers, port.

One `Preparation` is one attempt's, run in a thread of its own and cancelled at any time. Not
here: when (`directive_rules`), nor the single deeds (`workdir`, `checkpoint_restore`,
`peer_probe`).
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.agent.attempt import trainer_command, workdir
from trainer.agent.attempt.docker_command import ContainerFailed, Docker
from trainer.agent.attempt.environment import CommandEnvironment, EnvironmentMaker
from trainer.agent.attempt.run_place import SECRETS_IN_CONTAINER
from trainer.agent.checkpoints.checkpoint_restore import (
    CheckpointCorrupt,
    RestoreCancelled,
    RestoreFailed,
    Restorer,
    ResumePoint,
)
from trainer.agent.checkpoints.checkpoint_sync import CutOff
from trainer.agent.checkpoints.storage_credentials import StorageAccess
from trainer.agent.checkpoints.storage_root import StorageRoot, StoreUnavailable
from trainer.agent.folders.input_folders import InputsFailed
from trainer.agent.folders.named_folders import FolderTaken
from trainer.agent.machine import process_group
from trainer.agent.machine.agent_settings import AgentSettings
from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.machine.control_plane_client import (
    ControlPlaneClient,
    ControlPlaneUnreachable,
    CredentialRevoked,
    ProtocolRefused,
    SecretsNotGiven,
    WorkdirInvalid,
)
from trainer.agent.machine.machine_folders import MachineFolders
from trainer.agent.machine.peer_probe import (
    NoFreePort,
    PeerUnreachable,
    ProbeListener,
    hold_free_port,
    probe_peers,
)
from trainer.agent.machine.small_files import is_no_room
from trainer.agent.rules.observations import (
    FencedOff,
    Observation,
    PhaseEntered,
    PreparationFailed,
    Prepared,
)
from trainer.agent.secrets.attempt_secrets import AttemptSecrets, GivenSecrets, SecretsRefused
from trainer.protocol.agent_report import MachinePhase
from trainer.protocol.directive import Directive
from trainer.protocol.run_config import RunConfig

LOG_END_SECONDS = 30.0
"""An end is told after the end of the log is sent, for a machine may be given back at once for it;
no longer than this, though."""


@dataclass(frozen=True)
class PreparationTools:
    """What every preparation of this machine uses."""

    settings: AgentSettings
    folders: MachineFolders
    client: ControlPlaneClient
    context: trainer_command.CommandContext
    open_store: Callable[[], StorageRoot]
    access: StorageAccess
    observe: Callable[[Observation], None]
    write_log: Callable[[str, bytes], None]
    say: Callable[[str, str], None]
    send_log_end: Callable[[str, float], None]
    docker: Docker
    secrets: AttemptSecrets


class Preparation:
    """`start`, then `Prepared` or `PreparationFailed` is observed, unless cancelled.

    Keeps the probe's port and rank 0's rendezvous port until `release_ports`.
    """

    def __init__(
        self, tools: PreparationTools, config: RunConfig, directive: Directive, instance_id: str
    ) -> None:
        self._tools = tools
        self.config = config
        self._directive = directive
        self._instance_id = instance_id
        self._fence = directive.fence or 0
        self._rank = directive.node_rank or 0
        self._cancelled = threading.Event()
        self._listener: ProbeListener | None = None
        self._held: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stage = "setup"
        self._restorer: Restorer | None = None
        self.resume_folder: Path | None = None
        self.environment: CommandEnvironment | None = None
        self._thread = threading.Thread(target=self._run, name="preparation", daemon=True)

    @property
    def stream(self) -> str:
        """Name of the log stream of this machine's part of the attempt."""
        return f"attempt-{self._fence:04d}/node-{self._rank}.log"

    @property
    def fence(self) -> int:
        """The attempt that it is for."""
        return self._fence

    @property
    def node_rank(self) -> int:
        """This machine's place in the gang."""
        return self._rank

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def cancel(self) -> None:
        """Stop as soon as possible and say nothing any more."""
        self._cancelled.set()
        with self._lock:
            process = self._process
        if process is not None:
            process_group.kill_all(self._tools.context.machine_id, process.pid)
        self._thread.join(timeout=10.0)
        self.release_ports()

    def release_ports(self) -> None:
        """Free the probe's port and the rendezvous port for the trainer."""
        with self._lock:
            listener, self._listener = self._listener, None
            held, self._held = self._held, None
        if listener is not None:
            listener.close()
        if held is not None:
            held.close()

    def _run(self) -> None:
        try:
            if len(self._directive.peers) > 1:
                self._listen()
            self._enter(MachinePhase.SETUP)
            image = self._set_up().image
            self._stage = "restore"
            self._enter(MachinePhase.RESTORE)
            restored = self._restore()
            self._stage = "peers"
            port = self._meet_peers()
        except RestoreCancelled:
            return
        except CutOff as error:
            self._tools.say(self.stream, str(error))
            self._answer(FencedOff(self._fence, error.by_fence))
        except StoreUnavailable as error:
            self._fail(error, str(error), store_unavailable=True)
        except (
            workdir.SetupFailed,
            WorkdirInvalid,
            ContainerFailed,
            InputsFailed,
            FolderTaken,
            ControlPlaneUnreachable,
            CredentialRevoked,
            ProtocolRefused,
            SecretsNotGiven,
            SecretsRefused,
            CheckpointCorrupt,
            RestoreFailed,
            PeerUnreachable,
            NoFreePort,
            OSError,
            KeyError,
        ) as error:
            self._fail(error, str(error) or type(error).__name__)
        except Exception as error:
            # A thread that dies without a word would keep the whole gang waiting for hours.
            self._fail(error, f"{type(error).__name__}: {error}")
        else:
            self._answer(
                Prepared(
                    self._fence,
                    restored.parent,
                    port,
                    restored.final,
                    self._bytes_read,
                    image,
                    restored.size_bytes,
                )
            )

    def _set_up(self) -> CommandEnvironment:
        tools = self._tools
        attempt = tools.folders.begin_attempt(self._fence)
        given = self._take_secrets()
        config = self.config
        workdir.ensure_workdir(tools.client, tools.folders, config.workdir)
        maker = EnvironmentMaker(
            tools.settings,
            tools.folders,
            tools.docker,
            tools.context,
            tools.open_store,
            tools.access,
            given,
        )
        environment = maker.make(
            config,
            attempt,
            self._cancelled.is_set,
            lambda sentence: tools.say(self.stream, sentence),
            self._remember_process,
            self._enter_stage,
        )
        self._enter_stage("setup")
        workdir.ensure_setup(
            tools.folders,
            config.setup,
            f"{config.workdir} {environment.image or ''}",
            trainer_command.setup_environment(
                environment.place.context, config, self._directive, environment.variables
            ),
            environment.place,
            attempt.root / "setup.sh",
            lambda content: tools.write_log(self.stream, content),
            self._remember_process,
        )
        if config.trainer is not None:
            self._enter_stage("image")
            environment.place.check_trainer()
        self._check_cancelled()
        self.environment = environment
        return environment

    def _take_secrets(self) -> GivenSecrets:
        """From here on the configuration has them among its variables, in this process alone."""
        self._enter_stage("secrets")
        config = self.config
        given = self._tools.secrets.fetch(self._fence, config, SECRETS_IN_CONTAINER)
        self.config = replace(config, env={**config.env, **given.variables})
        self._enter_stage("setup")
        return given

    def _enter_stage(self, stage: str) -> None:
        self._stage = stage
        self._check_cancelled()

    @property
    def _bytes_read(self) -> int:
        """Of checkpoints, from the store, so far."""
        return 0 if self._restorer is None else self._restorer.bytes_read

    def _restore(self) -> ResumePoint:
        tools = self._tools
        folders = tools.folders.attempt(self._fence)
        self._restorer = Restorer(
            tools.open_store(),
            self._fence,
            self._instance_id,
            folders.resume,
            self._cancelled.is_set,
            lambda sentence: tools.say(self.stream, sentence),
        )
        restored = self._restorer.restore(self._rank)
        if restored.folder is not None:
            tools.folders.give_away(restored.folder, *restored.folder.rglob("*"))
        self.resume_folder = restored.folder
        if restored.parent is None:
            tools.say(self.stream, "no checkpoint to continue from: a fresh start")
        else:
            parent = restored.parent
            tools.say(self.stream, f"continues from step {parent.step:,}")
        return restored

    def _meet_peers(self) -> int | None:
        """Probe the others; rank 0 holds the rendezvous port from here on."""
        settings, port = self._tools.settings, None
        if self._rank == 0:
            held, port = hold_free_port(settings.port_from + 1, settings.port_to)
            with self._lock:
                self._held = held
        if len(self._directive.peers) > 1:
            self._enter(MachinePhase.GANG_WAIT)
            probe_peers(self._directive.peers, self._rank, self._fence, self._cancelled.is_set)
        self._check_cancelled()
        return port

    def _listen(self) -> None:
        listener = ProbeListener(self._tools.settings.port_from, self._fence)
        with self._lock:
            self._listener = listener

    def _remember_process(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = process
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise RestoreCancelled

    def _enter(self, phase: MachinePhase) -> None:
        self._answer(PhaseEntered(self._fence, phase, boot_seconds()))

    def _fail(self, error: Exception, message: str, store_unavailable: bool = False) -> None:
        if not self._cancelled.is_set():
            self._tools.secrets.clear(self._fence)
            self._tools.say(self.stream, f"preparation failed at {self._stage}: {message}")
            self._tools.send_log_end(self.stream, LOG_END_SECONDS)
        self._answer(
            PreparationFailed(
                self._fence,
                self._stage,
                message[:2_000],
                store_unavailable,
                self._bytes_read,
                is_no_room(error),
            )
        )

    def _answer(self, observation: Observation) -> None:
        if not self._cancelled.is_set():
            self._tools.observe(observation)
