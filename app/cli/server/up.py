"""`lowtide up`: servers, schema, api, worker and beat in the foreground, and all of it stopped.

Here: which programs run, in which order, with which environment. Not here: supervising
(`app.adapters.embedded.processes.process_supervisor`), or the programs.
"""

from __future__ import annotations

import errno
import importlib
import shlex
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import psutil
import typer

from app.adapters.disk_space import full_sentence
from app.adapters.providers.local.files.local_variables import kept_speeds
from app.adapters.system_clock import steady_seconds
from app.cli.client.failures import BAD_INPUT, UNREACHABLE, CommandFailed
from app.cli.client.local_command import StateDir, ending_well, first_line, settings_with
from app.cli.client.local_run import (
    PROGRAM_ARGUMENTS,
    RunPhase,
    api_answers,
    command_on,
    look_at_run,
    still_starting,
)
from app.cli.client.server_address import folder_of
from app.cli.client.terminal import Terminal
from app.cli.server.migrate_command import KEY_FILE, PreparedDatabase, prepare_database
from app.cli.server.server_status import (
    forget_address,
    remember_address,
    repair_local_cloud,
    stop_local_cloud,
)
from app.settings import PREFIX, Settings, SettingsError, unknown_variables

if TYPE_CHECKING:
    from app.adapters.embedded.processes.process_spec import ProcessSpec
    from app.adapters.embedded.processes.process_supervisor import ProcessSupervisor

_TO_MIGRATE: Final = (
    "app.storage.session.migrate",
    "app.storage.schema.tables",
)
_PROBE_PERIOD_SECONDS: Final = 0.1
_API_READY_SECONDS: Final = 60.0
_API_STOP_SECONDS: Final = 8.0
_WORKER_STOP_SECONDS: Final = 12.0
_BEAT_STOP_SECONDS: Final = 5.0

Host = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        show_default=False,
        help="Address the api listens on. [default: LOWTIDE_HOST, or 127.0.0.1]",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        metavar="N",
        show_default=False,
        help="Port of the api; 0 picks a free one. [default: LOWTIDE_PORT, or 8400]",
    ),
]


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("up")(up)


def up(state_dir: StateDir = None, host: Host = None, port: Port = None) -> None:
    """Run Lowtide here, in the foreground, until Ctrl-C.

    Starts its own PostgreSQL and Valkey (not if LOWTIDE_DATABASE_URL and LOWTIDE_REDIS_URL
    name others), brings the database up to date, and runs api, worker and beat. Prints little
    until `ready http://…`, a line of its own once the api answers; the first API key is then in
    admin.key in the state folder, and the first start prints a link for the first admin. Logs are
    in logs/ there, too; after a failure, the one to read is named.

    Ctrl-C or `lowtide down` stops everything, machines of the local cloud included; data, keys and
    jobs are kept for the next `lowtide up`.
    """
    from app.adapters.contract_check import contract_warnings
    from app.adapters.embedded.embedded_errors import (
        ChildFailedError,
        EmbeddedServerError,
        StateFolderBusyError,
        StateFolderUnusableError,
    )

    terminal = Terminal()
    with ending_well(terminal):
        settings = settings_with(state_dir=state_dir, host=host, port=port)
        for sentence in (*unknown_variables(), *contract_warnings(settings)):
            terminal.note(sentence)
        _refuse_unusable_providers(settings)
        _refuse_unusable_issuers(settings)
        if not settings.state_dir.exists():
            _free_port(settings.host, settings.port)  # no folder is made for a run that cannot be
        try:
            run_all(settings)
        except StateFolderBusyError as error:
            if (run := look_at_run(settings.state_dir)).phase is RunPhase.STARTING:
                raise still_starting(run) from error
            raise CommandFailed(str(error), BAD_INPUT) from error
        except StateFolderUnusableError as error:
            raise CommandFailed(str(error), BAD_INPUT) from error
        except (EmbeddedServerError, ChildFailedError, OSError) as error:
            # Below the sentence: the end of the log that it names.
            sentence, *log = str(error).splitlines() or [type(error).__name__]
            raise CommandFailed(sentence, UNREACHABLE, details=log) from error


