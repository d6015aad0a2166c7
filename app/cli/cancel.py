"""`lowtide cancel`: one job, several by name, or all that a filter finds.

Not here: the other commands to a job (`jobs`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.cli import wording
from app.cli.failures import BAD_INPUT, UNREACHABLE, CommandFailed
from app.cli.invocation import Invocation, api_command
from app.cli.job_lookup import job_named
from app.cli.jobs import command_to_job

_JOBS_OF_REQUEST: Final = 200
_PARTS_MAX: Final = 5_000
_COUNTED_MAX: Final = 1_000
_EXIT_CODES: Final = {"refused": BAD_INPUT, "not_found": BAD_INPUT, "busy": UNREACHABLE}


@api_command(
    "lowtide cancel bert-ft",
    "lowtide cancel one two --now",
    "lowtide cancel --state queued --label team=nlp",
    "lowtide cancel --all --yes",
)
def cancel(
    invocation: Invocation,
    job: Annotated[
        list[str] | None, typer.Argument(metavar="JOB...", help="Names or ids of jobs.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", "-s", help="Jobs in these states, with commas.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Jobs with this in their name.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", help="key=value; repeatable.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Submitted since: 36h, or 2026-03-01T00:00Z.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every job of the project that has not ended.")
    ] = False,
    now: Annotated[bool, typer.Option("--now", help="Kill at once, without saving.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Cancel jobs for good; what runs saves first.

    By name, or by filters, which find live jobs; all of them together with --all. Filters ask
    first.
    """
    filters = _filter(state, name, label, since)
    if bool(job) == (everything or bool(filters)):
        raise CommandFailed(
            "name jobs, or give --state, --name, --label, --since or --all", BAD_INPUT
        )
    if job and len(job) == 1:
        answer = command_to_job(invocation, job[0], "cancel", {"now": now})
        if invocation.terminal.as_json:
            invocation.terminal.json([answer])
        return
    if job:
        items = _by_name(invocation, job, now)
    else:
        if not yes:
            _ask(invocation, filters)
        items = _by_filter(invocation, filters, now)
    _report(invocation, items)


def _filter(
    state: str | None, name: str | None, label: list[str] | None, since: str | None
) -> dict[str, Any]:
    """The filter of the api; empty when no option was given."""
    found: dict[str, Any] = {}
    if state is not None:
        found["state"] = state
    if name is not None:
        found["name"] = name
    if label:
        pairs = [one.partition("=") for one in label]
        if not all(key and separator for key, separator, _ in pairs):
            raise CommandFailed("--label: write key=value", BAD_INPUT)
        found["labels"] = {key: value for key, _, value in pairs}
    if since is not None:
        found["since"] = wording.since(since, datetime.now(UTC)).isoformat()
    return found


def _ask(invocation: Invocation, filters: dict[str, Any]) -> None:
    if not invocation.terminal.interactive:
        raise CommandFailed(
            "this may cancel many jobs: say --yes where nobody can answer", BAD_INPUT
        )
    query = {**filters, "state": filters.get("state", "live")}
    labels = query.pop("labels", {})
    query["label"] = [f"{key}={value}" for key, value in labels.items()] or None
    count = len(invocation.api.pages("/jobs", query, limit=_COUNTED_MAX))
    more = " or more" if count == _COUNTED_MAX else ""
    typer.confirm(f"Cancel {wording.plural(count, 'job')}{more}?", abort=True)


def _by_name(invocation: Invocation, jobs: list[str], now: bool) -> list[dict[str, Any]]:
    # The end of an id, as tables show it, is known here alone.
    named = [job_named(invocation.api, one) for one in jobs]
    items: list[dict[str, Any]] = []
    for start in range(0, len(named), _JOBS_OF_REQUEST):
        part = named[start : start + _JOBS_OF_REQUEST]
        items += _post(invocation, {"ids": part, "now": now})["items"]
    return items


def _by_filter(invocation: Invocation, filters: dict[str, Any], now: bool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_PARTS_MAX):
        answer = _post(invocation, {"filter": filters, "cursor": cursor, "now": now})
        items += answer["items"]
        cursor = answer["next"]
        if cursor is None:
            break
    return items


def _post(invocation: Invocation, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = invocation.api.post("/jobs/batch", {"action": "cancel", **body})
    return answer


def _report(invocation: Invocation, items: list[dict[str, Any]]) -> None:
    """One line for each job, and how many; ends with the worst exit code."""
    terminal = invocation.terminal
    worst = 0
    for item in items:
        shown, code = item["name"] or item["named"], _EXIT_CODES.get(item["outcome"], 0)
        worst = max(worst, code)
        if code:
            terminal.complain([f"{shown}: {item['detail']}"])
        elif terminal.quiet:
            terminal.result(shown)
        else:
            before = " already" if item["outcome"] == "unchanged" else ""
            terminal.line(f"{shown}: {terminal.state(item['state'])}{before}")
    if terminal.as_json:
        terminal.json(items)
    elif not items:
        terminal.line("No job matches.")
    else:
        done = sum(1 for item in items if item["outcome"] == "done")
        terminal.note(f"Cancelled {done} of {wording.plural(len(items), 'job')}.")
    if worst:
        raise typer.Exit(worst)
