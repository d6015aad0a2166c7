"""What the routes work with, opened once for each process: runtime, pools, reports, keys.

Lives here: the bundle, its opening and closing. Not here: the making of the runtime
(`app.bootstrap`), or any decision.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from anyio import CapacityLimiter, to_thread
from fastapi import Request

from app.adapters.input_checks.archive_checker import ArchiveChecker
from app.adapters.input_checks.spec_reader import SpecReader
from app.adapters.oidc.issuers_file import IssuersFileError
from app.adapters.oidc.oidc_issuer import OidcIssuer, open_issuers
from app.adapters.providers.local.machines.job_accounts import settle_accounts
from app.api.serving.key_ring import KeyRing
from app.api.serving.offers_page import OffersPage
from app.api.serving.refusal_counts import RefusalCounts
from app.api.serving.rules_in_force import RulesInForce
from app.api.serving.turns import Turns
from app.bootstrap import (
    build_runtime,
    control_url,
    database_disk,
    database_url,
    local_cloud_folder,
    open_engine,
    open_local_cloud,
    open_wakeups,
)
from app.domain.deployment.setting_lists import Network
from app.orchestration.estimates.evaluate_promise import AcceptedPromises
from app.orchestration.frame.runtime import Runtime
from app.ports.clock import Clock
from app.ports.entropy import Entropy
from app.ports.people.identity_provider import IdentityProvider
from app.settings import Settings, SettingsError
from app.storage.access.sign_in_attempts import SignInAttempts
from app.storage.access.web_sessions import WebSessions
from app.storage.audit.audit_reports import AuditReports
from app.storage.jobs.hot_statements import HotStatements, make_pool
from app.storage.money.cost_read_models import CostReports
from app.storage.reports.job_read_models import JobReports
from app.storage.reports.page_read_models import PageReports
from app.storage.reports.project_report import ProjectReports
from app.web.sign_in_guard import SignInGuard

_SPECS_WAITING_MAX = 32
_SPEC_SECONDS_MAX = 30.0
_ARCHIVES_AT_ONCE = 2
_ARCHIVE_SECONDS_MAX = 300.0
_UPLOADS_AT_ONCE = 10


class InterruptibleCloud(Protocol):
    """What the local cloud offers beyond a provider."""

    def interrupt_as_usual(self, provider_instance_id: str) -> datetime:
        """Take a spot machine with its cloud's own notice: when it is killed."""
        ...

    def interrupt(self, provider_instance_id: str, notice_seconds: float | None) -> datetime:
        """Take a spot machine: the instant at which it is killed."""
        ...

    def invoice(self, until: datetime | None = None) -> dict[str, dict[str, int]]:
        """The cloud's own bill: machine id -> component -> micro-dollars."""
        ...


@dataclass(frozen=True)
class ApiParts:
    """One process's parts. `hot` is for async routes; everything else blocks: use it in `def`.

    accepted: for the event loop's thread alone. local_cloud: None where the local provider is off.
    specs: used by `spec_thread` alone, in turns.
    uploads: archives that are being received; archive_turns: that are being checked and stored.
    local_warning: what a job may be told that can run on a local machine; "" for nothing.
    """

    settings: Settings
    runtime: Runtime
    hot: HotStatements
    accepted: AcceptedPromises
    keys: KeyRing
    rules: RulesInForce
    reports: JobReports
    costs: CostReports
    page_reports: PageReports
    project_reports: ProjectReports
    web_sessions: WebSessions
    guard: SignInGuard
    offers: OffersPage
    local_cloud: InterruptibleCloud | None
    specs: SpecReader
    spec_turns: Turns
    spec_thread: CapacityLimiter
    archives: ArchiveChecker
    uploads: Turns
    archive_turns: Turns
    local_warning: str
    audit: AuditReports
    refusals: RefusalCounts
    identity_providers: Mapping[str, IdentityProvider]

    @property
    def entropy(self) -> Entropy:
        """Where ids come from."""
        return self.runtime.entropy

    @property
    def trusted_proxies(self) -> Collection[Network]:
        """Who is believed about where a request comes from."""
        return self.settings.trusted_proxies


@asynccontextmanager
async def open_parts(settings: Settings) -> AsyncIterator[ApiParts]:
    """The parts, from settings; raises SettingsError when a server's address is missing."""
    engine = open_engine(settings, "api")
    wakeups = open_wakeups(settings)
    pool = make_pool(database_url(settings))
    specs = SpecReader()
    try:
        await pool.open()
        runtime = build_runtime(settings, role="api", engine=engine, wakeups=wakeups)
        issuers = _issuers(settings, runtime.clock)
        hot = HotStatements(pool, database_disk(settings).is_full)
        reports = JobReports(engine)
        refusals = RefusalCounts(runtime)
        refusals.start()
        try:
            yield ApiParts(
                settings=settings,
                runtime=runtime,
                hot=hot,
                accepted=AcceptedPromises(runtime.clock),
                keys=KeyRing(hot, runtime.clock),
                rules=RulesInForce(hot),
                reports=reports,
                costs=CostReports(engine),
                page_reports=PageReports(engine),
                project_reports=ProjectReports(engine),
                web_sessions=WebSessions(engine),
                guard=SignInGuard(SignInAttempts(engine), runtime.clock),
                offers=OffersPage(runtime, reports),
                local_cloud=open_local_cloud(settings),
                specs=specs,
                spec_turns=Turns(1, _SPECS_WAITING_MAX, "job specs", seconds_max=_SPEC_SECONDS_MAX),
                spec_thread=CapacityLimiter(1),
                archives=ArchiveChecker(),
                uploads=Turns(_UPLOADS_AT_ONCE, 0, "uploads", seconds_max=_ARCHIVE_SECONDS_MAX),
                archive_turns=Turns(
                    _ARCHIVES_AT_ONCE,
                    _UPLOADS_AT_ONCE,
                    "archives",
                    seconds_max=_ARCHIVE_SECONDS_MAX,
                ),
                local_warning=await to_thread.run_sync(_local_warning, settings),
                audit=AuditReports(engine),
                refusals=refusals,
                identity_providers=issuers,
            )
        finally:
            await refusals.stop()
            for issuer in issuers.values():
                issuer.close()
    finally:
        await to_thread.run_sync(specs.close)
        await pool.close(timeout=5)
        await to_thread.run_sync(wakeups.close)
        engine.dispose()


def _issuers(settings: Settings, clock: Clock) -> dict[str, OidcIssuer]:
    try:
        return open_issuers(settings, control_url(settings), clock)
    except IssuersFileError as error:
        raise SettingsError(str(error)) from None


def _local_warning(settings: Settings) -> str:
    keys = settings.cloud_keys
    if not keys or "local" not in settings.active_providers:
        return ""
    folder = local_cloud_folder(settings.state_dir)
    if not settle_accounts(folder, settings.local_first_uid).problem:
        return ""
    return (
        "on a local machine this job runs as Lowtide's own user and can read the keys to clouds in "
        f"its environment ({', '.join(keys)}); name other places in `infra`, or see docs/local.md"
    )


def parts_of(request: Request) -> ApiParts:
    """The parts of the app that serves a request."""
    parts: ApiParts = request.app.state.parts
    return parts
