"""Past prices as text: a small chart over time for each pool, with least, median and most.

Not here: asking for them (`offers`), or summing them up (`app.domain.market.price_history`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from app.cli.client import wording
from app.cli.client.terminal import Terminal
from app.domain.market.offer import Market
from app.domain.market.price_history import levels
from app.domain.units.instants import day_and_minute, day_of

COLUMNS: Final = 60
ROWS: Final = 6
NO_POOL_MATCHES: Final = "No pool matches; `lowtide offers` lists them all."
_LINE, _SPACE = "─", " "


def show_histories(terminal: Terminal, found: list[dict[str, Any]], spot: bool | None) -> None:
    """Each pool's past; `spot`: only one market."""
    if spot is not None:
        market = Market.SPOT if spot else Market.ON_DEMAND
        found = [row for row in found if row["market"] == market]
    if terminal.to_script(found, (row["pool"] for row in found)):
        return
    if not found:
        terminal.line(NO_POOL_MATCHES)
    for number, row in enumerate(found):
        for line in ([""] if number else []) + history_lines(row):
            terminal.line(line)


def history_lines(row: dict[str, Any]) -> list[str]:
    """One pool's past: its name, the chart, the figures."""
    from_at, to_at = wording.instant(row["from_at"]), wording.instant(row["to_at"])
    told = row["summary"]
    title = f"{wording.pool(row['pool'])}   now {wording.hourly(row['price_microusd_per_hour'])}"
    steps = [(_instant(one["at"]), int(one["microusd_per_hour"])) for one in row["steps"]]
    if told is None or from_at is None or to_at is None or not steps:
        return [title, "  No price is recorded in this time yet."]
    # A price that is known for an hour would be no character wide in a month.
    from_at = max(from_at, steps[0][0])
    least, median, most = (wording.hourly(told[name]) for name in ("least", "median", "most"))
    lines = [title, *chart(levels(steps, from_at, to_at, COLUMNS), least, most)]
    margin = _SPACE * max(len(least), len(most))
    lines.append(f"  {margin}  {_ends(from_at, to_at)}")
    if told["least"] == told["most"]:
        lines.append(f"  constant: {least}")
    else:
        lines.append(f"  least {least}   median {median}   most {most}")
    rates = [one["rate"] for one in row["preemptions"]]
    if rates:
        told_rate = wording.percent(rates[-1])
        lines.append(f"  interrupted by the cloud: {told_rate} of its spot machines at last")
    return lines


def _ends(from_at: datetime, to_at: datetime) -> str:
    """The first and the last instant below the chart; with the time where it is of one day."""
    written = day_of if to_at - from_at >= timedelta(days=1) else day_and_minute
    last = written(to_at)
    return written(from_at).ljust(COLUMNS - len(last)) + last


def chart(prices: list[int | None], least: str, most: str) -> list[str]:
    """One character for each part of the time; `least` and `most` name the lowest and top row."""
    known = [price for price in prices if price is not None]
    if not known:
        return []
    low, high = min(known), max(known)
    rows = ROWS if high > low else 1
    width = max(len(least), len(most))
    lines = []
    for row in range(rows - 1, -1, -1):
        name = most if row == rows - 1 else least if row == 0 else ""
        drawn = "".join(_LINE if _row(price, low, high) == row else _SPACE for price in prices)
        lines.append(f"  {name:>{width}} │{drawn.rstrip()}")
    return lines


def _row(price: int | None, low: int, high: int) -> int | None:
    if price is None:
        return None
    return 0 if high == low else round((price - low) * (ROWS - 1) / (high - low))


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
