"""`lowtide cost`: what a job or a period cost, where it went, and whether the books close.

Not here: how any of it is computed.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup, nearest_command
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import job_path
from app.cli.client.terminal import Column, Terminal
from app.domain.units.durations import format_duration
from app.domain.units.percent import saved_size
from app.domain.wording.cost_words import component_words
from app.domain.wording.machine_words import billing_speed_words, ended_words

_HELP: Final = """What a job or a period cost; verify the books.

Without a command it is `report`, which takes a JOB, or --by, --since and --csv
for a period.

\b
Examples:
  lowtide cost bert-ft
  lowtide cost --by label:team --since 7d
"""
cost = CommandList(cls=DefaultCommandGroup, help=_HELP)

BOOKS_OPEN: Final = 1
_LABELS_OF_JOBS: Final = 500
_LABELS_NAMED: Final = 12
_FIRM: Final = ("final", "reconciled")
_GROUPS: Final = ("job", "project", "label:NAME", "pool", "gpu")


@cost.command("report")
@api_command(
    "lowtide cost",
    "lowtide cost bert-ft",
    "lowtide cost --by label:team --since 7d",
    "lowtide cost --since 30d --csv > costs.csv",
)
def report(
    invocation: Invocation,
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="A job's name or id; none: a period.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="GROUP", help=f"Group by {', '.join(_GROUPS)}.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="From this UTC day on: 7d, 2026-03-01; default 30 days."),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV: every line, whatever --by says.")
    ] = False,
) -> None:
    """Show where the money went (`lowtide cost` alone).

    Of one job, or of whole UTC days.
    """
    if by is not None:
        _check_group(by)
    if job is None:
        _print_period(invocation, by or "job", since, csv)
        return
    if by is not None or since is not None or csv:
        raise CommandFailed(
            "--by, --since and --csv show a period, not one job: leave them out to see what "
            f"{job[:40]} cost, or leave {job[:40]} out to see the period"
        )
    try:
        found = invocation.api.get(f"{job_path(invocation.api, job)}/cost")
    except CommandFailed as failed:
        commands = [one.name for one in cost.registered_commands if one.name]
        near = nearest_command(job, "lowtide cost", commands)
        if failed.status != HTTPStatus.NOT_FOUND or not near:
            raise
        raise CommandFailed(f"{failed.message} {near}", status=failed.status) from failed
    terminal = invocation.terminal
    total = wording.exact_money(found["statement"]["total_microusd"])
    if not terminal.to_script(found, [total]):
        print_job_cost(terminal, found)


def _check_group(by: str) -> None:
    """Raises CommandFailed for a group that no report has, with the one that may be meant."""
    if by in ("label", "label:"):
        raise CommandFailed(f"--by {by}: name the label, as in --by label:team")
    if by not in _GROUPS and not by.startswith("label:"):
        raise CommandFailed(
            f"--by {by[:40]}: write one of {', '.join(_GROUPS)}; by people, give their jobs a "
            "label and group by it, as in --by label:user"
        )


@cost.command("verify")
@api_command(
    "lowtide cost verify",
)
def verify(
    invocation: Invocation,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only this job.")] = None,
) -> None:
    """Recompute every bill and compare.

    From the raw facts and prices; also compares with the local cloud's own bill. Exit code 1 if
    anything differs.
    """
    job_id = None if job is None else invocation.api.get(job_path(invocation.api, job))["id"]
    found = invocation.api.get("/costs/verify", {"job": job_id})
    terminal = invocation.terminal
    if terminal.as_json:
        terminal.json(found)
    else:
        _print_verification(terminal, found)
    if not found["closed"]:
        raise typer.Exit(BOOKS_OPEN)


def print_job_cost(terminal: Terminal, found: dict[str, Any]) -> None:
    """A job's cost for people: machines, activities, total, savings, budget."""
    statement = found["statement"]
    total = statement["total_microusd"]
    if found["instances"]:
        terminal.table(_MACHINE_COLUMNS, found["instances"])
        terminal.line()
    spent = {name: amount for name, amount in statement["by_activity"].items() if amount}
    went = "  ".join(
        f"{name.replace('_', ' ')} {wording.part(amount, total)}"
        for name, amount in sorted(spent.items(), key=lambda item: -item[1])
        if total
    )
    names = {one["instance_id"]: one["label"] for one in found["instances"]}
    terminal.fields(
        [
            ("where it went", went),
            ("total", f"{wording.money(total)} ({found['status']})"),
            ("waived", _if_any(statement["waived_microusd"])),
            ("on-demand", _comparison(statement, " so far" if _may_grow(found) else "")),
            ("budget", _budget(found["budget"])),
            ("not metered", ", ".join(map(component_words, found["not_metered"]))),
            (
                "without a price",
                ", ".join(names.get(one, "a machine") for one in found["unbilled"]),
            ),
            ("books", found["books"]["sentence"]),
        ]
    )
    _tell_faster_bill(terminal, found)


