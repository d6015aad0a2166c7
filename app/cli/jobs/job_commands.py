"""`lowtide cancel`, `pause` and `resume`: one job, several by name, or all that a filter finds.

Not here: what people ask of jobs without changing them (`list_commands`, `follow`, `history`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Final, get_type_hints

import typer

from app.cli.client import wording
from app.cli.client.failures import BAD_INPUT, UNREACHABLE, CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import job_named, job_path
from app.cli.client.terminal import Terminal
from app.domain.lifecycle.job_command import COMMANDED_STATES, JobCommand
from app.domain.units.errors import InvalidValue
from app.domain.units.money import parse_usd

_JOBS_OF_REQUEST: Final = 500
_PARTS_MAX: Final = 5_000
_COUNTED_MAX: Final = 1_000
_NAMED_MAX: Final = 5
_BY_NAME: Final = inspect.Parameter.KEYWORD_ONLY
_EXIT_CODES: Final = {"refused": BAD_INPUT, "not_found": BAD_INPUT, "busy": UNREACHABLE}
_STATUSES: Final = {
    "refused": HTTPStatus.CONFLICT,
    "not_found": HTTPStatus.NOT_FOUND,
    "busy": HTTPStatus.SERVICE_UNAVAILABLE,
}
_DONE: Final = {
    JobCommand.CANCEL: "Cancelled",
    JobCommand.PAUSE: "Paused",
    JobCommand.RESUME: "Resumed",
}

Jobs = Annotated[list[str] | None, typer.Argument(metavar="JOB", help="Names or ids of jobs.")]
State = Annotated[
    str | None,
    typer.Option("--state", "-s", metavar="STATES", help="Jobs in these states, with commas."),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="TEXT", help="Jobs with this in their name.")
]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="KEY=VALUE", help="Jobs with this label; repeatable."),
]
Since = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Submitted since: 36h, or 2026-03-01T00:00Z.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True)
class _Meant:
    """Which jobs a command line means: those named, or those of a filter (empty with --all).

    yes: whether nobody is asked first.
    """

    jobs: list[str]
    filters: dict[str, Any]
    yes: bool

    @classmethod
    def of(
        cls,
        job: list[str] | None,
        everything: bool,
        yes: bool,
        state: str | None,
        name: str | None,
        label: list[str] | None,
        since: str | None,
    ) -> _Meant:
        """Raises CommandFailed for none, and for names together with filters."""
        filters = _filter(state, name, label, since)
        # The option of the filter `labels` is repeatable, so its name is singular.
        wide = [f"--{option.removesuffix('s')}" for option in filters] + ["--all"] * everything
        if job and wide:
            raise CommandFailed(
                f"{', '.join(job[:_NAMED_MAX])} and {' and '.join(wide)} do not go together: "
                "name jobs, or let options select them"
            )
        if not (job or wide):
            raise CommandFailed("name jobs, or give --state, --name, --label, --since or --all")
        return cls(job or [], filters, yes)


def _options(all_help: str) -> dict[str, tuple[Any, Any]]:
    """The options that tell which jobs are meant: (annotation, default) by the names of `of`."""
    every = Annotated[bool, typer.Option("--all", help=all_help)]
    asked: dict[str, tuple[Any, Any]] = {
        name: (annotation, None)
        for name, annotation in (
            ("job", Jobs), ("state", State), ("name", Name), ("label", Label), ("since", Since),
        )
    }  # fmt: skip
    return {**asked, "everything": (every, False), "yes": (Yes, False)}


def _of_jobs(all_help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options that mean jobs, in place of its second parameter `meant`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(invocation: Invocation, **arguments: Any) -> None:
            asked = {name: arguments.pop(name) for name in options}
            function(invocation, _Meant.of(**asked), **arguments)

        options = _options(all_help)
        hints = get_type_hints(function, include_extras=True)
        first, _, *own = inspect.signature(function).parameters.values()
        parameters = [first.replace(annotation=Invocation)]
        for name, (annotation, default) in options.items():
            parameters.append(
                inspect.Parameter(name, _BY_NAME, default=default, annotation=annotation)
            )
        parameters += [one.replace(annotation=hints[one.name], kind=_BY_NAME) for one in own]
        vars(command)["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return decorate


@api_command(
    "lowtide cancel bert-ft",
    "lowtide cancel one two --now",
    "lowtide cancel --state queued --label team=nlp",
    "lowtide cancel --all --yes",
)
@_of_jobs("Every job of the project that has not ended.")
def cancel(
    invocation: Invocation,
    meant: _Meant,
    now: Annotated[bool, typer.Option("--now", help="Kill at once, without saving.")] = False,
) -> None:
    """Cancel jobs for good, after a last save where one can be.

    By name, or by filters, which find jobs that have not ended; all of them with --all. Filters
    ask first. --json prints a list, with one entry for each job.
    """
    _carry_out(invocation, JobCommand.CANCEL, meant, {"now": now})


@api_command("lowtide pause bert-ft", "lowtide pause --label sweep=lr --yes")
@_of_jobs("Every job of the project that waits or runs.")
def pause(invocation: Invocation, meant: _Meant) -> None:
    """Save, release the machines, and wait for `resume`.

    By name, or by filters, which find jobs that wait or run; all of them with --all. Filters ask
    first.
    """
    _carry_out(invocation, JobCommand.PAUSE, meant, {})


@api_command(
    "lowtide resume bert-ft",
    "lowtide resume bert-ft --budget +50",
    "lowtide resume --all",
)
@_of_jobs("Every paused job of the project.")
def resume(
    invocation: Invocation,
    meant: _Meant,
    budget: Annotated[
        str | None,
        typer.Option(metavar="+USD", help="Raise the budget of one job by this much, as +50."),
    ] = None,
) -> None:
    """Put paused jobs back into the queue.

    By name, or by filters, which find paused jobs; all of them with --all. Filters ask first.
    """
    body: dict[str, Any] = {}
    if budget is not None:
        if len(meant.jobs) != 1:
            raise CommandFailed("--budget raises the budget of one job: name that job alone")
        body = {"add_budget_usd": _added(budget)}
    _carry_out(invocation, JobCommand.RESUME, meant, body)


def _added(written: str) -> str:
    """The dollars of "+50", as the api takes them. Raises CommandFailed."""
    amount = written.strip().removeprefix("+")
    try:
        parse_usd(amount, at_least_microusd=10_000)
    except InvalidValue as error:
        raise CommandFailed(
            f"--budget {written[:40]!r} {error.message}; write the dollars to add, as in +50"
        ) from error
    return amount


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
        found["labels"] = {}
        for one in label:
            key, separator, value = one.partition("=")
            if not key or not separator:
                raise CommandFailed(
                    f"--label: {one[:40]!r} needs a key and a value; write key=value, as in "
                    "team=vision"
                )
            if found["labels"].setdefault(key, value) != value:
                raise CommandFailed(
                    f"--label {key} is given with two values; a job has one: leave one out"
                )
    if since is not None:
        found["since"] = wording.since(since, datetime.now(UTC)).isoformat()
    return found


def _carry_out(
    invocation: Invocation, command: JobCommand, meant: _Meant, body: dict[str, Any]
) -> None:
    """Give the command to what is meant, and say what came of it; ends with the worst exit code."""
    if len(meant.jobs) == 1 and body.get("add_budget_usd"):
        path = job_path(invocation.api, meant.jobs[0])
        _tell(invocation.terminal, invocation.api.post(f"{path}/{command}", body))
        return

    def post(part: dict[str, Any]) -> dict[str, Any]:
        whole = {"action": command.value, **body, **part}
        answer: dict[str, Any] = invocation.api.post("/jobs/batch", whole)
        return answer

    if meant.jobs:
        # The end of an id, as tables show it, is known here alone.
        named = [job_named(invocation.api, one) for one in meant.jobs]
        items = _by_name(named, post)
        # A cancel's JSON has one shape however many jobs are meant.
        as_many = command is JobCommand.CANCEL and invocation.terminal.as_json
        if len(items) == 1 and not as_many:
            _report_one(invocation, items[0])
            return
    elif meant.yes or _agreed(invocation, command, meant.filters):
        items = _by_filter(meant.filters, post)
    else:
        items = []
    _report(invocation.terminal, command, items)


def _report_one(invocation: Invocation, item: dict[str, Any]) -> None:
    """What came of a command to one job. Raises CommandFailed where it was refused."""
    if code := _EXIT_CODES.get(item["outcome"]):
        raise CommandFailed(item["detail"], code, status=_STATUSES[item["outcome"]])
    job = invocation.api.get(job_path(invocation.api, item["id"]))
    _tell(invocation.terminal, job, _already(item))


def _tell(terminal: Terminal, job: dict[str, Any], already: str = "") -> None:
    """The state of one job that was commanded, and why it is in it."""
    if terminal.as_json:
        terminal.json(job)
    elif terminal.quiet:
        terminal.result(job["name"])
    else:
        why = f" ({job['why']})" if job["why"] else ""
        terminal.line(f"{job['name']}: {terminal.state(job['state'])}{already}{why}")


def _already(item: dict[str, Any]) -> str:
    """Said behind the state of a job that an earlier command has brought there."""
    return " already" if item["outcome"] == "unchanged" else ""


def _agreed(invocation: Invocation, command: JobCommand, filters: dict[str, Any]) -> bool:
    """Name the jobs that a filter finds, and ask; False where it finds none.

    Raises CommandFailed where nobody can answer, and Abort for a no.
    """
    meant = ",".join(sorted(COMMANDED_STATES[command]))
    query = {**filters, "state": filters.get("state", meant)}
    labels = query.pop("labels", {})
    query["label"] = [f"{key}={value}" for key, value in labels.items()] or None
    names = [job["name"] for job in invocation.api.pages("/jobs", query, limit=_COUNTED_MAX)]
    if not names:
        return False
    told = f"{command} {jobs_named(names, _COUNTED_MAX)}"
    if not invocation.terminal.interactive:
        raise CommandFailed(f"this would {told}: add --yes to run without a prompt", BAD_INPUT)
    return typer.confirm(f"{told[:1].upper()}{told[1:]}?", abort=True)


def jobs_named(names: Sequence[str], counted_max: int) -> str:
    """ "12 jobs (a, b, c, d, e and 7 more)"; of `counted_max` there may be more."""
    count, shown = wording.plural(len(names), "job"), ", ".join(names[:_NAMED_MAX])
    if len(names) >= counted_max:
        return f"{count} or more ({shown} and others)"
    more = len(names) - _NAMED_MAX
    return f"{count} ({shown} and {more:,} more)" if more > 0 else f"{count} ({shown})"


Post = Callable[[dict[str, Any]], dict[str, Any]]


def _by_name(named: list[str], post: Post) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for start in range(0, len(named), _JOBS_OF_REQUEST):
        items += post({"ids": named[start : start + _JOBS_OF_REQUEST]})["items"]
    return items


def _by_filter(filters: dict[str, Any], post: Post) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_PARTS_MAX):
        answer = post({"filter": filters, "cursor": cursor})
        items += answer["items"]
        cursor = answer["next"]
        if cursor is None:
            break
    return items


def _report(terminal: Terminal, command: JobCommand, items: list[dict[str, Any]]) -> None:
    """One line for each job, and how many; ends with the worst exit code."""
    worst = 0
    for item in items:
        shown, code = item["name"] or item["named"], _EXIT_CODES.get(item["outcome"], 0)
        worst = max(worst, code)
        if code:
            terminal.complain([f"{shown}: {item['detail']}"])
        elif terminal.quiet:
            terminal.result(shown)
        else:
            terminal.line(f"{shown}: {terminal.state(item['state'])}{_already(item)}")
    if terminal.as_json:
        terminal.json(items)
    elif not items:
        terminal.line("No job matches.")
    else:
        done = sum(1 for item in items if item["outcome"] == "done")
        terminal.note(f"{_DONE[command]} {done} of {wording.plural(len(items), 'job')}.")
    if worst:
        raise typer.Exit(worst)
