"""From settings to a running program's parts: the only place that wires adapters to ports.

Lives here: `build_runtime` for each program, and the parts that a program holds beside it. Not
here: reading the environment (`app.settings`), or starting programs (`server.up`, `workers`).
Adapters are imported where they are wired, so that a program loads only what it uses.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from app.adapters.providers.local.files.local_variables import local_settings_of
from app.orchestration.frame.limits import Limits
from app.orchestration.frame.schedule import SENDING_THREADS, TURNS, turn_of
from app.settings import PREFIX, Settings, SettingsError

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Engine

    from app.adapters.celery_wakeups import CeleryWakeups
    from app.adapters.disk_space import DiskProbe
    from app.adapters.providers.local.provider import LocalProvider
    from app.domain.deadline.live_choice import LivePool, LiveTerms, PoolPlacement
    from app.orchestration.frame.runtime import Runtime
    from app.ports.cloud_provider import CloudProvider
    from app.ports.object_store import ObjectStore
    from app.ports.price_source import PriceSource
    from app.ports.secret_grants import GrantIssuers
    from app.ports.wakeups import Wakeups
    from app.storage.unit_of_work import UnitOfWorkFactory

Role = Literal["api", "worker"]

# Connections kept, and others when needed: in all as many as the api has threads for them.
_API_CONNECTIONS: Final = (5, 15)
_WORKER_CONNECTIONS: Final = 2


@dataclass(frozen=True)
class ScheduledController:
    """What beat and the doorbell must know of a controller."""

    name: str
    queue: str
    period_seconds: float


class NoWakeups:
    """Implements `app.ports.wakeups.Wakeups` where nobody is to be woken."""

    def notify(self, controllers: Iterable[str]) -> None:
        """Nothing happens."""


def build_runtime(
    settings: Settings,
    *,
    role: Role,
    engine: Engine | None = None,
    wakeups: Wakeups | None = None,
) -> Runtime:
    """The ports of one program. Raises SettingsError for a setting that it lacks.

    Only the worker gets providers and price sources. `engine` and `wakeups` replace the role's own
    (`open_engine`, `open_wakeups`).
    """
    from app.adapters.encryption.envelope_encryption import open_encryption
    from app.adapters.object_stores.obstore_store import kept_stores, open_object_store
    from app.adapters.outgoing.channel_sender import open_sender
    from app.adapters.storage_issuers import storage_services
    from app.adapters.system_clock import SystemClock
    from app.adapters.system_entropy import SystemEntropy
    from app.adapters.thread_effects import ThreadEffects
    from app.orchestration.frame.runtime import Runtime

    providers, prices = _clouds(settings, engine) if role == "worker" else ({}, {})
    variables, files = _agent_of(settings) if role == "worker" else ({}, {})
    notified = wakeups or (open_wakeups(settings) if role == "api" else NoWakeups())
    return Runtime(
        begin=_unit_of_work(settings, role, engine, notified),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        wakeups=notified,
        effects=ThreadEffects(settings.worker_cloud_threads if role == "worker" else 1),
        object_store=open_store(settings),
        store_at=kept_stores(),
        providers=providers,
        price_sources=prices,
        control_url=control_url(settings),
        checkpoint_root_uri=settings.checkpoint_uri,
        make_placement=_make_placement,
        limits=limits_of(settings),
        machine_variables=variables,
        machine_files=files,
        checkpoint_region=settings.checkpoint_region,
        storage_services=storage_services(settings, settings, settings.active_providers),
        seal_store=open_object_store(settings.audit_seals),
        encryption=open_encryption(settings.secrets_key_file, settings.state_dir),
        sender=open_sender(settings, control_url(settings)) if role == "worker" else None,
        contract=settings.contract_prices,
    )


def open_grant_issuers(settings: Settings) -> GrantIssuers:
    """What issues machines' credentials for stores and secrets; asks no cloud. Loads a cloud's
    client where it is to issue some. Raises SettingsError when that is missing.
    """
    from app.adapters.providers.aws.client.aws_variables import aws_settings_of
    from app.adapters.providers.gcp.client.gcp_variables import gcp_settings_of
    from app.ports.secret_grants import GrantIssuers
    from trainer.protocol.run_config import AWS_SECRETS, GOOGLE_SECRETS
    from trainer.protocol.storage_access import GOOGLE, S3

    issuers, active = GrantIssuers({}, {}), settings.active_providers
    if "aws" in active and (role := settings.aws_data_role) is not None:
        with _client_of("aws", "Amazon"):
            from app.adapters.providers.aws.client.job_data_role import JobDataRole
            from app.adapters.providers.aws.client.job_secret_role import JobSecretRole
        issuers.storage[S3] = JobDataRole(role, aws_settings_of(settings))
        issuers.secrets[AWS_SECRETS] = JobSecretRole(role, aws_settings_of(settings))
    if "gcp" in active and (account := settings.gcp_data_account) is not None:
        with _client_of("gcp", "Google"):
            from app.adapters.providers.gcp.client.job_data_token import JobDataToken
            from app.adapters.providers.gcp.client.job_secret_token import JobSecretToken
        issuers.storage[GOOGLE] = JobDataToken(account, gcp_settings_of(settings))
        issuers.secrets[GOOGLE_SECRETS] = JobSecretToken(account, gcp_settings_of(settings))
    return issuers


def controller_schedule(settings: Settings) -> tuple[ScheduledController, ...]:
    """Every controller's name, queue and period; touches no server and loads no controller."""
    limits = limits_of(settings)
    return tuple(ScheduledController(name, *turn_of(name, limits)) for name in TURNS)


