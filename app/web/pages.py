"""The pages: jobs, one job, the parts of them that look again by themselves, and estimates.

Lives here: routes alone, and how they are mounted. Not here: what a page shows (`job_page`,
`job_list`, `estimate_accuracy`, `log_tail`), signing in (`sign_in`, `access`), or commands
(`job_forms`).
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from app.orchestration.queue.copy_job import copied_spec
from app.orchestration.queue.hidden_env import shown_spec
from app.web import audit_page, notification_page, project_pages, sign_in
from app.web.access import accept_invitation, account, issuer_sign_in, login_page
from app.web.estimate_accuracy import estimate_accuracy
from app.web.job import downloads, job_copies, job_forms
from app.web.job.job_copies import spec_yaml
from app.web.job.job_page import job_view
from app.web.job.log_tail import log_tail
from app.web.job.saved_files import saved_files
from app.web.jobs import job_selection
from app.web.jobs.job_list import job_list
from app.web.jobs.job_query import read_query
from app.web.page_frame import (
    HEADERS,
    STATIC_FOLDER,
    PageRoute,
    SignedIn,
    error_page,
    job_id_of,
    parts_of,
    redirect,
    render,
)
from app.web.session import HOME, Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_NO_PAGE = "There is no page at this address."


def mount_pages(app: FastAPI) -> None:
    """Add the pages and their static files to the api's app.

    Before the first request `app.state.pages` must hold `page_frame.PageParts`. Call this after
    the app's own error responses are in place.
    """
    forms = (job_selection.router, job_forms.router, job_copies.router)
    access = (
        sign_in.router,
        issuer_sign_in.router,
        accept_invitation.router,
        account.router,
        login_page.router,
    )
    others = (
        downloads.router, project_pages.router, notification_page.router, audit_page.router,
    )  # fmt: skip
    for one in (router, *access, *forms, *others):
        app.include_router(one)
    app.mount("/static", _StaticFiles(directory=STATIC_FOLDER), name="static")
    answer_otherwise = app.exception_handlers.get(HTTPException, http_exception_handler)

    async def not_found(request: Request, error: HTTPException) -> Response:
        """A page for a browser that looks for one which is not there; others as before."""
        if error.status_code == 404 and "text/html" in request.headers.get("accept", ""):
            return await to_thread.run_sync(error_page, request, 404, _NO_PAGE)
        answer = answer_otherwise(request, error)
        return await answer if isawaitable(answer) else answer

    app.add_exception_handler(HTTPException, not_found)  # type: ignore[arg-type]


class _StaticFiles(StaticFiles):
    """Files whose addresses change with their content, so browsers may keep them."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """The file, to be kept for a year."""
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


@router.get("/")
def home() -> Response:
    """The list of jobs."""
    return redirect(HOME)


@router.get("/jobs")
def jobs(request: Request, visitor: SignedIn) -> Response:
    """A page of the project's jobs, by what the address asks for."""
    return _jobs(request, visitor, "jobs.html")


@router.get("/jobs/-/table")
def jobs_table(request: Request, visitor: SignedIn) -> Response:
    """The part of the list that looks again by itself."""
    return _jobs(request, visitor, "jobs_table.html")


@router.get("/estimates")
def estimates(request: Request, visitor: SignedIn) -> Response:
    """Estimates of the project against what its jobs took."""
    assert visitor.owner is not None
    accuracy = estimate_accuracy(parts_of(request), visitor.owner.project_id)
    return render(request, "estimates.html", visitor, accuracy=accuracy)


@router.get("/jobs/{job}")
def job(request: Request, visitor: SignedIn, job: str) -> Response:
    """One job, whole."""
    parts = parts_of(request)
    job_id = job_id_of(request, visitor, job)
    view = job_view(parts, job_id)
    with parts.runtime.begin() as uow:
        copy_name = copied_spec(uow, view.job).get("name")
    return render(
        request, "job.html", visitor, view=view, now=view.now, saved=saved_files(parts, job_id),
        spec_text=spec_yaml(shown_spec(view.job)), copy_name=copy_name,
        once=parts.runtime.entropy.new_token(),
    )  # fmt: skip


@router.get("/jobs/{job}/live")
def job_live(request: Request, visitor: SignedIn, job: str) -> Response:
    """The part of a job's page that looks again by itself."""
    view = job_view(parts_of(request), job_id_of(request, visitor, job))
    return render(request, "job_live.html", visitor, view=view, now=view.now)


@router.get("/jobs/{job}/saved")
def job_saved(request: Request, visitor: SignedIn, job: str) -> Response:
    """What the job has saved; it looks again by itself, every ten seconds."""
    parts = parts_of(request)
    saved = saved_files(parts, job_id_of(request, visitor, job))
    return render(request, "saved_files.html", visitor, saved=saved, now=parts.runtime.clock.now())


@router.get("/jobs/{job}/log-tail")
def job_log_tail(
    request: Request,
    visitor: SignedIn,
    job: str,
    stream: Annotated[str | None, Query(max_length=200)] = None,
    seen: Annotated[str, Query(max_length=60)] = "",
) -> Response:
    """The end of one stream of logs; 204 when that is what is shown already."""
    parts, job_id = parts_of(request), job_id_of(request, visitor, job)
    tail = log_tail(parts.runtime, job_id, stream, seen)
    if tail is None:
        return Response(status_code=204, headers=HEADERS)
    names = parts.reports.machine_names(job_id)
    return render(request, "job_logs.html", visitor, job_ref=job, tail=tail, names=names)


def _jobs(request: Request, visitor: Visitor, template: str) -> Response:
    assert visitor.owner is not None
    query = read_query(request.query_params.multi_items())
    if query.problem is not None:
        return render(request, "jobs_problem.html", visitor, 422, problem=query.problem)
    listed = job_list(parts_of(request), visitor.owner.project_id, query)
    return render(request, template, visitor, listed=listed)
