"""`lowtide doctor`: is everything set up, and what to do where it is not.

Here: which checks are made for these settings, and the table. Not here: the checks
(`app.orchestration.deployment.diagnose`, `app.adapters.server_probes`, each provider's `diagnose`).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.adapters.disk_space import measure_folders
from app.adapters.system_entropy import SystemEntropy
from app.cli.client.api_client import ApiClient
from app.cli.client.failures import INTERRUPTED, CommandFailed
from app.cli.client.local_command import (
    AsJson,
    Quiet,
    StateDir,
    ending_well,
    require_folder,
    settings_with,
)
from app.cli.client.local_run import RunPhase, is_starting, look_at_run
from app.cli.client.server_address import find_server
from app.cli.client.terminal import Terminal
from app.cli.server.doctor_report import show_findings
from app.cli.server.launch_plan import TIMEOUT, TrialRequest
from app.domain.deployment.check_result import CheckResult, warning
from app.domain.units.durations import parse_duration
from app.domain.units.errors import InvalidValue
from app.domain.units.size_text import size_text
from app.ports.object_store import ObjectStoreError
from app.settings import Settings, SettingsError

if TYPE_CHECKING:
    from app.orchestration.deployment.diagnose import Check

NOT_IN_ORDER: Final = 1
_CORRECT_IT: Final = "correct the variable; docs/settings.md lists them"

Gpu = Annotated[
    str | None,
    typer.Option(metavar="GPU", help="--launch: like A100:80GB:8; or several, with commas."),
]
Infra = Annotated[
    str | None,
    typer.Option(metavar="PLACES", help="--launch: where to rent: aws,gcp/us-central1."),
]


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("doctor")(doctor)


def doctor(
    state_dir: StateDir = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="PATH|URL",
            show_default=False,
            help="Check training data instead: read and decode every sample.",
        ),
    ] = None,
    launch: Annotated[
        bool,
        typer.Option(
            "--launch", help="Rent the cheapest machine for one step, and give it back. Asks first."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="--launch: do not ask.")] = False,
    gpu: Gpu = None,
    region: Annotated[
        str | None, typer.Option(metavar="NAME", help="--launch: only in this region.")
    ] = None,
    infra: Infra = None,
    nodes: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="--launch: number of machines.")
    ] = 1,
    on_demand: Annotated[
        bool, typer.Option("--on-demand", help="--launch: on-demand in place of spot.")
    ] = False,
    timeout: Annotated[
        str,
        typer.Option(metavar="TIME", help="--launch: give it back after this long, in any case."),
    ] = TIMEOUT,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check the set-up, and say what to do about each problem.

    Checks the settings, `lowtide up`, free disk space, database, stored secrets and their key,
    Valkey, public address, the file of issuers, object store, clocks, and at each cloud's
    credentials, permissions, quotas and subnets. Rents and changes nothing; the object store gets
    one small object, which is deleted again.

    --launch is the other half: it submits a job of one step over the api, follows it through
    renting, booting, registering, training, its checkpoint and the machine's end, and says how long
    each took, or what failed and what to do. It shows the price and asks first.

    Exits with 0 if everything is in order, with 1 if something is not, with 2 if the state folder
    cannot be made.
    """
    terminal = Terminal(as_json=as_json, quiet=quiet)
    if data is not None:
        with ending_well(terminal):
            raise typer.Exit(_examine_data(terminal, data))
    if launch:
        with ending_well(terminal):
            wish = TrialRequest(gpu, region, infra, nodes, on_demand, _timeout_seconds(timeout))
            raise typer.Exit(_launch(terminal, wish, state_dir, yes))
    with ending_well(terminal):
        results = _findings(state_dir)
    show_findings(terminal, results)
    if not all(result.ok for result in results):
        raise typer.Exit(NOT_IN_ORDER)


def _findings(state_dir: Path | None) -> tuple[CheckResult, ...]:
    """Raises CommandFailed for a state folder that is not there and cannot be made."""
    from app.orchestration.deployment.diagnose import run_checks

    try:
        settings = settings_with(state_dir=state_dir)
    except CommandFailed as failure:
        return (CheckResult("settings", False, failure.message, _CORRECT_IT),)
    if _uses_state_folder(settings):
        require_folder(settings.state_dir)
    return run_checks(_checks(settings))


def _timeout_seconds(text: str) -> int:
    try:
        return parse_duration(text, at_least_seconds=1)
    except InvalidValue as error:
        raise CommandFailed(f"--timeout {text[:40]!r} {error.message}") from error


