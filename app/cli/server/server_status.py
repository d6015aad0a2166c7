"""`lowtide down` and `lowtide status`: what runs from a state folder, seen from another terminal.

Not here: starting it (`up`), or the state of jobs and machines, which the api tells.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from app.adapters.disk_space import FolderSpace, measure_folders
from app.adapters.providers.local.files.cloud_settings import TermsUnreadable
from app.cli.client.failures import UNREACHABLE, CommandFailed
from app.cli.client.local_command import (
    AsJson,
    Quiet,
    StateDir,
    ending_well,
    require_folder,
    settings_with,
)
from app.cli.client.local_run import (
    ADDRESS_FILE,
    PROGRAM_ARGUMENTS,
    RunPhase,
    command_on,
    look_at_run,
    still_starting,
)
from app.cli.client.terminal import Column, Terminal
from app.cli.client.wording import NOTHING
from app.domain.units.durations import format_duration

if TYPE_CHECKING:
    from app.adapters.embedded.processes.run_record import RunningProcess

_STOP_SECONDS: Final = 45.0
_CLOUD_STOP_SECONDS: Final = 20.0


def register(program: typer.Typer) -> None:
    """Add the commands."""
    program.command("down")(down)
    program.command("status")(status)


def down(state_dir: StateDir = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Stop all that runs from the state folder.

    The machines of the local cloud are ended, too. Data, keys and jobs are kept: `lowtide up`
    resumes with them. Safe to repeat, and to run after a crash or a kill of `lowtide up`.
    """
    from app.adapters.embedded.embedded_errors import EmbeddedServerError, StateFolderBusyError
    from app.adapters.embedded.processes import run_record

    terminal = Terminal(as_json=as_json, quiet=quiet)
    with ending_well(terminal):
        folder = settings_with(state_dir=state_dir).state_dir
        require_folder(folder)
        try:
            stopped = run_record.stop_running(folder, _STOP_SECONDS, PROGRAM_ARGUMENTS)
            stopped += _stop_servers(folder)
            machines = stop_local_cloud(folder, terminal.note)
        except (StateFolderBusyError, EmbeddedServerError, TimeoutError) as error:
            raise CommandFailed(str(error), UNREACHABLE) from error
        except PermissionError as error:
            raise CommandFailed(
                f"the state folder {folder} cannot be written in by this user; run "
                f"`{command_on('down', folder)}` as the user who ran `lowtide up`, or name another "
                "folder with --state-dir"
            ) from error
        forget_address(folder)
        if machines:
            raise CommandFailed(
                f"{machines} machines of the local cloud could not be stopped: their processes "
                "are still there after SIGKILL; wait until the disk that they wait for answers, or "
                f"restart this machine, then run `{command_on('down', folder)}` again",
                UNREACHABLE,
            )
        if as_json:
            terminal.json({"state_dir": str(folder), "stopped": stopped})
        terminal.line(f"Stopped {', '.join(stopped)}." if stopped else _nothing_runs(folder))