def run_all(settings: Settings) -> None:
    """Everything from the first server to the last machine, until a stop signal.

    What an earlier run left behind is stopped first: its api holds the very port that this one is
    to listen on. Raises StateFolderBusyError, EmbeddedServerError or ChildFailedError, and
    CommandFailed when the port is taken or the database cannot be prepared.
    """
    from app.adapters.embedded.processes.process_supervisor import ProcessSupervisor
    from app.bootstrap import deployment_folders

    supervisor = ProcessSupervisor(
        settings.state_dir,
        colour=sys.stdout.isatty(),
        commands=PROGRAM_ARGUMENTS,
        disk_problem=lambda: full_sentence(deployment_folders(settings)),
        quiet_until_announced=True,
    )
    with supervisor:
        supervisor.enter_start_step("preparing the state folder")
        forget_address(settings.state_dir)
        settings = settings.model_copy(update={"port": _free_port(settings.host, settings.port)})
        repair_local_cloud(settings.state_dir, supervisor.say)
        _guard_secrets(settings, supervisor.say)
        _say_kept_speeds(settings, supervisor.say)
        supervisor.say(f"starting; the programs log to {settings.state_dir / 'logs'}")
        _run_supervised(supervisor, settings)
        forget_address(settings.state_dir)
        supervisor.say("stopping")
    # Not before: whoever still ran could have called the cloud, and so have started it again.
    if stop_local_cloud(settings.state_dir, supervisor.say):
        down = command_on("down", settings.state_dir)
        supervisor.say(f"some machines of the local cloud still run; run `{down}`")
    supervisor.say(f"stopped; `{command_on('up', settings.state_dir)}` resumes from here")


def _run_supervised(supervisor: ProcessSupervisor, settings: Settings) -> None:
    # A database of before needs nothing, most often; a new one needs all its tables.
    new = not (settings.state_dir / KEY_FILE).exists()
    loading = _load_in_background(*_TO_MIGRATE) if new else None
    supervisor.enter_start_step("starting its own servers")
    settings = _start_servers(supervisor, settings)
    if supervisor.stopping:
        return
    if loading is not None:
        loading.join()
    supervisor.enter_start_step("preparing the database")
    first_admin = _prepare(supervisor, settings).first_admin_line(_address(settings))
    if supervisor.stopping:
        return
    supervisor.enter_start_step("starting api, worker and beat")
    # Beat comes last: nothing waits for it, and its start would hold up the others.
    *first, beat = _programs(settings)
    if not supervisor.start(first) or not supervisor.start([beat]):
        return
    address = _address(settings)
    try:
        remember_address(settings.state_dir, address)
    except OSError as error:
        supervisor.say(f"the address cannot be written down for other terminals: {error}")
    supervisor.say(f"sign in with the key in {settings.state_dir / KEY_FILE}")
    if settings.state_dir != folder_of(Path.cwd()):
        variable = f"{PREFIX}STATE_DIR={shlex.quote(str(settings.state_dir))}"
        supervisor.say(f"other terminals reach it after: export {variable}")
    if first_admin is not None:
        supervisor.say(first_admin)
    supervisor.announce(f"ready {address}")
    supervisor.run()


def _start_servers(supervisor: ProcessSupervisor, settings: Settings) -> Settings:
    """The settings with the URLs of the servers of our own, once those answer."""
    from app.adapters.embedded.servers.embedded_server import EmbeddedServer
    from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
    from app.adapters.embedded.servers.valkey_server import EmbeddedValkey

    own: dict[str, EmbeddedServer] = {}
    if settings.database_url is None:
        own["database_url"] = EmbeddedPostgres(settings.state_dir)
    if settings.redis_url is None:
        own["redis_url"] = EmbeddedValkey(settings.state_dir)
    if own and not supervisor.start([server.process_spec() for server in own.values()]):
        return settings
    return settings.model_copy(update={name: server.url for name, server in own.items()})


def _guard_secrets(settings: Settings, say: Callable[[str], None]) -> None:
    """Close our object store to jobs' users, and say so where jobs run as our own user."""
    from app.adapters.providers.local.machines.job_accounts import sharing_sentence
    from app.bootstrap import deployment_folders, local_cloud_folder

    store = deployment_folders(settings).get("object store")
    if store is not None and store.is_relative_to(settings.state_dir):
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        store.chmod(0o700)
    if "local" in settings.active_providers:
        folder = local_cloud_folder(settings.state_dir)
        if (sentence := sharing_sentence(folder, settings.local_first_uid)) is not None:
            say(sentence)


def _say_kept_speeds(settings: Settings, say: Callable[[str], None]) -> None:
    """Say which speeds an older folder's local cloud keeps, whatever the settings are now."""
    from app.bootstrap import local_cloud_folder

    if "local" in settings.active_providers:
        for sentence in kept_speeds(settings, local_cloud_folder(settings.state_dir)):
            say(sentence)


