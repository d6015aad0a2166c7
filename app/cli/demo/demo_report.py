"""The demo's static report: one HTML file without any other.

Not here: what it says (`demo_story`, `demo_checks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from app.cli.demo.demo_checks import DemoCheck
from app.cli.demo.demo_story import tenths_of_a_cent
from app.domain.units.money import format_usd

_COLOURS: Final = {
    "useful": "#1f7a5c", "boot": "#8a8f98", "setup": "#a9adb5", "idle": "#c9ccd2",
    "gang_wait": "#b7a5d6", "restore": "#5b8def", "checkpoint": "#2d6fb4", "drain": "#e0a030",
    "rework": "#c8553d", "minimum_charge": "#9aa0a6", "storage": "#777", "egress": "#555",
}  # fmt: skip
_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; }
table { border-collapse: collapse; } td { padding: .15rem .8rem .15rem 0; }
.ok { color: #1f7a5c; } .no { color: #c8553d; } svg { width: 100%; height: 2.2rem; }
"""


def write_report(
    path: Path, name: str, lines: Sequence[str], found: Sequence[DemoCheck], cost: Mapping[str, Any]
) -> None:
    """Write the report; the folder must exist. Raises OSError when it cannot be written."""
    rows = "".join(
        f'<tr><td class="{"ok" if check.holds else "no"}">{"✓" if check.holds else "✗"}</td>'
        f"<td>{escape(check.what)}</td></tr>"
        for check in found
    )
    path.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f"<title>Lowtide demo: {escape(name)}</title><style>{_STYLE}</style>"
        f"<h1>Lowtide demo: {escape(name)}</h1>"
        f"<h2>What had to happen</h2><table>{rows}</table>"
        f"<h2>Where each dollar went</h2>{_money_bar(cost)}"
        f"<h2>The run</h2><pre>{escape(chr(10).join(lines))}</pre></html>\n",
        encoding="utf-8",
    )


def _money_bar(cost: Mapping[str, Any]) -> str:
    """One bar whose parts are the activities, in proportion to their cost."""
    rounded = tenths_of_a_cent(cost["statement"]["by_activity"])
    activities = {name: amount for name, amount in rounded.items() if amount > 0}
    total = sum(activities.values()) or 1
    parts, at = [], 0.0
    for name, amount in sorted(activities.items(), key=lambda item: -item[1]):
        width = 1000 * amount / total
        label = f"{name.replace('_', ' ')} {format_usd(amount, 3)}"
        colour = _COLOURS.get(name, "#999")
        parts.append(
            f'<rect x="{at:.2f}" width="{width:.2f}" height="30" fill="{colour}">'
            f"<title>{escape(label)}</title></rect>"
        )
        at += width
    legend = " · ".join(
        f"{escape(name.replace('_', ' '))} {format_usd(amount, 3)}"
        for name, amount in sorted(activities.items(), key=lambda item: -item[1])
    )
    return (
        '<svg viewBox="0 0 1000 30" preserveAspectRatio="none" role="img" '
        f'aria-label="cost by activity">{"".join(parts)}</svg><p>{legend}</p>'
    )
