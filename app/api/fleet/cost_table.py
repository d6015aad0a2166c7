"""Costs as a table that spreadsheets and scripts read: CSV with columns that never change.

Not here: the lines (`app.storage.money.cost_lines`), or the route (`costs`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

import orjson

from app.domain.units.money import MICROUSD_PER_USD
from app.settings import Settings
from app.storage.money.cost_figures import CostLine

COLUMNS: Final = (
    "day", "job", "project", "labels", "provider", "account", "region", "zone", "instance_id",
    "type", "market", "component", "activity", "hours", "quantity", "unit_price", "cost",
    "currency", "status",
)  # fmt: skip
"""New ones are only ever added at the end."""

_CURRENCY: Final = "USD"
_ARN_ACCOUNT: Final = re.compile(r"arn:[^:]*:iam::([0-9]{12}):")
# What spreadsheets take for a formula, also in full width; an amount below zero is none.
_FORMULA: Final = re.compile(r" *([=@+\uff1d\uff20\uff0b\uff0d]|-(?![0-9.]+$))")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def cost_table(lines: Iterable[CostLine], accounts: Mapping[str, str]) -> str:
    """The CSV text, with a header in every case; accounts: by provider."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in lines:
        writer.writerow(map(_safe, _cells(line, accounts)))
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


def _safe(cell: str) -> str:
    """Spreadsheets run cells that begin like a formula; names and labels are people's text.

    A control character, which may begin a new line or cell, becomes a space.
    """
    cell = _CONTROL.sub(" ", cell)
    return f"'{cell}" if _FORMULA.match(cell) else cell
