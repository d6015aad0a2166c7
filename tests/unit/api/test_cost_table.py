"""The table of costs: the same columns whatever is in it, and nothing that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import date
from fractions import Fraction

import pytest

from app.api.fleet.costs import COLUMNS, accounts_of, cost_table
from app.domain.billing.billing import Component
from app.domain.billing.cost_statement import Activity
from app.domain.market.offer import Pool
from app.settings import Settings
from app.storage.money.cost_figures import CostLine, CostStatus

LINE = CostLine(
    day=date(2026, 3, 1),
    job="digits",
    project="alpha",
    labels={"team": "nlp", "cost_center": "4711"},
    provider="aws",
    pool=Pool.parse("aws/us-west-2/us-west-2a/p3.2xlarge/spot"),
    provider_instance_id="i-0123",
    component=Component.COMPUTE,
    activity=Activity.USEFUL,
    hours=Fraction(20, 3600),
    quantity=Fraction(10, 3600),
    amount_microusd=12_000,
    status=CostStatus.FINAL,
)


def rows(*lines: CostLine) -> list[list[str]]:
    return list(csv.reader(io.StringIO(cost_table(lines, {"aws": "111122223333"}))))


def test_the_columns_are_always_the_same() -> None:
    [header, line] = rows(LINE)
    assert rows() == [header] == [list(COLUMNS)]
    assert ",".join(header) == (
        "day,job,project,labels,provider,account,region,zone,instance_id,type,market,component,"
        "activity,hours,quantity,unit_price,cost,currency,status"
    )
    assert line == [
        "2026-03-01", "digits", "alpha", '{"cost_center":"4711","team":"nlp"}', "aws",
        "111122223333", "us-west-2", "us-west-2a", "i-0123", "p3.2xlarge", "spot", "compute",
        "useful", "0.005556", "0.002778", "4.320000", "0.012000", "USD", "final",
    ]  # fmt: skip


def test_what_nobody_pays_and_what_is_not_known_is_left_empty() -> None:
    bare = replace(
        LINE, job=None, project=None, labels={}, provider="gcp", pool=None,
        provider_instance_id=None, hours=Fraction(0), quantity=Fraction(0), amount_microusd=-5,
    )  # fmt: skip
    [_, line] = rows(bare)
    told = dict(zip(COLUMNS, line, strict=True))
    empty = {name for name, cell in told.items() if cell == ""}
    assert empty == {
        "job", "project", "account", "region", "zone", "instance_id", "type", "market",
        "unit_price",
    }  # fmt: skip
    assert (told["labels"], told["cost"]) == ("{}", "-0.000005")


@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", "\t=", "\r=", "\n=", " =", "\uff1d", "\uff0b"]
)
def test_no_cell_begins_like_a_formula(start: str) -> None:
    evil = f"{start}cmd|' /C calc'!A0"
    shown = evil.replace("\t", " ").replace("\r", " ").replace("\n", " ")
    [_, line] = rows(replace(LINE, job=evil, provider_instance_id=evil, labels={"a": f"x;{evil}"}))
    told = dict(zip(COLUMNS, line, strict=True))
    assert told["job"] == told["instance_id"] == f"'{shown}"
    # In some languages a semicolon begins a cell; JSON has another way to write it.
    assert ";" not in told["labels"]
    assert json.loads(told["labels"]) == {"a": f"x;{evil}"}


def test_the_account_is_what_the_settings_tell_of_it() -> None:
    role = "arn:aws:iam::111122223333:role/lowtide-data"
    found = accounts_of(Settings(aws_data_role=role, gcp_project="acme-ml"))
    assert found == {"local": "local", "aws": "111122223333", "gcp": "acme-ml"}
    assert accounts_of(Settings())["aws"] == ""
