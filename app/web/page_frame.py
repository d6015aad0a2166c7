"""What every page has in common: its parts, its templates, its headers, its errors.

Lives here: `PageParts`, rendering, and the route class that adds headers and turns problems into
pages. Not here: the pages themselves (`pages`, `sign_in`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from email.message import Message
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Protocol
from urllib.parse import quote
from uuid import UUID

from anyio import to_thread
from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as ConnectionsInUse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.domain.access.may import AccessDecision, Resource, may
from app.domain.access.principal import Origin, Principal
from app.domain.access.roles import Action
from app.domain.billing.budget import enough_text
from app.domain.lifecycle.entities import Job
from app.domain.spec.job_spec import JobSpec
from app.domain.units.errors import (
    CommandRefused,
    DomainError,
    Forbidden,
    InvalidValue,
    NotFound,
    TooManyAttempts,
)
from app.domain.units.instants import day_text
from app.domain.units.percent import saved_size
from app.domain.wording.browser_words import browser_words
from app.domain.wording.cost_words import component_words
from app.domain.wording.decision_words import WAYS_EXPECTED, WAYS_NOTE
from app.domain.wording.event_words import actor_words, event_words
from app.domain.wording.machine_words import billing_speed_words
from app.domain.wording.rule_words import SOURCE_WORDS
from app.orchestration.frame.runtime import Runtime
from app.ports.object_store import ObjectStoreError, ObjectStoreFull
from app.ports.people.identity_provider import IdentityProvider
from app.storage.access.web_sessions import WebSessions
from app.storage.audit.audit_reports import AuditReports
from app.storage.jobs.job_submission import Submitted
from app.storage.money.cost_read_models import CostReports
from app.storage.reports.job_read_models import JobReports
from app.storage.reports.page_read_models import PageReports
from app.storage.reports.project_report import ProjectReports
from app.storage.session.storage_errors import DatabaseFull, RowsLocked
from app.web import formats
from app.web.sentence_markup import with_code, without_code
from app.web.session import Sessions, Visitor
from app.web.sign_in_guard import SignInGuard

FOLDER: Final = Path(__file__).parent
STATIC_FOLDER: Final = FOLDER / "static"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TITLES: Final = {403: "Not allowed", 404: "Not found", 409: "Not possible now",
                  429: "Too many attempts", 503: "Try again",
                  507: "Disk full"}  # fmt: skip

_SILENT: Final = "The database or the object store does not answer now. Try again in a second."
_FULL: Final = (
    "A disk of the server is full, and nothing was changed. It works again once there is space; "
    "reading still works."
)
_OLD_FORM: Final = (
    "This form has expired, or came from another site. Go back, reload the page and try again."
)
_BROKEN: Final = "This is a fault of the server, not yours; the api's log has the details."

log = logging.getLogger(__name__)


class SpecForms(Protocol):
    """What a form with a job spec does: the same as the API's own routes. For threads, not async.

    Each raises SpecError with every problem, and CommandRefused for a name that is taken.
    """

    def parse(self, text: str) -> JobSpec:
        """The spec that a YAML text writes."""
        ...

    def check(self, owner: Principal, spec: JobSpec) -> None:
        """Whether this deployment would take it now; stores nothing."""
        ...

    def submit(self, owner: Principal, spec: JobSpec, key: str, *, accept_risk: bool) -> Submitted:
        """Store the job; the same key again finds the job that it has made."""
        ...


@dataclass(frozen=True)
class PageParts:
    """What the pages work with, opened once for each process."""

    runtime: Runtime
    jobs: JobReports
    costs: CostReports
    reports: PageReports
    sessions: Sessions
    kept_sessions: WebSessions
    guard: SignInGuard
    disk_problem: Callable[[], str | None]
    spec_forms: SpecForms
    projects: ProjectReports
    audit: AuditReports
    identity_providers: Mapping[str, IdentityProvider]

    @classmethod
    def of(
        cls,
        runtime: Runtime,
        jobs: JobReports,
        costs: CostReports,
        reports: PageReports,
        kept_sessions: WebSessions,
        guard: SignInGuard,
        disk_problem: Callable[[], str | None],
        spec_forms: SpecForms,
        projects: ProjectReports,
        audit: AuditReports,
        identity_providers: Mapping[str, IdentityProvider],
    ) -> PageParts:
        """The parts on what the api has opened. disk_problem: which disk is full, as a sentence."""
        sessions = Sessions(reports, kept_sessions, runtime.clock, runtime.entropy)
        return cls(
            runtime,
            jobs,
            costs,
            reports,
            sessions,
            kept_sessions,
            guard,
            disk_problem,
            spec_forms,
            projects,
            audit,
            identity_providers,
        )


class SignInNeeded(Exception):
    """The page is for those who have signed in."""


class FormExpired(Exception):
    """A form came without the token of a page that this browser was shown."""


def parts_of(request: Request) -> PageParts:
    """The parts of the app that serves a request."""
    parts: PageParts = request.app.state.pages
    return parts


def signed_in(request: Request) -> Visitor:
    """The visitor; raises SignInNeeded for one whose key is missing, unknown or revoked."""
    visitor = parts_of(request).sessions.visitor(request)
    if visitor is None or visitor.owner is None:
        raise SignInNeeded
    request.state.principal = visitor.owner
    origin: Origin | None = getattr(request.state, "origin", None)
    return visitor if origin is None else replace(visitor, owner=visitor.owner.from_origin(origin))


SignedIn = Annotated[Visitor, Depends(signed_in)]
"""The visitor of a route that is only for those who have signed in."""


def job_id_of(request: Request, visitor: Visitor, job: str) -> UUID:
    """The visitor's job of that id or name; raises NotFound."""
    assert visitor.owner is not None
    return parts_of(request).jobs.job_id(visitor.owner.project_id, job)