def open_engine(settings: Settings, role: Role) -> Engine:
    """The program's engine. Raises SettingsError when no database is set."""
    from app.storage.session.engine import make_engine

    if role == "api":
        kept, more = _API_CONNECTIONS
    else:
        kept = _WORKER_CONNECTIONS
        more = settings.worker_quick_threads + 2 * settings.worker_cloud_threads + SENDING_THREADS
    return make_engine(
        database_url(settings),
        pool_size=kept,
        max_overflow=more,
        application_name=f"lowtide-{role}",
        only_reads=database_disk(settings).is_full,
    )


def open_wakeups(settings: Settings) -> CeleryWakeups:
    """The api's doorbell; close it when the program ends. Raises SettingsError without Redis."""
    from app.adapters.celery_wakeups import CeleryWakeups, Notifiable
    from app.adapters.system_entropy import SystemEntropy

    controllers = {
        one.name: Notifiable(one.queue, one.period_seconds) for one in controller_schedule(settings)
    }
    return CeleryWakeups(redis_url(settings), controllers, SystemEntropy())


def open_store(settings: Settings) -> ObjectStore:
    """The deployment's object store. Raises ObjectStoreError for an address that cannot be used."""
    from app.adapters.object_stores.obstore_store import open_object_store

    return open_object_store(settings.object_store_uri)


def open_local_cloud(settings: Settings) -> LocalProvider | None:
    """The local cloud's control client, for what no real cloud offers; None when it is off. The api
    may hold it: it loads no cloud's SDK.
    """
    if "local" not in settings.active_providers:
        return None
    from app.adapters.providers.local.provider import LocalProvider

    return LocalProvider(local_cloud_folder(settings.state_dir), local_settings_of(settings))


def open_providers(settings: Settings) -> dict[str, CloudProvider]:
    """The clouds by name, for commands that look at them. Raises SettingsError as the worker."""
    return _clouds(settings)[0]


def local_cloud_folder(state_dir: Path) -> Path:
    """Where the local cloud keeps its machines."""
    return state_dir / "cloud"