def status(state_dir: StateDir = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Show what runs from the state folder, and its address.

    Also tells which disk is full, and what to do where `lowtide up` is still starting, is stopping
    or was killed. Exits with 0 if all of them run, with 3 if nothing runs, if one of them is dead,
    and while `lowtide up` is starting or stopping.
    """
    from app.bootstrap import deployment_folders

    terminal = Terminal(as_json=as_json, quiet=quiet)
    with ending_well(terminal):
        settings = settings_with(state_dir=state_dir)
        folder = settings.state_dir
        require_folder(folder)
        run = look_at_run(folder)
        programs = run.programs
        spaces = measure_folders(deployment_folders(settings))
        if as_json:
            terminal.json(
                {
                    "state_dir": str(folder),
                    "phase": run.phase.value,
                    "sentence": run.sentence,
                    "remedy": run.remedy,
                    "address": run.address,
                    "programs": [_document(one) for one in programs],
                    "disks": [_space_document(one) for one in spaces],
                }
            )
        elif run.phase is RunPhase.NOTHING:
            terminal.line(_nothing_runs(folder))
        else:
            if programs:
                terminal.table(_COLUMNS, programs)
                terminal.line("")
            if run.phase is RunPhase.RUNNING:
                terminal.line(run.address or "")
            elif run.phase is RunPhase.STARTING:
                terminal.line(still_starting(run).message)
            else:
                terminal.line(f"{_capitalized(run.sentence)}.\n{_capitalized(run.remedy)}.")
        for space in spaces:
            if space.is_full:
                terminal.note(f"Disk full: {space.sentence()}.")
        if run.phase is not RunPhase.RUNNING:
            raise typer.Exit(UNREACHABLE)


def remember_address(state_dir: Path, address: str) -> None:
    """Tell other terminals where the api answers."""
    from app.adapters.embedded.processes.state_folder import write_atomically

    write_atomically(state_dir / ADDRESS_FILE, f"{address}\n", 0o644)


def forget_address(state_dir: Path) -> None:
    """The api answers no more."""
    (state_dir / ADDRESS_FILE).unlink(missing_ok=True)


def stop_local_cloud(state_dir: Path, say: Callable[[str], None]) -> int:
    """End the machines of the local cloud; returns how many are left.

    Whoever may call the cloud is stopped before. say: is told what was mended. Raises TimeoutError
    when its daemon stays, CommandFailed when its files are beyond mending.
    """
    from app.bootstrap import local_cloud_folder

    folder = local_cloud_folder(state_dir)
    if not folder.is_dir():
        return 0
    from app.adapters.providers.local.server.cloud_stop import stop_cloud

    try:
        return stop_cloud(folder, _CLOUD_STOP_SECONDS, lambda what: say(_mended(what)))
    except TermsUnreadable as error:
        raise CommandFailed(str(error), UNREACHABLE) from error


def repair_local_cloud(state_dir: Path, say: Callable[[str], None]) -> None:
    """Mend the files of a local cloud that does not run; `say` is told what was mended."""
    from app.bootstrap import local_cloud_folder

    folder = local_cloud_folder(state_dir)
    if not folder.is_dir():
        return
    from app.adapters.providers.local.server.cloud_stop import repair_cloud

    for what in repair_cloud(folder):
        say(_mended(what))


def _mended(what: str) -> str:
    return f"the journal of the local cloud was mended: {what}"


def _stop_servers(state_dir: Path) -> list[str]:
    """Stop servers of our own of which the record of the run says nothing; their names."""
    from app.adapters.embedded.processes import server_account
    from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
    from app.adapters.embedded.servers.valkey_server import EmbeddedValkey

    if not server_account.has_home(state_dir):
        return []
    found = [EmbeddedPostgres(state_dir), EmbeddedValkey(state_dir)]
    running = [server for server in found if server.is_running()]
    for server in running:
        server.stop()
    return [server.name for server in running]


def _document(program: RunningProcess) -> dict[str, object]:
    uptime = program.uptime_seconds
    return {
        "program": program.name,
        "pid": program.pid,
        "alive": program.alive,
        "uptime_seconds": None if uptime is None else round(uptime),
    }


def _space_document(space: FolderSpace) -> dict[str, object]:
    return {
        "name": space.name,
        "folder": str(space.folder),
        "free_bytes": space.free_bytes,
        "full": space.is_full,
    }


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _nothing_runs(folder: Path) -> str:
    return f"Nothing runs from {folder}. Start it with `{command_on('up', folder)}`."


def _uptime(program: RunningProcess) -> str:
    seconds = program.uptime_seconds
    return NOTHING if seconds is None else format_duration(seconds)


_COLUMNS: Final = (
    Column("PROGRAM", lambda one: one.name),
    Column("PID", lambda one: str(one.pid), right=True),
    Column("ALIVE", lambda one: "yes" if one.alive else "no"),
    Column("UPTIME", _uptime),
)