def _tell_faster_bill(terminal: Terminal, found: dict[str, Any]) -> None:
    """Who reads the times of machines beside their costs would find these wrong."""
    # A server of the release before does not tell it.
    if faster := billing_speed_words(found.get("billing_speed", 1)):
        terminal.line(f"\n{faster}")


def _print_period(invocation: Invocation, by: str, since: str | None, csv: bool) -> None:
    from app.storage.money.cost_figures import NO_LABEL, UNALLOCATED

    group, _, label = by.partition(":")
    query = {
        "by": group,
        "label": label or None,
        "from": None if since is None else _first_day(since).isoformat(),
    }
    terminal = invocation.terminal
    if csv:
        answer = invocation.api.get_raw("/costs", {**query, "format": "csv"})
        terminal.raw(answer.text)
        return
    found = invocation.api.get("/costs", query)
    total = found["total_microusd"]
    if terminal.to_script(found, [wording.exact_money(total)]):
        return
    terminal.line(f"{found['from_day']} to {found['to_day']}, whole days in UTC")
    # The API has the row of what no job pays even at 0.
    rows = [row for row in found["rows"] if row["amount_microusd"] or row["key"] != UNALLOCATED]
    if not rows:
        terminal.line("Nothing was booked for these days.")
    terminal.table(
        (
            Column(group.upper(), lambda row: row["name"] or row["key"]),
            Column("COST", lambda row: wording.money(row["amount_microusd"]), True),
            Column("SHARE", lambda row: _share(row["amount_microusd"], total), True),
        ),
        rows,
    )
    if label and all(row["key"] in (NO_LABEL, UNALLOCATED) for row in found["rows"]):
        terminal.line(_no_such_label(invocation, label))
    firmness = ", ".join(
        f"{wording.money(amount)} {status}"
        for status, amount in found["by_status"].items()
        if amount
    )
    terminal.line()
    terminal.fields(
        [
            ("total", wording.money(total) + (f" ({firmness})" if firmness else "")),
            ("books", found["books"]["sentence"]),
        ]
    )
    _tell_faster_bill(terminal, found)


def _no_such_label(invocation: Invocation, label: str) -> str:
    """That no job of the period has it, and which labels the newest jobs have."""
    newest = invocation.api.pages("/jobs", {}, limit=_LABELS_OF_JOBS)
    names = sorted({name for job in newest for name in job["labels"]})
    told = f"No job with a cost in these days has a label {label!r}"
    if not names:
        return f"{told}, and no recent job has any; set one in a spec, as in labels: {{team: nlp}}."
    return f"{told}; recent jobs have: {', '.join(names[:_LABELS_NAMED])}."


def _print_verification(terminal: Terminal, found: dict[str, Any]) -> None:
    machines = wording.plural(found["machines"], "machine")
    at = f"at {wording.clock_time(found['verified_at'])} UTC"
    if not found["closed"]:
        terminal.line(f"ledger {terminal.paint('NOT CLOSED', 'red')}, verified {at}")
        terminal.line(f"{wording.exact_money(found['booked_microusd'])} is booked for {machines}.")
    elif not found["machines"]:
        # Nothing was compared, so that nothing is shown to be right.
        terminal.line(f"There was nothing to verify {at}: no machine has run.")
    else:
        verdict = terminal.paint("closed, difference $0.000000", "green")
        terminal.line(f"ledger {verdict}, verified {at}")
        terminal.line(
            f"{wording.exact_money(found['booked_microusd'])} booked for {machines} equals the "
            f"bill recalculated from facts and prices; {_invoiced(found)}{_not_invoiced(found)}."
        )
    if found["revised"]:
        terminal.line(
            f"{wording.plural(found['revised'], 'machine')} not compared: they changed since "
            "they were last booked. Verify again in a minute."
        )
    if found["differences"]:
        terminal.table(_DIFFERENCE_COLUMNS, found["differences"])
    if found["unbilled"]:
        without = ", ".join(map(wording.short_id, found["unbilled"]))
        terminal.line(f"Without a known price, so not billed: {without}")


