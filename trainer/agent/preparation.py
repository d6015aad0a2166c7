"""Make a machine ready for an attempt: working folder, setup, parent checkpoint, peers, port.

One `Preparation` is one attempt's, run in a thread of its own and cancelled at any time. Not
here: when (`directive_rules`), nor the single deeds (`workdir`, `checkpoint_restore`,
`peer_probe`).
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.agent import process_group, trainer_command, workdir
from trainer.agent.agent_settings import AgentSettings
from trainer.agent.boot_clock import boot_seconds
from trainer.agent.checkpoint_restore import (
    CheckpointCorrupt,
    RestoreCancelled,
    Restored,
    RestoreFailed,
    Restorer,
)
from trainer.agent.checkpoint_sync import CutOff
from trainer.agent.control_plane_client import (
    ControlPlaneClient,
    ControlPlaneUnreachable,
    WorkdirInvalid,
)
from trainer.agent.machine_folders import MachineFolders
from trainer.agent.object_store import ObjectStore, StoreUnavailable
from trainer.agent.observations import (
    Observation,
    PhaseEntered,
    PreparationFailed,
    Prepared,
)
from trainer.agent.peer_probe import (
    NoFreePort,
    PeerUnreachable,
    ProbeListener,
    hold_free_port,
    probe_peers,
)
from trainer.protocol.agent_report import MachinePhase
from trainer.protocol.directive import Directive
from trainer.protocol.run_config import RunConfig


@dataclass(frozen=True)
class PreparationTools:
    """What every preparation of this machine uses."""

    settings: AgentSettings
    folders: MachineFolders
    client: ControlPlaneClient
    context: trainer_command.CommandContext
    open_store: Callable[[], ObjectStore]
    observe: Callable[[Observation], None]
    write_log: Callable[[str, bytes], None]
    say: Callable[[str, str], None]


class Preparation:
    """`start`, then `Prepared` or `PreparationFailed` is observed, unless cancelled.

    Keeps the probe's port and rank 0's rendezvous port until `release_ports`.
    """

    def __init__(
        self, tools: PreparationTools, config: RunConfig, directive: Directive, instance_id: str
    ) -> None:
        self._tools = tools
        self._config = config
        self._directive = directive
        self._instance_id = instance_id
        self._fence = directive.fence or 0
        self._rank = directive.node_rank or 0
        self._cancelled = threading.Event()
        self._listener: ProbeListener | None = None
        self._held: socket.socket | None = None
        self._setup: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.resume_folder: Path | None = None
        self._thread = threading.Thread(target=self._run, name="preparation", daemon=True)

    @property
    def stream(self) -> str:
        """Name of the log stream of this machine's part of the attempt."""
        return f"attempt-{self._fence:04d}/node-{self._rank}.log"

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def cancel(self) -> None:
        """Stop as soon as possible and say nothing any more."""
        self._cancelled.set()
        with self._lock:
            setup = self._setup
        if setup is not None:
            process_group.kill_all(self._tools.context.machine_id, setup.pid)
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
        stage = "setup"
        try:
            if len(self._directive.peers) > 1:
                self._listen()
            self._enter(MachinePhase.SETUP)
            self._set_up()
            stage = "restore"
            self._enter(MachinePhase.RESTORE)
            restored = self._restore()
            stage = "peers"
            port = self._meet_peers()
        except RestoreCancelled:
            return
        except StoreUnavailable as error:
            self._fail(stage, str(error), store_unavailable=True)
        except (
            workdir.SetupFailed,
            WorkdirInvalid,
            ControlPlaneUnreachable,
            CheckpointCorrupt,
            RestoreFailed,
            CutOff,
            PeerUnreachable,
            NoFreePort,
            OSError,
            KeyError,
        ) as error:
            self._fail(stage, str(error) or type(error).__name__)
        else:
            self._answer(Prepared(self._fence, restored.parent, port, restored.final))

    def _set_up(self) -> None:
        tools, config = self._tools, self._config
        tools.folders.begin_attempt(self._fence)
        workdir.ensure_workdir(tools.client, tools.folders, config.workdir)
        workdir.ensure_setup(
            tools.folders,
            config.setup,
            config.workdir,
            trainer_command.setup_environment(tools.context, config, self._directive),
            tools.settings.trainer_user,
            lambda content: tools.write_log(self.stream, content),
            self._remember_setup,
        )
        self._check_cancelled()

    def _restore(self) -> Restored:
        tools = self._tools
        folders = tools.folders.attempt(self._fence)
        restorer = Restorer(
            tools.open_store(),
            self._fence,
            self._instance_id,
            folders.resume,
            self._cancelled.is_set,
            lambda sentence: tools.say(self.stream, sentence),
        )
        restored = restorer.restore(self._rank)
        if restored.folder is not None:
            tools.folders.give_away(restored.folder, *restored.folder.rglob("*"))
        self.resume_folder = restored.folder
        if restored.parent is None:
            tools.say(self.stream, "no checkpoint to continue from: a fresh start")
        else:
            parent = restored.parent
            tools.say(self.stream, f"continues from step {parent.step} of attempt {parent.fence}")
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

    def _remember_setup(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._setup = process
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise RestoreCancelled

    def _enter(self, phase: MachinePhase) -> None:
        self._answer(PhaseEntered(self._fence, phase, boot_seconds()))

    def _fail(self, stage: str, message: str, store_unavailable: bool = False) -> None:
        if not self._cancelled.is_set():
            self._tools.say(self.stream, f"preparation failed at {stage}: {message}")
        self._answer(PreparationFailed(self._fence, stage, message[:2_000], store_unavailable))

    def _answer(self, observation: Observation) -> None:
        if not self._cancelled.is_set():
            self._tools.observe(observation)
