"""`lowtide offers`: what can be rented now, at which price, and what it cost before.

Not here: which of them a job would take (`submission_plan`), or how a past is drawn
(`price_chart`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from app.cli.client import wording
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.terminal import Column
from app.cli.fleet.price_chart import NO_POOL_MATCHES, show_histories
from app.domain.market.gpu_choice import gpu_words
from app.domain.units.durations import format_duration
from app.domain.units.instants import clock_time


@api_command(
    "lowtide offers",
    "lowtide offers --gpu V100 --spot",
    "lowtide offers --history --gpu V100",
    "lowtide offers --history local/us-west-2/us-west-2a/p3.2xlarge/spot --days 7",
)
def offers(
    invocation: Invocation,
    gpu: Annotated[str | None, typer.Option(metavar="GPU", help="Only this GPU, as A100.")] = None,
    spot: Annotated[
        bool | None, typer.Option("--spot/--on-demand", help="Only one market.")
    ] = None,
    pool: Annotated[
        str | None, typer.Argument(metavar="POOL", help="Only this pool, as -q lists it.")
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Show past prices.")] = False,
    days: Annotated[
        int, typer.Option(min=1, max=90, metavar="N", help="How far back --history goes.")
    ] = 30,
) -> None:
    """List pools with their price now, cheapest first.

    `--history` shows what they cost before. SCORE is EC2's placement score, 1 to 10, and PREEMPTED
    the share of machines that Google reports as preempted: both are for information only; `--json`
    has their age.
    """
    if history:
        asked = {"pool": pool, "gpu": gpu, "days": days}
        found = invocation.api.get("/offers/history", asked)["items"]
        show_histories(invocation.terminal, found, spot)
        return
    market = None if spot is None else "spot" if spot else "on_demand"
    found = [
        row
        for row in invocation.api.get("/offers", {"gpu": gpu})["items"]
        if market in (None, row["market"]) and pool in (None, row["pool"])
    ]
    terminal = invocation.terminal
    if (gpu, market, pool) != (None, None, None):
        empty = NO_POOL_MATCHES
    else:
        empty = "No prices yet: the worker reads them within a few seconds of its start."
    terminal.listing(_columns(datetime.now(UTC)), found, result="pool", empty=empty)


def _columns(now: datetime) -> tuple[Column, ...]:
    return (
        Column("POOL", lambda row: wording.pool(row["pool"])),
        Column("GPU", _gpu),
        Column("$/H", lambda row: wording.hourly(row["price_microusd_per_hour"]), True),
        Column("VS ON-DEMAND", _against, True),
        Column("FREE", _free, True),
        Column("SCORE", lambda row: _told(row["placement_score"]), True),
        Column("PREEMPTED", _preempted, True),
        Column("QUOTED", lambda row: wording.ago(row["quoted_at"], now)),
        Column("NOTE", lambda row: _note(row, now)),
    )


def _gpu(row: dict[str, Any]) -> str:
    hardware = row["hardware"]
    return gpu_words(hardware["gpu_name"], hardware["gpu_count"], hardware["gpu_memory_gb"])


def _against(row: dict[str, Any]) -> str:
    return wording.against_on_demand(
        row["price_microusd_per_hour"], row["on_demand_microusd_per_hour"]
    )


def _free(row: dict[str, Any]) -> str:
    return wording.NOTHING if row["available"] is None else str(row["available"])


def _told(value: object) -> str:
    return wording.NOTHING if value is None else str(value)


def _preempted(row: dict[str, Any]) -> str:
    return wording.percent(row["preemption_rate"])


def _note(row: dict[str, Any], now: datetime) -> str:
    notes = [_rests(row, now)]
    # An api of the release before knows no contract prices.
    if row.get("price_terms") is not None:
        listed = wording.hourly(row["list_microusd_per_hour"])
        notes.append(f"listed at {listed}: {row['price_terms']}")
    return "; ".join(filter(None, notes))


def _rests(row: dict[str, Any], now: datetime) -> str:
    if row["is_stale"]:
        return f"its price is {format_duration(row['quote_age_seconds'])} old: not acted on"
    cool_until_at = wording.instant(row["cool_until_at"])
    if cool_until_at is None or cool_until_at <= now:
        return ""
    reason = f": {row['cool_reason']}" if row["cool_reason"] else ""
    return f"left alone until {clock_time(cool_until_at)}{reason}"
