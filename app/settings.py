"""Settings: the environment, read once, as one frozen value.

The only reader of environment variables in app/. `python -m app.settings` prints docs/settings.md.
Not here: what is made from the settings (`app.bootstrap`), and limits that nobody needs to turn.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from app.adapters.connection_variables import ConnectionVariables
from app.adapters.contract_file import ContractVariables
from app.adapters.encryption.encryption_variables import EncryptionVariables
from app.adapters.object_stores.store_places import (
    absolute_folder,
    checkpoint_places,
    local_folder,
    seal_place,
)
from app.adapters.oidc.oidc_variables import OidcVariables
from app.adapters.providers.aws.client.aws_variables import AwsVariables, aws_problem
from app.adapters.providers.boot_variables import BootVariables
from app.adapters.providers.gcp.client.gcp_variables import GcpVariables, gcp_problem
from app.adapters.providers.local.files.local_variables import LocalVariables, local_problem
from app.domain.deployment.setting_lists import read_buckets, read_folders, read_places, read_words
from app.domain.units.numbers import NUMBER_WORDS
from trainer.protocol.storage_access import (
    DRAIN_RESERVE_SECONDS,
    LIFETIME_SECONDS,
    RENEWAL_MARGIN_SECONDS,
)

PREFIX: Final = "LOWTIDE_"
_PROVIDERS: Final = ("local", "aws", "gcp")
_SECRET_FIELDS: Final = frozenset({"api_key", "database_url", "redis_url", "oidc_client_secrets"})
_CLOUD_KEYS: Final = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        f"{PREFIX}GCP_CREDENTIALS_FILE",
    }
)
_LEASE_SECONDS_MAX: Final = LIFETIME_SECONDS - DRAIN_RESERVE_SECONDS - RENEWAL_MARGIN_SECONDS - 120
"""With a longer lease a credential would be renewed as soon as it is there."""
_STORE_SCHEMES: Final = ("file://", "s3://", "gs://")

Provider = Literal["local", "aws", "gcp"]


def _inherited() -> Mapping[str, str | None]:
    """The whole environment, names in lower case."""
    return EnvSettingsSource(BaseSettings).env_vars


class SettingsError(Exception):
    """A setting has a value that cannot be used; the message names the variable and what to do."""


def _quick(local: float, cloud: float, meaning: str) -> Any:
    """A positive number of seconds, shorter while the local cloud is the only one."""
    return Field(
        default_factory=lambda data: local if data.get("providers") == {"local"} else cloud,
        gt=0,
        description=meaning,
        json_schema_extra={"default": f"{local:g} with only `local`, else {cloud:g}"},
    )


class Settings(
    AwsVariables, GcpVariables, BootVariables, LocalVariables, ConnectionVariables, OidcVariables,
    EncryptionVariables, ContractVariables,
):  # fmt: skip
    """Every setting of the control plane and the command line. Durations are seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        allow_inf_nan=False,
    )

    state_dir: Path = Field(
        default=Path(".lowtide"),
        description="Folder of `lowtide up`: databases, logs, keys, local machines and their store",
    )
    database_url: str | None = Field(
        default=None,
        repr=False,
        description="PostgreSQL to use (`postgresql://user:password@host:5432/name`); "
        "without it `lowtide up` starts its own",
    )
    redis_url: str | None = Field(
        default=None,
        repr=False,
        description="Redis or Valkey to use (`redis://…`, `rediss://…`); "
        "without it `lowtide up` starts its own",
    )
    server_url: str = Field(
        default="http://127.0.0.1:8400",
        description="Address of the api for the command line",
    )
    api_key: SecretStr | None = Field(default=None, description="Key of the command line")
    project: str | None = Field(default=None, description="Project the command line works in")
    host: str = Field(default="127.0.0.1", description="Address the api listens on")
    port: int = Field(
        default=8400, ge=0, le=65535, description="Port of the api; 0 picks a free one"
    )
    public_url: str | None = Field(
        default=None,
        description="The api's address as rented machines reach it; https, required by aws and gcp",
    )
    providers: Annotated[frozenset[Provider], NoDecode, BeforeValidator(read_words)] = Field(
        default=frozenset({"local"}),
        min_length=1,
        description="Clouds to rent from, separated by commas: `local`, `aws`, `gcp`",
        json_schema_extra={"default": "local"},
    )
    object_store_uri: str = Field(
        default_factory=lambda data: f"{absolute_folder(data).as_uri()}/store",
        description="Where logs, workdirs and results are kept: `file://`, `s3://` or `gs://`",
        json_schema_extra={"default": "file://STATE_DIR/store"},
    )
    checkpoint_uri: str = Field(
        default_factory=lambda data: f"{data.get('object_store_uri', '')}/checkpoints",
        description="Where checkpoints are stored if a job names no place",
        json_schema_extra={"default": "OBJECT_STORE_URI/checkpoints"},
    )
    checkpoint_roots: Annotated[frozenset[Path], NoDecode, BeforeValidator(read_folders)] = Field(
        default_factory=lambda data: local_folder(data.get("object_store_uri", "")),
        description="Folders, separated by commas, in which a job's own `checkpoint.uri` may be",
        json_schema_extra={"default": "the folder of OBJECT_STORE_URI"},
    )
    checkpoint_buckets: Annotated[frozenset[str], NoDecode, BeforeValidator(read_buckets)] = Field(
        default=frozenset(),
        description="Buckets or paths in them, `s3://` or `gs://`, separated by commas, in which a "
        "job's own `checkpoint.uri` may be",
        json_schema_extra={"default": None},
    )
    data_places: Annotated[frozenset[str], NoDecode, BeforeValidator(read_places)] = Field(
        default_factory=checkpoint_places,
        description="Addresses, `s3://`, `gs://` or `file://`, separated by commas, in which a "
        "job's `inputs` and `outputs` may be; in the store and where checkpoints are, only "
        "`data/PROJECT`",
        json_schema_extra={"default": "what CHECKPOINT_ROOTS and CHECKPOINT_BUCKETS name"},
    )
    audit_seals: str = Field(
        default_factory=seal_place,
        description="Where seals over the audit are written, outside the database: `file://`, "
        "`s3://` or `gs://`; best a place where the worker may create and not change",
        json_schema_extra={
            "default": "OBJECT_STORE_URI/audit-seals of a bucket, else file://STATE_DIR/audit-seals"
        },
    )
    checkpoint_region: str | None = Field(
        default_factory=lambda: _inherited().get("aws_region") or None,
        pattern=r"^[a-z0-9-]{2,32}$",
        description="Region of the S3 buckets with checkpoints, which rented machines receive",
        json_schema_extra={"default": "AWS_REGION"},
    )
    report_interval_seconds: float = _quick(0.5, 10, "How often a machine's agent reports")
    agent_lease_seconds: float = Field(
        default=1800,
        ge=300,
        description="How long a machine may train without an answer from the control plane",
    )
    accrual_period_seconds: float = _quick(5, 60, "How often running machines are billed")
    describe_period_seconds: float = _quick(
        5, 30, "How often the cloud is asked about each machine that should run"
    )
    describe_soon_seconds: float = _quick(
        1, 3, "The same for a machine that is starting, ending or silent"
    )
    absence_age_seconds: float = _quick(
        10, 120, "How old a machine must be before its absence from the cloud's answers counts"
    )
    absence_gap_seconds: float = _quick(
        2, 10, "Time between the two answers without a machine that prove that it is gone"
    )
    sweep_period_seconds: float = _quick(
        15, 60, "How often the cloud's list is compared with the database, to find unknown machines"
    )
    price_period_seconds: float = _quick(15, 60, "How often prices are read")
    quote_age_max_seconds: float = Field(
        default=21_600.0,
        ge=60,
        description="Highest age of a price at which machines are rented",
    )
    next_look_seconds: float = _quick(
        5, 30, "How soon Lowtide tries again for a job that found no capacity"
    )
    registration_timeout_seconds: float = _quick(
        60, 600, "How long a started machine may take until its agent registers"
    )
    survivor_hold_seconds: float = Field(
        default=600, gt=0, description="How long idle machines of a gang wait for a replacement"
    )
    drain_seconds: float = _quick(
        30, 90, "How long a machine may take to save when Lowtide stops it, not the cloud"
    )
    force_silence_seconds: float = Field(
        default=600,
        gt=0,
        description="How long a machine may be silent, while others report, until Lowtide ends "
        "it; its work continues elsewhere once the cloud confirms that it is gone",
    )
    on_demand_acquire_seconds: float = Field(
        default=1800,
        ge=0,
        description="Time reserved before a deadline to get on-demand machines",
    )
    boot_seconds: float = Field(
        default=300, ge=0, description="Time reserved before a deadline for machines to boot"
    )
    restore_seconds: float = Field(
        default=60, ge=0, description="Time reserved before a deadline to load a checkpoint"
    )
    migration_saving_percent: float = Field(
        default=10,
        ge=1,
        le=100,
        description="Percentage of the remaining cost that a move to another spot pool must "
        "save; 100: no job moves",
    )
    worker_quick_threads: int = Field(
        default=4, ge=1, le=64, description="Worker threads for controllers of the database alone"
    )
    worker_cloud_threads: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Calls to clouds a worker makes at a time; 8 more threads send notifications",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much the programs write to their logs"
    )

    @field_validator("state_dir")
    @classmethod
    def _absolute_folder(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("database_url")
    @classmethod
    def _psycopg_url(cls, value: str | None) -> str | None:
        if value is None or value.startswith("postgresql+psycopg://"):
            return value
        scheme, separator, rest = value.partition("://")
        if not separator or scheme not in ("postgresql", "postgres"):
            raise ValueError("must begin with postgresql://")
        return f"postgresql+psycopg://{rest}"

    @field_validator("redis_url")
    @classmethod
    def _redis_scheme(cls, value: str | None) -> str | None:
        return _begins(value, ("redis://", "rediss://", "unix://"))

    @field_validator("server_url", "public_url")
    @classmethod
    def _web_url(cls, value: str | None) -> str | None:
        checked = _begins(value, ("http://", "https://"))
        return None if checked is None else checked.rstrip("/")

    @field_validator("object_store_uri", "checkpoint_uri", "audit_seals")
    @classmethod
    def _store_uri(cls, value: str) -> str:
        return str(_begins(value, _STORE_SCHEMES)).rstrip("/")

    @property
    def provider_problems(self) -> dict[str, str]:
        """Providers that are asked for but off, each with the sentence that says why."""
        https = self.public_url is not None and self.public_url.startswith("https://")
        found = {"aws": aws_problem(self), "gcp": gcp_problem(self)}
        limits = {"aws": self.aws_data_role, "gcp": self.gcp_data_account}
        too_long = self.agent_lease_seconds > _LEASE_SECONDS_MAX
        for name, limited_by in limits.items():
            if too_long and limited_by is not None and found[name] is None:
                found[name] = (
                    f"{name} is off: {PREFIX}AGENT_LEASE_SECONDS is {self.agent_lease_seconds:g}, "
                    f"and credentials for a job's data, which last an hour, suffice for at most "
                    f"{_LEASE_SECONDS_MAX:g}: a machine that is cut off must still be able to save"
                )
        for name, endpoint in (("aws", self.aws_endpoint_url), ("gcp", self.gcp_endpoint)):
            # The machines of a cloud that is imitated on this machine are here as well.
            here = _on_loopback(endpoint) and _on_loopback(self.public_url)
            if not https and not here:
                found[name] = (
                    f"{name} is off: machines there can only report over https, so set "
                    f"{PREFIX}PUBLIC_URL to the https:// address at which they reach this api"
                )
        return {
            name: problem
            for name, problem in sorted(found.items())
            if problem is not None and name in self.providers
        }

    @property
    def cloud_keys(self) -> tuple[str, ...]:
        """Variables of our environment that hold a key to a cloud, or say where one lies."""
        given = {name.upper() for name, value in _inherited().items() if value}
        return tuple(sorted(given & _CLOUD_KEYS))

    @property
    def active_providers(self) -> tuple[str, ...]:
        """Providers that are asked for and can be used, in a fixed order."""
        off = self.provider_problems
        return tuple(name for name in _PROVIDERS if name in self.providers and name not in off)


def load_settings(**given: Any) -> Settings:
    """Settings from the environment; `given` ones (options of a command) win over it.

    Raises SettingsError naming every variable that is wrong.
    """
    try:
        settings = Settings(**given)
    except ValidationError as error:
        # Defaults that follow from a wrong value are no problems of their own.
        problems = [p for p in error.errors() if not p["type"].startswith("default_factory")]
        raise SettingsError("\n".join(map(_sentence, problems))) from None
    if (problem := local_problem(settings, settings.providers)) is not None:
        raise SettingsError(problem)
    return settings


def unknown_variables() -> list[str]:
    """One sentence for each variable of the environment that looks like a setting and is none."""
    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    sentences = []
    for name in sorted({name.upper() for name in EnvSettingsSource(Settings).env_vars}):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            sentences.append(f"{name} is no setting and changes nothing{hint}")
    return sentences


def render_page() -> str:
    """The text of docs/settings.md."""
    rows = []
    # Those of the clouds and of connections, which are inherited, come last.
    fields = sorted(
        Settings.model_fields.items(), key=lambda item: item[0] not in Settings.__annotations__
    )
    for name, field in fields:
        extra = field.json_schema_extra
        told = extra.get("default") if isinstance(extra, dict) else field.default
        default = "none" if told is None else f"{told:g}" if isinstance(told, float) else str(told)
        rows.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return (
        "# Settings\n\n"
        "<!-- Generated by `python -m app.settings > docs/settings.md`; "
        "edit app/settings.py instead. -->\n\n"
        "Environment variables of the control plane and the command line. "
        "A wrong value stops the program\nwith a sentence that names the variable. "
        "Durations are in seconds.\n\n"
        "| Variable | Default | Meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _on_loopback(url: str | None) -> bool:
    return url is not None and (urlsplit(url).hostname or "") in ("127.0.0.1", "::1", "localhost")


def _begins(value: str | None, schemes: tuple[str, ...]) -> str | None:
    if value is not None and not value.startswith(schemes):
        raise ValueError(f"must begin with {' or '.join(schemes)}")
    return value


def _sentence(problem: Any) -> str:
    """One clear sentence; values that may hold a secret are not repeated."""
    field = str(problem["loc"][0])
    variable = f"{PREFIX}{field.upper()}"
    told = problem["msg"].removeprefix("Value error, ").partition(", unable to parse")[0]
    reason = NUMBER_WORDS.get(problem["type"]) or told.replace("Input should", "must", 1)
    value = problem["input"]
    if field == "providers":
        return (
            f"{variable}: use one or more of {', '.join(_PROVIDERS)}, separated by commas; "
            f"{value!r} is not one of them"
            if isinstance(value, str)
            else f"{variable}: name at least one of {', '.join(_PROVIDERS)}"
        )
    shown = "" if field in _SECRET_FIELDS else f"={value}"
    return f"{variable}{shown}: {reason[:1].lower()}{reason[1:]}"


if __name__ == "__main__":
    print(render_page(), end="")
