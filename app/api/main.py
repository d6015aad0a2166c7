"""The api program: `uvicorn app.api.main:app`. REST for people and agents, and the pages.

Lives here: the app, its layers, its start and end. Not here: any route.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi

from app.adapters.disk_space import full_sentence
from app.api.access import (
    invitations,
    keys,
    members,
    own_keys,
    project_rules,
    project_secrets,
    projects,
    sessions,
)
from app.api.agents import agents, package_routes
from app.api.agents.grant_cache import StorageGrants
from app.api.agents.report_cache_driver import start_report_cache, stop_report_cache
from app.api.agents.secret_access import SecretAccess
from app.api.audit import audit_routes
from app.api.fleet import budgets, costs, freezes, instances, launch_limits, sweeps
from app.api.health import health_routes
from app.api.health.monitoring import CountRequests, RequestCounts
from app.api.jobs import (
    checkpoint_files,
    estimates,
    explanations,
    job_batches,
    job_command_routes,
    job_history,
    jobs,
)
from app.api.jobs.page_spec_forms import PageSpecForms
from app.api.notifications import channel_routes, delivery_routes
from app.api.serving.api_parts import open_parts
from app.api.serving.connection_limits import ConnectionLimits
from app.api.serving.error_responses import describe_problems, explained, install_error_responses
from app.api.serving.known_parameters import require_known_parameters
from app.api.serving.reader_turns import ReaderTurns
from app.api.serving.request_limits import RequestLimits
from app.api.serving.request_origins import RequestOrigins
from app.api.start_problems import StartProblems, start_problem_kept
from app.api.submission import submission_checks, workdirs
from app.bootstrap import database_disk, deployment_folders, open_grant_issuers
from app.domain.spec.job_spec import JobSpec
from app.settings import Settings, load_settings, unknown_variables
from app.web.page_frame import PageParts
from app.web.pages import mount_pages

log = logging.getLogger(__name__)

# Threads for routes that block. With those of estimates and of the board no more than the database
# has connections for, so that none of them waits for one.
_THREADS = 17
# Busiest first: routes are tried in this order.
_ROUTERS = (
    jobs,
    agents,
    job_command_routes,
    job_batches,
    submission_checks,
    job_history,
    checkpoint_files,
    explanations,
    costs,
    estimates,
    instances,
    workdirs,
    health_routes,
    keys,
    own_keys,
    sessions,
    members,
    invitations,
    projects,
    project_rules,
    project_secrets,
    channel_routes,
    delivery_routes,
    freezes,
    launch_limits,
    budgets,
    audit_routes,
    sweeps,
    package_routes,
)
# Agents are of other releases than their api, and probes and scrapers have parameters of their own:
# these are answered as far as they are understood.
_TOLERANT = (agents, package_routes, health_routes)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The app. Settings are read, and servers spoken to, only when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, ConnectionLimits]]:
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        with start_problem_kept(app):
            async with open_parts(settings or load_settings()) as parts:
                app.state.parts = parts
                folders = deployment_folders(parts.settings)
                app.state.database_disk_is_full = database_disk(parts.settings).is_full
                app.state.pages = PageParts.of(
                    parts.runtime,
                    parts.reports,
                    parts.costs,
                    parts.page_reports,
                    parts.web_sessions,
                    parts.guard,
                    lambda: full_sentence(folders),
                    PageSpecForms(parts),
                    parts.project_reports,
                    parts.audit,
                    parts.identity_providers,
                )
                for sentence in unknown_variables():
                    log.warning(sentence)
                await start_report_cache(app, parts.runtime)
                issuers = await to_thread.run_sync(open_grant_issuers, parts.settings)
                app.state.storage_grants = StorageGrants(parts.runtime, issuers.storage)
                app.state.secret_access = SecretAccess(issuers.secrets)
                try:
                    yield ConnectionLimits.of(parts.settings).as_state()
                finally:
                    app.state.storage_grants.close()
                    app.state.secret_access.close()
                    await stop_report_cache(app)

    app = FastAPI(
        title="Lowtide",
        version=importlib.metadata.version("lowtide"),
        lifespan=lifespan,
        # The usual pages load scripts from elsewhere; the description itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
        # A redirect would name whatever the Host header says, and http behind a proxy: a client
        # that follows it would send its key there.
        redirect_slashes=False,
    )
    app.state.request_counts = RequestCounts()
    install_error_responses(app)
    app.add_middleware(ReaderTurns, explain=explained)
    app.add_middleware(RequestLimits)
    app.add_middleware(RequestOrigins)
    app.add_middleware(CountRequests, counts=app.state.request_counts)
    app.add_middleware(StartProblems)
    strict = [Depends(require_known_parameters)]
    for module in _ROUTERS:
        app.include_router(module.router, dependencies=[] if module in _TOLERANT else strict)
    mount_pages(app)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Put among the described shapes the job spec, which is read by hand, and our problems."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            page = get_openapi(title=app.title, version=app.version, routes=app.routes)
            spec = JobSpec.model_json_schema(ref_template="#/components/schemas/{model}")
            shapes = page.setdefault("components", {}).setdefault("schemas", {})
            shapes.update(spec.pop("$defs", {}))
            shapes["JobSpec"] = spec
            describe_problems(page)
            app.openapi_schema = page
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


app = create_app()
