"""How `lowtide doctor` shows what it found: a line for each finding, what to do, and how many.

Not here: what is looked at (`doctor_command`).
"""

from __future__ import annotations

from dataclasses import asdict

from app.cli.client.terminal import Terminal, printable
from app.domain.deployment.check_result import CheckResult

_GOOD, _WARNS, _BAD = ("✓", "green"), ("!", "yellow"), ("✗", "red")


def show_findings(terminal: Terminal, results: tuple[CheckResult, ...]) -> None:
    """On the terminal, or as JSON; where it is quiet, only what is to be corrected or known."""
    if terminal.as_json:
        terminal.json(
            {
                "ok": all(result.ok for result in results),
                "findings": [asdict(result) for result in results],
            }
        )
        return
    width = max(len(result.name) for result in results)
    for result in results:
        if terminal.quiet and result.ok and not result.warns:
            continue
        mark, style = _BAD if not result.ok else _WARNS if result.warns else _GOOD
        name = printable(result.name).ljust(width)
        terminal.result(f"{terminal.paint(mark, style)} {name}  {printable(result.sentence)}")
        if result.remedy:
            terminal.result(f"  {' ' * width}  → {printable(result.remedy)}")
    wrong = sum(not result.ok for result in results)
    known = sum(result.warns for result in results)
    terminal.line()
    told = f"{wrong} to correct." if wrong else "Everything is in order."
    terminal.line(f"{told} {known} to know." if known else told)
