"""Entry point of the agent on a rented machine: reads the environment, wires the threads, runs.

Everything it needs is in the environment that the boot script made (`agent_settings`). What its
exit says is in `trainer.protocol.exit_codes`.
"""

from __future__ import annotations

import functools
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from trainer.agent.attempt.docker_command import Docker
from trainer.agent.attempt.preparation import PreparationTools
from trainer.agent.attempt.trainer_command import CommandContext
from trainer.agent.checkpoints.storage_credentials import StorageAccess
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.gpu.gpu_faults import GpuFaultWatch, nvml_or_none, watch_gpus
from trainer.agent.machine import last_words, process_group
from trainer.agent.machine.agent_settings import (
    AgentSettings,
    EnvironmentInvalid,
    read_settings,
    without_secrets,
)
from trainer.agent.machine.boot_clock import boot_id, boot_seconds
from trainer.agent.machine.control_plane_client import (
    ControlPlaneClient,
    ProtocolRefused,
    RegistrationRejected,
)
from trainer.agent.machine.log_shipper import LogShipper
from trainer.agent.machine.machine_folders import MachineFolders
from trainer.agent.machine.small_files import replace_file
from trainer.agent.notices.metadata_http import MetadataUnknown
from trainer.agent.rules import supervisor
from trainer.agent.rules.agent_state import AgentState, Timings
from trainer.agent.rules.observations import Observation, Registered
from trainer.agent.runtime import farewell, power_off_watchdog
from trainer.agent.runtime.machine_runtime import MachineRuntime
from trainer.agent.runtime.notice_watch import NoticeSource, notice_source, watch_notices
from trainer.agent.runtime.report_loop import RegistrationExpired, register, register_once
from trainer.agent.secrets.attempt_secrets import AttemptSecrets
from trainer.agent.secrets.masked_logs import MaskedLogs
from trainer.agent.secrets.secret_folder import SecretFolder
from trainer.agent.secrets.secret_mask import SecretMask
from trainer.protocol import exit_codes
from trainer.protocol.agent_report import PROTOCOL_VERSION, Registration

METADATA_TRIES_MAX = 120


def main() -> int:
    """Run the agent until the machine leaves."""
    try:
        settings = read_settings(os.environ)
    except EnvironmentInvalid as error:
        last_words.print_line(str(error))
        return exit_codes.SETTINGS
    try:
        run_agent(settings)
    except (RegistrationRejected, ProtocolRefused, RegistrationExpired, MetadataUnknown) as error:
        last_words.print_line(str(error))
        return exit_codes.REFUSED
    except Exception as error:
        last_words.print_failure(error)
        words = last_words.last_words(error)
        replace_file(settings.machine_dir / "agent" / MachineFolders.LAST_WORDS, words)
        return exit_codes.FAILED
    return exit_codes.LEFT


def run_agent(settings: AgentSettings) -> None:
    """Everything from the first look at the disk to the last log line."""
    # Until it is registered and can be asked to save, there is nothing to end in good order.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    folders = MachineFolders(settings.machine_dir, _trainer_owner(settings))
    started_at = boot_seconds()
    limits = Timings()
    off_at = started_at + limits.unanswered + limits.power_off_grace
    armed = power_off_watchdog.arm(folders.power_off_file, off_at)
    power_off_watchdog.start_timer(
        folders.power_off_file, settings.power_off_command, None if armed else off_at
    )
    source = notice_source(settings)
    provider_id = _provider_instance_id(source)
    machine_id = settings.machine_id or provider_id
    docker = Docker(without_secrets(os.environ), machine_id)
    killed_fence = process_group.kill_earlier_trainer(
        folders.trainer_file, machine_id, docker.remove_left
    )
    session_id = secrets.token_hex(16)
    client = ControlPlaneClient(settings.control_url)
    registration = _registration(settings, folders, provider_id, session_id)
    words = folders.take_last_words()
    state = supervisor.initial_state(
        boot_id(), session_id, started_at, limits, killed_fence, last_words=words
    )
    if settings.failures > exit_codes.FAILURES_MAX:
        _give_up(settings, client, registration, state, words)
        return
    registered = register(client, registration)
    shipper = LogShipper(client, makes_gaps=registered.reply.log_gaps)
    mask = SecretMask()
    logs = MaskedLogs(shipper, mask)
    secret_folder = SecretFolder(machine_id, folders.give_away)
    secret_folder.clear()
    tools = functools.partial(
        _tools, settings, folders, client, logs, machine_id, registered, docker,
        AttemptSecrets(client, secret_folder, mask.hide),
    )  # fmt: skip
    runtime = MachineRuntime(
        tools,
        state,
        registered,
        logs,
        mask,
        lambda: register_once(client, replace(registration, uptime_ms=_uptime_ms())),
    )
    signal.signal(signal.SIGTERM, lambda _number, _frame: runtime.ask_for_shutdown())
    stopping = threading.Event()
    threading.Thread(target=shipper.run, name="logs", daemon=True).start()
    threading.Thread(
        target=watch_notices, args=(source, runtime.observe, stopping), name="notices", daemon=True
    ).start()
    disks = runtime.disk_watch()
    threading.Thread(target=disks.run, args=(stopping,), name="disks", daemon=True).start()
    if settings.gpu_count > 0:
        watch = GpuFaultWatch(settings.gpu_count, nvml=nvml_or_none(settings.gpu_count))
        threading.Thread(
            target=watch_gpus, args=(watch, runtime.observe, stopping), name="gpus", daemon=True
        ).start()
    threading.excepthook = runtime.thread_failed
    try:
        runtime.run()
    finally:
        secret_folder.clear()
    stopping.set()
    shipper.stop()


