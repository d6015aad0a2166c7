"""What was spent, on what, and whether the books close.

As CSV, too: its columns never change, because spreadsheets and scripts read them.

Not here: how it is computed (`app.storage.money.cost_read_models`, `app.domain`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import date, timedelta
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.fleet.cost_shapes import JobCostShape, PeriodCostsShape, VerificationShape
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import Reader
from app.api.serving.json_answers import as_json
from app.domain.access.may import DEPLOYMENT, AccessDecision, may
from app.domain.access.roles import Action
from app.domain.billing.books_check import BooksCheck
from app.domain.units.errors import InvalidValue, NotFound
from app.domain.units.money import MICROUSD_PER_USD
from app.domain.units.spreadsheet_text import safe_cell
from app.settings import Settings
from app.storage.money.cost_figures import CostGroup, CostLine, Invoices

router = APIRouter(prefix="/api/v1", tags=["costs"])

_PERIOD_DAYS = 30
_PERIOD_DAYS_MAX = 3_660
_LAST_DAY = date.max - timedelta(days=1)  # a period ends with the midnight after its last day

COLUMNS: Final = (
    "day", "job", "project", "labels", "provider", "account", "region", "zone", "instance_id",
    "type", "market", "component", "activity", "hours", "quantity", "unit_price", "cost",
    "currency", "status",
)  # fmt: skip
"""New ones are only ever added at the end."""
_CURRENCY: Final = "USD"
_ARN_ACCOUNT: Final = re.compile(r"arn:[^:]*:iam::([0-9]{12}):")


@router.get("/jobs/{job}/cost", response_model=None, responses={200: {"model": JobCostShape}})
def job_cost(
    request: Request,
    caller: Reader,
    job: str,
    reconcile: Annotated[bool, Query(description="Compare with the local cloud's bill")] = False,
) -> Response:
    """What a job cost so far: by machine, by activity, against on-demand, and how firm it is."""
    parts = parts_of(request)
    job_id = parts.reports.job_id(caller.project_id, job)
    found = parts.costs.job_cost(job_id, _invoices(parts) if reconcile else None)
    if found is None:
        raise NotFound(f"There is no job {job[:80]!r} in this project.")
    return as_json({**vars(found), "books": _books(found.books, parts)})


@router.get(
    "/costs",
    response_model=None,
    responses={
        200: {"model": PeriodCostsShape, "content": {"text/csv": {"schema": {"type": "string"}}}}
    },
)
def costs(
    request: Request,
    caller: Reader,
    from_day: Annotated[
        date | None, Query(alias="from", description="First UTC day; default 30 days back")
    ] = None,
    to_day: Annotated[
        date | None, Query(alias="to", description="Last UTC day; default today")
    ] = None,
    by: Annotated[CostGroup, Query(description="What to group by")] = CostGroup.JOB,
    label: Annotated[str | None, Query(max_length=63, description="Name, for by=label")] = None,
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
) -> Response:
    """The project's costs by usage over whole UTC days, dearest first, with what no job pays.

    As CSV line by line, in columns that are always the same: `by` and `label` change nothing.
    """
    if label is not None and by is not CostGroup.LABEL:
        raise InvalidValue(
            f"label: by={by.value} groups by no label; write by=label to group by this one, or "
            "leave label out",
            "label",
        )
    parts = parts_of(request)
    today = parts.runtime.clock.now().date()
    last = to_day or today
    if last > _LAST_DAY:
        raise InvalidValue(f"to: {_LAST_DAY} is the last day there is; give an earlier one", "to")
    first = from_day
    if first is None:
        first = date.fromordinal(max(1, last.toordinal() - _PERIOD_DAYS + 1))
    if first > last:
        raise InvalidValue(f"from: {_why_no_period(first, to_day, today)}", "from")
    if last - first >= timedelta(days=_PERIOD_DAYS_MAX):
        raise InvalidValue("from: a report covers ten years at most; give a later day", "from")
    if form == "csv":
        lines = parts.costs.cost_lines(first, last, project_id=caller.project_id)
        text = cost_table(lines, accounts_of(parts.settings))
        return Response(text, media_type="text/csv; charset=utf-8")
    report = parts.costs.period_costs(first, last, by, label=label, project_id=caller.project_id)
    books = _books(report.books, parts)
    told = {name: books[name] for name in ("difference_microusd", "checked_at")}
    return as_json({**vars(report), **told, "books": books})


@router.get("/costs/verify", response_model=None, responses={200: {"model": VerificationShape}})
def verify(
    request: Request,
    caller: Reader,
    job: Annotated[str | None, Query(max_length=63, description="Only this job")] = None,
) -> Response:
    """Recompute every bill from raw facts and prices and compare: `closed` when all agree.

    Of one job, else of the key's project, and with the key of an admin or auditor of the whole
    deployment, unless the request names a project. The local cloud's machines are compared with
    its own bill too.
    """
    parts = parts_of(request)
    job_id = None if job is None else parts.reports.job_id(caller.project_id, job)
    sees_all = may(caller, Action.READ_DEPLOYMENT, DEPLOYMENT) is AccessDecision.ALLOWED
    found = parts.costs.verify(
        _invoices(parts),
        job_id=job_id,
        project_id=None if sees_all and not caller.home else caller.project_id,
    )
    verified_at = parts.runtime.clock.now()
    return as_json({"verified_at": verified_at, **vars(found), "closed": found.closed})


def _why_no_period(first: date, to_day: date | None, today: date) -> str:
    if to_day is not None:
        return f"{first} is after to, {to_day}; give the earlier day first"
    return f"{first} lies in the future: today is {today} in UTC; give an earlier day"


def _books(check: BooksCheck, parts: ApiParts) -> dict[str, Any]:
    now = parts.runtime.clock.now()
    return {"verdict": check.verdict, "sentence": check.sentence(now), **asdict(check)}


def _invoices(parts: ApiParts) -> Invoices | None:
    return None if parts.local_cloud is None else {"local": parts.local_cloud.invoice()}


def cost_table(lines: Iterable[CostLine], accounts: Mapping[str, str]) -> str:
    """The CSV text, with a header in every case; accounts: by provider."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in lines:
        writer.writerow(map(safe_cell, _cells(line, accounts)))
    return text.getvalue()