def deployment_folders(settings: Settings) -> dict[str, Path]:
    """The folders on this machine that a deployment writes to, by name."""
    from app.adapters.disk_space import DATABASE
    from app.adapters.embedded.processes.server_account import recorded_home
    from app.adapters.embedded.processes.state_folder import recorded_port
    from app.adapters.object_stores.store_address import parse_address
    from app.ports.object_store import ObjectStoreError

    found = {"state folder": settings.state_dir, "logs": settings.state_dir / "logs"}
    # Programs of `lowtide up` are given its URL, as if it were somebody else's server.
    address = urlsplit(settings.database_url or "")
    port = recorded_port(settings.state_dir / "postgres_port")
    ours = address.hostname == "127.0.0.1" and address.port is not None and address.port == port
    if ours or settings.database_url is None:
        home = recorded_home(settings.state_dir) or settings.state_dir
        found[DATABASE] = home / "postgres"
    with contextlib.suppress(ObjectStoreError):  # an address of no use has no folder
        store = parse_address(settings.object_store_uri)
        if store.scheme == "file":
            found["object store"] = Path(store.path)
    if "local" in settings.providers:
        found["local cloud"] = local_cloud_folder(settings.state_dir)
    return found


def database_disk(settings: Settings) -> DiskProbe:
    """The disk of our own database; never full where the database is somebody else's."""
    from app.adapters.disk_space import DATABASE, DiskProbe

    folders = deployment_folders(settings)
    return DiskProbe({name: path for name, path in folders.items() if name == DATABASE})


def database_url(settings: Settings) -> str:
    """The URL of the database. Raises SettingsError with what to do when it is not set."""
    return _required(settings.database_url, "DATABASE_URL", "postgresql://user:password@host/name")


def redis_url(settings: Settings) -> str:
    """The URL of Redis or Valkey. Raises SettingsError with what to do when it is not set."""
    return _required(settings.redis_url, "REDIS_URL", "redis://host:6379/0")


def control_url(settings: Settings) -> str:
    """Where agents reach the api: its public address, else the one it listens on."""
    if settings.public_url is not None:
        return settings.public_url
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def limits_of(settings: Settings) -> Limits:
    """The limits as set; what no setting turns keeps its default."""
    return Limits(
        report_interval_seconds=settings.report_interval_seconds,
        agent_lease_seconds=settings.agent_lease_seconds,
        registration_timeout_seconds=settings.registration_timeout_seconds,
        drain_seconds=settings.drain_seconds,
        force_silence_seconds=settings.force_silence_seconds,
        on_demand_acquire_seconds=settings.on_demand_acquire_seconds,
        boot_p95_seconds=settings.boot_seconds,
        restore_seconds=settings.restore_seconds,
        migration_saving_share=settings.migration_saving_percent / 100,
        survivor_hold_seconds=settings.survivor_hold_seconds,
        next_look_seconds=settings.next_look_seconds,
        describe_seconds=settings.describe_period_seconds,
        describe_soon_seconds=settings.describe_soon_seconds,
        absence_age_seconds=settings.absence_age_seconds,
        absence_gap_seconds=settings.absence_gap_seconds,
        sweep_seconds=settings.sweep_period_seconds,
        price_refresh_seconds=settings.price_period_seconds,
        quote_age_max_seconds=settings.quote_age_max_seconds,
        accrual_seconds=settings.accrual_period_seconds,
    )


def require_usable_providers(settings: Settings) -> None:
    """Raises SettingsError when a cloud is asked for that is not there, or when none is left."""
    if not settings.active_providers:
        raise SettingsError("; ".join(settings.provider_problems.values()))


def _required(value: str | None, name: str, example: str) -> str:
    if value is not None:
        return value
    told = "or let `lowtide up` start a server of its own"
    raise SettingsError(f"{PREFIX}{name} is not set: give it, as in {example}, {told}")


def _unit_of_work(
    settings: Settings, role: Role, engine: Engine | None, wakeups: Wakeups
) -> UnitOfWorkFactory:
    from app.storage.unit_of_work import PostgresUnitOfWorkFactory

    return PostgresUnitOfWorkFactory(engine or open_engine(settings, role), wakeups)