def may_command(visitor: Visitor, job: Job | None = None) -> bool:
    """Whether a page offers to cancel, pause and resume the job: some job where none is given."""
    assert visitor.owner is not None
    owner = visitor.owner
    mine = Resource(owner.project_id, owner.key_id, owner.person_id)
    resource = mine if job is None else Resource.of_job(job)
    return may(visitor.owner, Action.COMMAND_JOB, resource) is AccessDecision.ALLOWED


def may_submit(visitor: Visitor) -> bool:
    """Whether a page offers to submit a job."""
    assert visitor.owner is not None
    resource = Resource(visitor.owner.project_id)
    return may(visitor.owner, Action.SUBMIT, resource) is AccessDecision.ALLOWED


def may_read_audit(visitor: Visitor) -> bool:
    """Whether pages link to what people did."""
    assert visitor.owner is not None
    resource = Resource(visitor.owner.project_id)
    return may(visitor.owner, Action.READ_AUDIT, resource) is AccessDecision.ALLOWED


def check_form(request: Request, visitor: Visitor | None, token: str) -> None:
    """Raises FormExpired unless the form was made for this visitor."""
    if not parts_of(request).sessions.is_form_token(visitor, token):
        raise FormExpired


def render(
    request: Request, template: str, visitor: Visitor | None, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page or a part of one."""
    token, problem = "", None
    if visitor is not None:
        parts = parts_of(request)
        token = parts.sessions.form_token(visitor)
        if visitor.owner is not None:
            problem = parts.disk_problem()
    values |= {"visitor": visitor, "form_token": token, "disk_problem": problem}
    content = _templates().get_template(template).render(static=static_address, **values)
    return HTMLResponse(content, status, HEADERS)


def redirect(address: str) -> Response:
    """Go there with GET. `address` is a path of this site."""
    return RedirectResponse(address, 303, HEADERS)


def error_page(request: Request, status: int, sentence: str) -> HTMLResponse:
    """A page that says what went wrong and where to go on; for any path that is no API's."""
    pages = getattr(request.app.state, "pages", None)
    visitor = None
    if status < 500 and pages is not None:
        visitor = pages.sessions.visitor(request)
    title = _TITLES.get(status, "Something went wrong" if status >= 500 else "Not possible")
    return render(request, "error.html", visitor, status, title=title, sentence=sentence)


def static_address(name: str) -> str:
    """The address of a static file; it changes with its content, so it may be kept for ever."""
    return f"/static/{name}?v={_content_digest(name)}"


def _require_utf8(request: Request) -> None:
    """Raises InvalidValue for a form in another encoding: some have letters that no text may hold.

    Browsers send what a page asks for, and every page is UTF-8.
    """
    described = Message()
    described["content-type"] = request.headers.get("content-type", "")
    if (described.get_content_charset() or "utf-8") not in ("utf-8", "utf8"):
        raise InvalidValue("Forms must be UTF-8: send this one without a charset.")


class PageRoute(APIRoute):
    """A route whose problems are pages, too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with errors turned into what a browser can show."""
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                _require_utf8(request)
                return await handle(request)
            except SignInNeeded:
                return _to_sign_in(request)
            except HTTPException:
                raise
            except Exception as error:
                status, sentence = _told(request, error)
                # Who looks is a question to the database.
                page = await to_thread.run_sync(error_page, request, status, sentence)
                if isinstance(error, TooManyAttempts):
                    page.headers["Retry-After"] = str(error.wait_seconds)
                return page

        return guarded


def _told(request: Request, error: Exception) -> tuple[int, str]:
    """Status and sentence of an error; what is no person's fault goes to the log."""
    match error:
        case FormExpired():
            return 403, _OLD_FORM
        case RequestValidationError():
            return 422, "The form is incomplete. Go back and try again."
        case NotFound():
            return 404, error.message
        case Forbidden():
            return 403, error.message
        case CommandRefused():
            return 409, error.message
        case TooManyAttempts():
            return 429, error.message
        case DomainError():
            return 422, error.message
        case DatabaseFull() | ObjectStoreFull():
            log.warning("disk full on %s %s: %s", request.method, request.url.path, error)
            return 507, _FULL
        case RowsLocked() | OperationalError() | ConnectionsInUse() | ObjectStoreError():
            # The first line: below it there may be a whole SQL statement.
            reason = str(error).partition("\n")[0]
            log.warning("%s %s: %s", request.method, request.url.path, reason)
            return 503, _SILENT
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return 500, _BROKEN


def _to_sign_in(request: Request) -> Response:
    """To the sign-in page, and back to this one afterwards."""
    path = request.url.path
    if request.url.query:
        path += f"?{request.url.query}"
    if request.headers.get("hx-request"):
        shown = request.headers.get("hx-current-url", "")
        path = "/" + shown.split("://", 1)[-1].partition("/")[2].partition("#")[0]
        where = f"/sign-in?next={quote(path, safe='/')}"
        return Response(status_code=401, headers={**HEADERS, "HX-Redirect": where})
    if request.method != "GET":
        path = request.url.path.rpartition("/")[0].removesuffix("/-") or "/"
    return redirect(f"/sign-in?next={quote(path, safe='/')}")


@cache
def _content_digest(name: str) -> str:
    return hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:12]


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["ways_expected"] = WAYS_EXPECTED
    environment.globals["ways_note"] = WAYS_NOTE
    environment.globals["source_words"] = SOURCE_WORDS
    environment.globals["may_command"] = may_command
    environment.globals["may_submit"] = may_submit
    environment.globals["may_read_audit"] = may_read_audit
    environment.filters.update(
        usd=formats.usd,
        usd_exact=formats.usd_exact,
        part_percent=formats.part_percent,
        enough=enough_text,
        per_hour=formats.per_hour,
        saved=formats.saved,
        saved_size=saved_size,
        against=formats.against,
        brief=formats.brief,
        ago=formats.ago,
        since=formats.since,
        clock_time=formats.clock_time,
        day=day_text,
        full_time=formats.full_time,
        machine_time=formats.machine_time,
        words=formats.words,
        actor_words=actor_words,
        browser_words=browser_words,
        component_words=component_words,
        event_words=event_words,
        count=formats.count,
        size=formats.size,
        with_code=with_code,
        faster_bill=billing_speed_words,
        without_code=without_code,
    )
    return environment
