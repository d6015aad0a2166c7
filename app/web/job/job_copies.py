"""Running a job again, as it was or changed: the form with its spec, checked by the server.

Lives here: the form, its problems at their lines, and the two ways to submit. Not here: the checks
(`page_frame.SpecForms`), or the copy's name (`app.orchestration.queue.copy_job`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import yaml
from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from app.domain.access.may import require_role
from app.domain.access.roles import Action
from app.domain.lifecycle.entities import Job
from app.domain.spec.job_spec import parse_spec
from app.domain.spec.spec_document import SpecDocument
from app.domain.units.errors import (
    Advice,
    CommandRefused,
    DomainError,
    InvalidValue,
    ProblemKind,
    SpecError,
    SpecProblem,
)
from app.orchestration.queue.copy_job import copied_spec
from app.web.page_frame import (
    PageParts,
    PageRoute,
    SignedIn,
    check_form,
    parts_of,
    redirect,
    render,
)
from app.web.session import Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_SPEC_CHARACTERS_MAX: Final = 256 * 1024
# libyaml where PyYAML has it: its own dumper takes 30 ms for a long spec, at each renewal.
_DUMPER: type[yaml.SafeDumper | yaml.CSafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

Token = Annotated[str, Form(max_length=200)]
Once = Annotated[str, Form(max_length=100, pattern=r"^[A-Za-z0-9_-]+$")]
"""Made with each form: sent twice, it is one submission."""


@dataclass(frozen=True)
class FieldProblem:
    """One thing wrong with the text; line: where its field stands, from 1, None if it does not."""

    field: str
    message: str
    line: int | None


def spec_yaml(spec: SpecDocument) -> str:
    """A stored spec as YAML for people, without what is as by default."""
    short = parse_spec(spec).to_short_json()
    return yaml.dump(short, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)


@router.get("/jobs/{job}/clone")
def clone_form(request: Request, visitor: SignedIn, job: str) -> Response:
    """The job's spec under a free name, to be changed."""
    parts = parts_of(request)
    found, spec = _copy(parts, visitor, job)
    return _form(request, visitor, found, spec_yaml(spec))


@router.post("/jobs/{job}/clone")
def clone(
    request: Request,
    visitor: SignedIn,
    job: str,
    once: Once,
    spec: Annotated[str, Form(max_length=_SPEC_CHARACTERS_MAX)] = "",
    form_token: Token = "",
    action: Annotated[str, Form(max_length=20)] = "submit",
    accept_risk: Annotated[bool, Form()] = False,
) -> Response:
    """Check the text, and with the action `submit` make a job of it."""
    check_form(request, visitor, form_token)
    parts = parts_of(request)
    found, _ = _copy(parts, visitor, job)
    assert visitor.owner is not None
    try:
        parsed = parts.spec_forms.parse(spec)
        if action != "submit":
            parts.spec_forms.check(visitor.owner, parsed)
            return _form(request, visitor, found, spec, checked=True)
        made = parts.spec_forms.submit(visitor.owner, parsed, once, accept_risk=accept_risk)
    except (SpecError, CommandRefused, InvalidValue) as error:
        return _form(request, visitor, found, spec, error)
    return redirect(f"/jobs/{made.name}")


@router.post("/jobs/{job}/run-again")
def run_again(
    request: Request, visitor: SignedIn, job: str, once: Once, form_token: Token = ""
) -> Response:
    """Submit the same spec under a free name; the form where something must be changed first."""
    check_form(request, visitor, form_token)
    parts = parts_of(request)
    found, spec = _copy(parts, visitor, job)
    assert visitor.owner is not None
    try:
        made = parts.spec_forms.submit(visitor.owner, parse_spec(spec), once, accept_risk=False)
    except (SpecError, CommandRefused, InvalidValue) as error:
        return _form(request, visitor, found, spec_yaml(spec), error)
    return redirect(f"/jobs/{made.name}")


def field_problems(error: DomainError, text: str) -> list[FieldProblem]:
    """Every problem with the line of the text that its field stands in."""
    if isinstance(error, SpecError):
        problems: Sequence[SpecProblem] = error.problems
    else:
        problems = (SpecProblem(error.field or "", error.message),)
    return [
        FieldProblem(one.field, one.message, one.line or line_of(text, one.field))
        for one in problems
    ]


def line_of(text: str, field: str) -> int | None:
    """The line, from 1, of a dotted field in a YAML text; of its section where it stands not there.

    By the look of the lines: what stands in a flow mapping is found with the line that begins it.
    """
    found: int | None = None
    lines = text.splitlines()
    begin, end = 0, len(lines)
    for part in filter(None, field.split(".")):
        key = re.compile(rf"""\s*(?:- )?["']?{re.escape(part)}["']?\s*:""")
        place = next((n for n in range(begin, end) if key.match(lines[n])), None)
        if place is None:
            break
        found, begin = place + 1, place + 1
        depth = _indent(lines[place])
        inside = (n for n in range(begin, end) if lines[n].strip() and _indent(lines[n]) <= depth)
        end = next(inside, end)
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _form(
    request: Request,
    visitor: Visitor,
    job: Job,
    text: str,
    error: DomainError | None = None,
    *,
    checked: bool = False,
) -> Response:
    problems = [] if error is None else field_problems(error, text)
    refused = error.problems if isinstance(error, SpecError) else ()
    return render(
        request, "clone.html", visitor, 200 if error is None else 422, job=job, spec_text=text,
        problems=problems, acceptable=any(one.advice is Advice.ACCEPT_RISK for one in refused),
        impossible=any(one.kind is ProblemKind.IMPOSSIBLE for one in refused), checked=checked,
        rows=min(40, text.count("\n") + 2),
        once=parts_of(request).runtime.entropy.new_token(),
    )  # fmt: skip


def _copy(parts: PageParts, visitor: Visitor, job: str) -> tuple[Job, SpecDocument]:
    """The job, and its spec under a free name. Raises NotFound, and Forbidden for who may not
    submit.
    """
    assert visitor.owner is not None
    job_id = parts.jobs.job_id(visitor.owner.project_id, job)
    require_role(visitor.owner, Action.SUBMIT)
    with parts.runtime.begin() as uow:
        found = uow.jobs.get(job_id)
        assert found is not None, "its id was just found"
        return found, copied_spec(uow, found)