def _clouds(
    settings: Settings, engine: Engine | None = None
) -> tuple[dict[str, CloudProvider], dict[str, PriceSource]]:
    """Providers and price sources by name. Raises SettingsError for one that is not there yet."""
    require_usable_providers(settings)
    providers: dict[str, CloudProvider] = {}
    prices: dict[str, PriceSource] = {}
    for name in settings.active_providers:
        if name in ("aws", "gcp"):
            opened = _aws if name == "aws" else _gcp
            providers[name], prices[name] = opened(settings, _deployment_id(settings, engine))
            continue
        from app.adapters.providers.local.price_source import LocalPriceSource
        from app.adapters.providers.local.provider import LocalProvider

        place = local_cloud_folder(settings.state_dir), local_settings_of(settings)
        providers[name], prices[name] = LocalProvider(*place), LocalPriceSource(*place)
    return providers, prices


@contextlib.contextmanager
def _client_of(provider: str, vendor: str) -> Iterator[None]:
    """Imports of a cloud's client. Raises SettingsError, which says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{PREFIX}PROVIDERS: {provider} needs {vendor}'s client ({error.name} is missing); "
            f"pip install 'lowtide[{provider}]'"
        ) from error


def _make_placement(terms: LiveTerms, pools: Sequence[LivePool], now: datetime) -> PoolPlacement:
    """Loads numpy at the first choice for a job with a deadline: 11 MB that others do not need."""
    from app.domain.deadline.live_placement import LivePlacement

    return LivePlacement(terms, pools, now)


def _agent_of(settings: Settings) -> tuple[dict[str, str], dict[str, bytes]]:
    """What machines of real clouds are told besides, and the agent that they ask an api for."""
    # Machines of the local cloud run the agent of this very folder.
    if not set(settings.active_providers) - {"local"}:
        return {}, {}
    from app.adapters.agent_package import agent_package
    from app.adapters.providers.boot_variables import boot_variables_of
    from app.orchestration.instances.publish_agent import agent_key

    made = agent_package()
    told = {"LOWTIDE_WHEEL_SHA256": made.sha256, **boot_variables_of(settings)}
    if settings.checkpoint_region is not None:
        told["AWS_REGION"] = settings.checkpoint_region
    return told, {agent_key(made.filename, made.content): made.content}


def _aws(settings: Settings, deployment_id: Callable[[], str]) -> tuple[CloudProvider, PriceSource]:
    from app.adapters.providers.aws.client.aws_variables import aws_settings_of
    from app.adapters.providers.boot_script import EC2, render
    from app.adapters.providers.machine_catalog import load_catalog

    with _client_of("aws", "Amazon"):
        from app.adapters.providers.aws.opening import open_aws
    return open_aws(
        aws_settings_of(settings),
        load_catalog("aws", settings.state_dir),
        deployment_id=deployment_id,
        render=functools.partial(render, cloud=EC2),
    )


def _gcp(settings: Settings, deployment_id: Callable[[], str]) -> tuple[CloudProvider, PriceSource]:
    from app.adapters.providers.boot_script import GCE, render
    from app.adapters.providers.gcp.client.gcp_variables import gcp_settings_of
    from app.adapters.providers.machine_catalog import load_catalog

    with _client_of("gcp", "Google"):
        from app.adapters.providers.gcp.opening import open_gcp
    return open_gcp(
        gcp_settings_of(settings),
        load_catalog("gcp", settings.state_dir),
        deployment_id=deployment_id,
        render=functools.partial(render, cloud=GCE),
    )


def _deployment_id(settings: Settings, engine: Engine | None) -> Callable[[], str]:
    """Whose machines a cloud lists as ours, read once; ProviderError without the database."""
    import psycopg
    from sqlalchemy.exc import SQLAlchemyError

    from app.ports.cloud_provider import ProviderError, RefusalKind

    @functools.cache
    def read() -> str:
        try:
            with _unit_of_work(settings, "worker", engine, NoWakeups())() as uow:
                return str(uow.operations.deployment_id())
        except (SQLAlchemyError, psycopg.Error, SettingsError) as error:
            told = str(error).strip().partition("\n")[0]
            text = f"the database does not tell whose machines these are: {told}"
            raise ProviderError(RefusalKind.UNAVAILABLE, text) from error

    return read