def _invoiced(found: dict[str, Any]) -> str:
    """How many of the machines were compared with their cloud's own bill."""
    if found["machines"] == 1:
        how = "was" if found["invoiced"] else "was not"
        return f"it {how} compared with the cloud's own bill"
    verb = "was" if found["invoiced"] == 1 else "were"
    return f"{found['invoiced']:,} of them {verb} compared with the cloud's own bill"


def _not_invoiced(found: dict[str, Any]) -> str:
    """Why machines were not compared with their cloud's own bill; "" where all were."""
    reasons = (
        ("open", "still running, or not booked to the end"),
        ("without_invoice", "of a cloud whose own bill Lowtide does not read"),
        ("revised", "changed since last booked"),
    )
    if found["machines"] == 1:
        return "".join(f" ({why})" for key, why in reasons if found.get(key))
    told = [f"{found[key]:,} {why}" for key, why in reasons if found.get(key)]
    return f"; not compared: {', '.join(told)}" if told else ""


def _length(row: dict[str, Any]) -> str:
    from_at, to_at = wording.instant(row["from_at"]), wording.instant(row["to_at"])
    if from_at is None or to_at is None:
        return wording.NOTHING
    return format_duration((to_at - from_at).total_seconds())


def _machine_note(row: dict[str, Any]) -> str:
    notes = [row["status"]]
    if row["waived_microusd"]:
        notes.append(f"{wording.money(row['waived_microusd'])} waived")
    if row["ended_by"] is not None:
        notes.append(f"ended by {ended_words(row['ended_by'])}")
    return ", ".join(notes)


def _may_grow(found: dict[str, Any]) -> bool:
    """Whether the job may cost more: a paused one may go on, though its machines' bills are final.

    A server of the release before does not say whether a job has ended.
    """
    return found["status"] not in _FIRM or found.get("ended_at", "") is None


def _comparison(statement: dict[str, Any], so_far: str) -> str:
    compared, saved = statement["on_demand_comparison_microusd"], statement["net_saved_microusd"]
    if not compared or saved is None:
        return ""
    share = saved_size(saved / compared)
    told = f"{share} saved{so_far}, net" if saved >= 0 else f"this job cost {share} more{so_far}"
    return f"{wording.money(compared)} for the same work, so {told}"


def _budget(figures: dict[str, Any]) -> str:
    cap = figures["cap_microusd"]
    if cap is None:
        return ""
    return f"{wording.money(cap)}, {wording.money(cap - figures['spent_microusd'])} left"


def _if_any(microusd: int) -> str:
    return wording.money(microusd) if microusd else ""


def _share(amount: int, total: int) -> str:
    return wording.percent(amount / total if total else None)


def _first_day(since: str) -> date:
    """The UTC day to begin with: "7d" is today and the six days before."""
    now = datetime.now(UTC)
    at = wording.since(since, now)
    whole_days = at.time() == now.time() and at.date() < now.date()
    return at.date() + timedelta(days=1) if whole_days else at.date()


_MACHINE_COLUMNS: Final = (
    Column("MACHINE", lambda row: row["label"]),
    Column("POOL", lambda row: wording.pool(row["pool"])),
    Column("FROM (UTC)", lambda row: wording.clock_time(row["from_at"])),
    Column("FOR", _length, True),
    Column("COST", lambda row: wording.money(row["booked_microusd"]), True),
    Column("NOTE", _machine_note),
)

_DIFFERENCE_COLUMNS: Final = (
    Column("WHAT", lambda row: row["what"]),
    Column("MACHINE ID", lambda row: wording.short_id(row["instance_id"])),
    Column("BOOKED", lambda row: wording.exact_money(row["booked_microusd"]), True),
    Column("EXPECTED", lambda row: wording.exact_money(row["expected_microusd"]), True),
)