def _give_up(
    settings: AgentSettings,
    client: ControlPlaneClient,
    registration: Registration,
    state: AgentState,
    words: str,
) -> None:
    """Too many failures: say so, and power off whether or not anybody heard it."""
    why = f"the agent of this machine failed {settings.failures} times in a row"
    why += f", last with {words}" if words else ""
    last_words.print_line(f"{why}: the machine is given back")
    try:
        registered = register(client, registration, farewell.REGISTER_SECONDS_MAX)
        farewell.give_up(client, state, registered, why)
    except (RegistrationRejected, ProtocolRefused, RegistrationExpired) as error:
        last_words.print_line(f"and the control plane could not be told: {error}")
    power_off_watchdog.power_off(settings.power_off_command)


def _tools(
    settings: AgentSettings,
    folders: MachineFolders,
    client: ControlPlaneClient,
    logs: MaskedLogs,
    machine_id: str,
    registered: Registered,
    docker: Docker,
    attempt_secrets: AttemptSecrets,
    observe: Callable[[Observation], None],
) -> PreparationTools:
    uri = registered.reply.run_config.checkpoint_uri
    access = StorageAccess(registered.reply.storage)
    context = CommandContext(
        machine_id, settings.private_address, settings.interface, dict(os.environ)
    )
    return PreparationTools(
        settings=settings,
        folders=folders,
        client=client,
        context=context,
        open_store=functools.lru_cache(maxsize=1)(
            functools.partial(StorageRoot, uri, access=access)
        ),
        access=access,
        observe=observe,
        write_log=logs.write,
        say=logs.say,
        send_log_end=logs.send_end,
        docker=docker,
        secrets=attempt_secrets,
    )


def _registration(
    settings: AgentSettings, folders: MachineFolders, provider_id: str, session_id: str
) -> Registration:
    return Registration(
        protocol=PROTOCOL_VERSION,
        launch_token=settings.launch_token,
        nonce=folders.load_identity(new_nonce=secrets.token_hex(32)).nonce,
        provider_instance_id=provider_id,
        boot_id=boot_id(),
        session_id=session_id,
        uptime_ms=_uptime_ms(),
        private_address=settings.private_address,
        port_from=settings.port_from,
        port_to=settings.port_to,
        gpu_count=settings.gpu_count,
        interface=settings.interface,
        takes_secrets=True,
    )


def _uptime_ms() -> int:
    return round(boot_seconds() * 1000)


def _provider_instance_id(source: NoticeSource) -> str:
    """A machine's metadata may come up later than its agent; two minutes are enough."""
    for _ in range(METADATA_TRIES_MAX):
        try:
            return source.instance_id()
        except MetadataUnknown:
            time.sleep(1.0)
    return source.instance_id()


def _trainer_owner(settings: AgentSettings) -> tuple[int, int] | None:
    if settings.trainer_user is None:
        return None
    return process_group.user_numbers(settings.trainer_user)


if __name__ == "__main__":
    code = main()
    # Not sys.exit: what cannot be flushed to a log on a full disk would change the code.
    os._exit(code)