def accounts_of(settings: Settings) -> dict[str, str]:
    """Whose money it is, by provider, as far as the settings tell: Google Cloud's project, and the
    AWS account in the name of the role for jobs' data.
    """
    role = _ARN_ACCOUNT.match(settings.aws_data_role or "")
    return {
        "local": "local",
        "gcp": settings.gcp_project or "",
        "aws": "" if role is None else role[1],
    }


def _cells(line: CostLine, accounts: Mapping[str, str]) -> tuple[str, ...]:
    pool = line.pool
    return (
        line.day.isoformat(),
        line.job or "",
        line.project or "",
        _labels(line.labels),
        line.provider,
        accounts.get(line.provider, ""),
        "" if pool is None else pool.region,
        "" if pool is None else pool.zone,
        line.provider_instance_id or "",
        "" if pool is None else pool.instance_type,
        "" if pool is None else pool.market.value,
        line.component.value,
        line.activity.value,
        _six_decimals(line.hours),
        _six_decimals(line.quantity),
        "" if not line.quantity else _dollars(line.amount_microusd / line.quantity),
        _dollars(Fraction(line.amount_microusd)),
        _CURRENCY,
        line.status.value,
    )


def _labels(labels: Mapping[str, str]) -> str:
    """A JSON object; a semicolon, which separates cells in some languages, is escaped."""
    return orjson.dumps(labels, option=orjson.OPT_SORT_KEYS).decode().replace(";", "\\u003b")


def _dollars(microusd: Fraction) -> str:
    return _six_decimals(microusd / MICROUSD_PER_USD)


def _six_decimals(value: Fraction) -> str:
    """Rounded half to even; a micro-dollar is the smallest amount there is."""
    millionths = round(value * 1_000_000)
    whole, rest = divmod(abs(millionths), 1_000_000)
    return f"{'-' if millionths < 0 else ''}{whole}.{rest:06d}"