def _prepare(supervisor: ProcessSupervisor, settings: Settings) -> PreparedDatabase:
    from sqlalchemy.exc import SQLAlchemyError

    from app.bootstrap import database_url

    try:
        done = prepare_database(database_url(settings), settings.state_dir)
    except SQLAlchemyError as error:
        message = f"the database cannot be prepared: {first_line(error)}"
        raise CommandFailed(message, UNREACHABLE) from error
    for line in done.lines():
        supervisor.mention(line)
    return done


def _programs(settings: Settings) -> list[ProcessSpec]:
    """Api, worker and beat: side by side, with all settings in their environment."""
    from app.adapters.embedded.processes.process_spec import ProcessSpec
    from app.adapters.embedded.program_environment import program_environment

    environment = program_environment(_environment(settings))
    # -P and a working folder of ours: a package of the user's that is called `app` is not meant.
    python, folder = (sys.executable, "-P", "-m"), settings.state_dir
    level = "warning" if settings.log_level == "info" else settings.log_level
    api = (
        *(*python, *PROGRAM_ARGUMENTS["api"], "--host", settings.host),
        *("--port", str(settings.port)),
        *("--loop", "uvloop", "--http", "app.api.serving.connection_limits:LimitedHttp"),
        *("--log-level", level, "--no-access-log"),
        *("--no-server-header", "--no-proxy-headers", "--timeout-graceful-shutdown", "3"),
    )
    return [
        ProcessSpec(
            "api",
            api,
            environment,
            ready=_answers(settings),
            ready_timeout_seconds=_API_READY_SECONDS,
            stop_timeout_seconds=_API_STOP_SECONDS,
            cwd=folder,
        ),
        ProcessSpec(
            "worker",
            (*python, *PROGRAM_ARGUMENTS["worker"]),
            environment,
            stop_timeout_seconds=_WORKER_STOP_SECONDS,
            cwd=folder,
        ),
        ProcessSpec(
            "beat",
            (*python, *PROGRAM_ARGUMENTS["beat"]),
            environment,
            stop_timeout_seconds=_BEAT_STOP_SECONDS,
            cwd=folder,
        ),
    ]


def _environment(settings: Settings) -> dict[str, str]:
    """What options and servers of our own add to the environment of the programs."""
    from app.bootstrap import database_url, redis_url

    return {
        f"{PREFIX}STATE_DIR": str(settings.state_dir),
        f"{PREFIX}DATABASE_URL": database_url(settings),
        f"{PREFIX}REDIS_URL": redis_url(settings),
        f"{PREFIX}HOST": settings.host,
        f"{PREFIX}PORT": str(settings.port),
    }


def _answers(settings: Settings) -> Callable[[], bool]:
    """Whether the api says that it is ready, and is ours; asked a few times a second at most.

    The port was free when it was tried. Another Lowtide that began then, too, may have it since.
    """
    address = _address(settings)
    next_probe = 0.0

    def ready() -> bool:
        nonlocal next_probe
        if steady_seconds() < next_probe:
            return False
        next_probe = steady_seconds() + _PROBE_PERIOD_SECONDS
        return api_answers(address, "/readyz") and _a_child_listens_on(settings.port)

    return ready


def _a_child_listens_on(port: int) -> bool:
    """Whether a program that this one has started has the port. Of ours only the api is there."""
    for child in psutil.Process().children():
        try:
            found = child.net_connections("tcp")
        except psutil.Error:
            continue
        if any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found):
            return True
    return False


def _refuse_unusable_providers(settings: Settings) -> None:
    from app.bootstrap import require_usable_providers

    try:
        require_usable_providers(settings)
    except SettingsError as error:
        raise CommandFailed(str(error)) from error


def _refuse_unusable_issuers(settings: Settings) -> None:
    from app.adapters.oidc.configured_issuers import configured_issuers
    from app.adapters.oidc.issuers_file import IssuersFileError
    from app.bootstrap import control_url

    try:
        configured_issuers(settings, control_url(settings))
    except IssuersFileError as error:
        raise CommandFailed(str(error)) from error


def _other_address(error: OSError) -> str:
    """What to change: the address where it is none of this machine, else the port."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "choose an address of this machine with --host"
    return "choose another port with --port, or 0 for a free one"


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises CommandFailed when nothing can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandFailed(
                f"nothing can listen on {host}:{port} ({error.strerror or error}); "
                f"{_other_address(error)}"
            ) from error
        return int(probe.getsockname()[1])


def _reachable_host(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)


def _address(settings: Settings) -> str:
    host = _reachable_host(settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _load_in_background(*modules: str) -> threading.Thread:
    """Import what comes next while the servers start."""
    thread = threading.Thread(target=lambda: [importlib.import_module(name) for name in modules])
    thread.start()
    return thread


__all__ = ["register", "run_all", "up"]
