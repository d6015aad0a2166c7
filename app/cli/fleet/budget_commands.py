"""`lowtide budget`: monthly budgets of projects and the deployment, and how their months stand.

Not here: the budget of a job, which is in its spec (`lowtide resume --budget` adds to it).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import path_part
from app.cli.client.terminal import Column
from app.domain.launch_limits.monthly_budget import AtFull

budget = CommandList(
    cls=DefaultCommandGroup,
    help="Monthly budgets of projects: list, show, set, remove. deployment: that of all projects.",
)

_Name = Annotated[str, typer.Argument(metavar="PROJECT", help="The project's name.")]
_AtFull = Annotated[
    str | None,
    typer.Option(
        "--at-100",
        metavar="WHAT",
        help="block_new or drain_and_pause. Default: as it is; block_new of a first budget.",
    ),
]
_AT_FULL: Final = {
    AtFull.BLOCK_NEW: "no machine is requested; those that run go on",
    AtFull.DRAIN_AND_PAUSE: "jobs save and pause",
}


@budget.command("list")
@api_command("lowtide budget", "lowtide budget list --json")
def list_budgets(invocation: Invocation) -> None:
    """List the monthly budgets of projects that the key opens.

    `lowtide budget` alone does the same.
    """
    columns = (
        Column("PROJECT", lambda row: row["project"]),
        Column("SPENT", lambda row: wording.money(row["spent_microusd"]), True),
        Column("OF", lambda row: wording.money(row["monthly_microusd"]), True),
        Column("PERCENT", lambda row: f"{row['percent']} %", True),
        Column("FORECAST", lambda row: wording.money(row["forecast_microusd"]), True),
        Column("AT 100 %", lambda row: row["at_100"]),
    )
    rows = invocation.api.get("/budgets")["items"]
    empty = "No project has a monthly budget."
    invocation.terminal.listing(columns, rows, result="project", empty=empty)


@budget.command("show")
@api_command("lowtide budget show vision")
def show_budget(invocation: Invocation, name: _Name) -> None:
    """Show how the month of a project's budget stands."""
    _show(invocation, name, invocation.api.get(_path(name)))


@budget.command("set")
@api_command(
    "lowtide budget set vision 2500",
    "lowtide budget set vision 2500 --at-100 drain_and_pause",
)
def set_budget(
    invocation: Invocation,
    name: _Name,
    usd: Annotated[str, typer.Argument(metavar="USD", help="Dollars of a calendar month in UTC.")],
    at_100: _AtFull = None,
) -> None:
    """Give a project a monthly budget, or another one.

    Needs a maintainer's key. Once it is spent or reserved, no machine is requested (block_new),
    or jobs save and pause, too (drain_and_pause). Jobs that paused for it go on when the next month
    begins.
    """
    body = {"monthly_usd": usd, "at_100": at_100}
    _show(invocation, name, invocation.api.put(_path(name), body))


@budget.command("remove")
@api_command("lowtide budget remove vision")
def remove_budget(invocation: Invocation, name: _Name) -> None:
    """Remove a project's monthly budget.

    Jobs that paused for it go back into the queue.
    """
    _show(invocation, name, invocation.api.put(_path(name), {"monthly_usd": None}))


@budget.command("deployment")
@api_command(
    "lowtide budget deployment",
    "lowtide budget deployment 20000 --at-100 drain_and_pause",
    "lowtide budget deployment --remove",
)
def deployment_budget(
    invocation: Invocation,
    usd: Annotated[
        str | None, typer.Argument(metavar="USD", help="Dollars of a calendar month in UTC.")
    ] = None,
    at_100: _AtFull = None,
    remove: Annotated[bool, typer.Option("--remove", help="Let there be none.")] = False,
) -> None:
    """Show, set or remove the monthly budget of all projects together.

    Needs an auditor's key, to change it an admin's. A machine counts against this budget and its
    project's.
    """
    if usd is not None and remove:
        raise CommandFailed("name the dollars or --remove, not both")
    path = "/budget"
    if usd is None and not remove:
        found = invocation.api.get(path)
    else:
        found = invocation.api.put(path, {"monthly_usd": usd, "at_100": at_100})
    _show(invocation, "The deployment", found)


def _path(name: str) -> str:
    return f"/projects/{path_part(name, 'project')}/budget"


def _show(invocation: Invocation, name: str, found: dict[str, Any]) -> None:
    terminal, one = invocation.terminal, found["budget"]
    if terminal.to_script(found, [name]):
        return
    if one is None:
        terminal.line(f"{name} has no monthly budget.")
        return
    cap, spent = wording.money(one["monthly_microusd"]), wording.money(one["spent_microusd"])
    terminal.fields(
        [
            ("budget", f"{cap} from {one['month_at'][:10]} to {one['ends_at'][:10]}, UTC"),
            ("spent", f"{spent}, {one['percent']} %"),
            ("reserved", wording.money(one["reserved_microusd"])),
            ("forecast", _forecast(one)),
            ("at 100 %", _AT_FULL[AtFull(one["at_100"])]),
        ]
    )


def _forecast(one: dict[str, Any]) -> str:
    forecast, hourly = map(wording.money, (one["forecast_microusd"], one["microusd_per_hour"]))
    return f"{forecast} with the machines of now, {hourly}/h, to the end of the month"