def _launch(terminal: Terminal, wish: TrialRequest, state_dir: Path | None, yes: bool) -> int:
    """The trial launch over the api: its exit code."""
    from app.cli.server.launch_check import check_launch

    try:
        with ApiClient(find_server(settings_with(state_dir=state_dir))) as api:
            return check_launch(terminal, api, wish, yes=yes)
    except typer.Abort:
        terminal.note("Nothing was rented.")
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED


def _examine_data(terminal: Terminal, data: str) -> int:
    """The trainer's own doctor, in its own process: 0, 1 something to correct, 2 no such data."""
    if importlib.util.find_spec("torch") is None:
        raise CommandFailed("--data needs the trainer here: pip install 'lowtide[trainer,images]'")
    command = [sys.executable, "-m", "trainer.training.doctor", "--data", data]
    # Its bar is on stderr, this terminal's; it takes as long as the data is large.
    done = subprocess.run(
        [*command, *(["--json"] if terminal.as_json else [])],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not terminal.quiet:
        terminal.raw(done.stdout)
    return done.returncode


def _checks(settings: Settings) -> Iterator[Check]:
    yield "settings", lambda: _settings(settings)
    yield "lowtide up", lambda: _local_run(settings)
    yield "disks", lambda: _disk_space(settings)
    # Of servers that are still being started, the line on `lowtide up` says all there is to do.
    starts = is_starting(settings.state_dir)
    if settings.database_url is not None or not starts:
        yield "database", lambda: _database(settings)
        yield "secrets", lambda: _secrets(settings)
    if settings.redis_url is not None or not starts:
        yield "valkey", lambda: _redis(settings)
    yield "public URL", lambda: _public_url(settings)
    yield "issuers", lambda: _issuers(settings)
    yield "object store", lambda: _object_store(settings)
    yield "jobs' data", lambda: _storage_grants(settings)
    yield "providers", lambda: _providers(settings)


def _uses_state_folder(settings: Settings) -> bool:
    """Not where all servers are others', and no machine is of the local cloud."""
    own_servers = settings.database_url is None or settings.redis_url is None
    return own_servers or "local" in settings.providers


def _settings(settings: Settings) -> Iterator[CheckResult]:
    from app.adapters.contract_check import contract_warnings

    providers = ", ".join(sorted(settings.providers))
    yield CheckResult("settings", True, f"readable; providers: {providers}")
    for problem in settings.provider_problems.values():
        yield CheckResult("settings", False, problem, "set it and run this again")
    for sentence in contract_warnings(settings):
        yield warning("contract prices", sentence, "correct it in the file, or leave it out there")


def _local_run(settings: Settings) -> tuple[CheckResult, ...]:
    """Nothing where no `lowtide up` has run, or the last one ended as it should."""
    run = look_at_run(settings.state_dir)
    if run.phase is RunPhase.NOTHING:
        return ()
    if run.phase is RunPhase.KILLED:
        return (CheckResult("lowtide up", False, run.sentence, run.remedy),)
    if run.phase is RunPhase.STARTING:
        # One that is not checked is not in order.
        sentence = f"{run.sentence}; its own servers cannot be checked yet"
        return (CheckResult("lowtide up", False, sentence, run.remedy),)
    if run.needs_a_remedy:
        return (warning("lowtide up", run.sentence, run.remedy),)
    return (CheckResult("lowtide up", True, run.sentence),)


def _disk_space(settings: Settings) -> Iterator[CheckResult]:
    from app.bootstrap import deployment_folders

    for space in measure_folders(deployment_folders(settings)):
        remedy = f"make room: {size_text(space.needed_bytes)} at least" if space.is_full else ""
        yield CheckResult(f"disk: {space.name}", not space.is_full, space.sentence(), remedy)


def _database(settings: Settings) -> tuple[CheckResult, ...]:
    from app.adapters.server_probes import probe_database

    url = _database_url(settings)
    if url is None:
        return (CheckResult("database", True, "none is set; `lowtide up` starts its own"),)
    return probe_database(url)


def _database_url(settings: Settings) -> str | None:
    """Of the database that is set, or that `lowtide up` runs; None while it runs none."""
    from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres

    if settings.database_url is not None or not _runs(settings, "postgres"):
        return settings.database_url
    server = EmbeddedPostgres(settings.state_dir)
    return server.url_at(server.live_port())


def _secrets(settings: Settings) -> tuple[CheckResult, ...]:
    """The key file alone where no database answers, which has a line of its own."""
    import psycopg
    from sqlalchemy.exc import SQLAlchemyError

    from app.adapters.encryption.envelope_encryption import key_file_path, open_encryption
    from app.bootstrap import NoWakeups, open_grant_issuers
    from app.orchestration.secrets.diagnose_cloud_secrets import check_cloud_secrets
    from app.orchestration.secrets.diagnose_secrets import check_key_file, check_stored_secrets
    from app.storage.session.engine import make_engine
    from app.storage.unit_of_work import PostgresUnitOfWorkFactory

    named = (settings.secrets_key_file, settings.state_dir)
    encryption = open_encryption(*named)
    if (url := _database_url(settings)) is not None:
        engine = make_engine(url, pool_size=1, max_overflow=0, application_name="lowtide-doctor")
        try:
            begin = PostgresUnitOfWorkFactory(engine, NoWakeups())
            return (
                *check_stored_secrets(begin, encryption, key_file_path(*named)),
                *check_cloud_secrets(begin, lambda: open_grant_issuers(settings), SystemEntropy()),
            )
        except (SQLAlchemyError, psycopg.Error):
            pass
        finally:
            engine.dispose()
    wrong = check_key_file(encryption)
    return () if wrong is None else (wrong,)


def _redis(settings: Settings) -> tuple[CheckResult, ...]:
    from app.adapters.embedded.servers.valkey_server import EmbeddedValkey
    from app.adapters.server_probes import probe_redis

    url = settings.redis_url
    if url is None:
        if not _runs(settings, "valkey"):
            return (CheckResult("valkey", True, "none is set; `lowtide up` starts its own"),)
        server = EmbeddedValkey(settings.state_dir)
        url = server.url_at(server.live_port())
    return probe_redis(url)


def _runs(settings: Settings, program: str) -> bool:
    from app.adapters.embedded.processes.run_record import describe_running

    return any(one.alive and one.name == program for one in describe_running(settings.state_dir))


def _public_url(settings: Settings) -> tuple[CheckResult, ...]:
    from app.adapters.server_probes import probe_public_url

    if settings.public_url is not None:
        return probe_public_url(settings.public_url)
    if settings.providers == {"local"}:
        told = "none is set; machines of the local cloud need none"
        return (CheckResult("public URL", True, told),)
    remedy = "set LOWTIDE_PUBLIC_URL to the https:// address at which machines reach the api"
    return (CheckResult("public URL", False, "none is set", remedy),)


def _issuers(settings: Settings) -> tuple[CheckResult, ...]:
    """Nothing where nobody signs in at an issuer. None is asked: the api does at a sign-in."""
    from app.adapters.oidc.configured_issuers import configured_issuers
    from app.adapters.oidc.issuers_file import IssuersFileError
    from app.bootstrap import control_url

    if settings.oidc_file is None:
        return ()
    try:
        found = configured_issuers(settings, control_url(settings))
    except IssuersFileError as error:
        remedy = "correct it, then start the api again; docs/oidc.md describes the file"
        return (CheckResult("issuers", False, str(error), remedy),)
    names = ", ".join(one.entry.name for one in found)
    return (CheckResult("issuers", True, f"readable: {names}; they are asked at a sign-in"),)


def _storage_grants(settings: Settings) -> tuple[CheckResult, ...]:
    """Nothing where no machines but those of the local cloud are rented."""
    from app.adapters.object_stores.obstore_store import open_object_store, open_with_values
    from app.bootstrap import open_grant_issuers
    from app.orchestration.deployment.diagnose_grants import check_storage_grants

    if not set(settings.active_providers) - {"local"}:
        return ()
    return check_storage_grants(
        open_grant_issuers(settings).storage,
        settings.checkpoint_uri,
        open_with_values,
        open_object_store,
        SystemEntropy().new_id(),
    )


def _object_store(settings: Settings) -> tuple[CheckResult, ...]:
    from app.bootstrap import open_store
    from app.orchestration.deployment.diagnose import check_object_store

    try:
        store = open_store(settings)
    except ObjectStoreError as error:
        return (CheckResult("object store", False, str(error), "correct LOWTIDE_OBJECT_STORE_URI"),)
    return check_object_store(store, SystemEntropy())


def _providers(settings: Settings) -> Iterator[CheckResult]:
    from app.bootstrap import open_providers
    from app.orchestration.deployment.diagnose import check_bucket_place, check_provider

    try:
        providers = open_providers(settings)
    except SettingsError as error:
        yield CheckResult("providers", False, str(error), "correct the settings of that provider")
        return
    for name in sorted(providers):
        yield from check_provider(name, providers[name])
        yield from check_bucket_place(
            name, providers[name], settings.checkpoint_uri, settings.checkpoint_region
        )
