"""Following a job to its end: its events as they come, and one line that says where it is.

Lives here: `lowtide watch`, and the following that `submit` ends with. Not here: what the lines say
(`job_view`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import typer

from app.cli.client import job_view, wording
from app.cli.client.api_client import ApiClient
from app.cli.client.failures import INTERRUPTED, JOB_FAILED, UNREACHABLE, CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import JobName, job_path
from app.cli.client.terminal import Terminal, printable
from app.cli.jobs.timeline_text import Timeline, timeline_lines
from app.domain.units.instants import time_of_day
from app.domain.wording.event_words import without_doubles

_POLL_SECONDS: Final = 1.0
_SILENCE_SECONDS_MAX: Final = 300.0
_EVENTS_KEPT: Final = 8
_PERCENT_STEP: Final = 10
_POINTS_MAX: Final = 100_000
_MARKS: Final = {
    "interruption_noticed": "⚡", "replacement_requested": "↺", "training_resumed": "↺",
    "checkpoint_committed": "·", "attempt_ended_retryable": "↺", "attempt_succeeded": "✓",
}  # fmt: skip
_WATCHED: Final = frozenset(
    {"state", "where", "next look", "metrics", "deadline", "checkpoint", "tried"}
)
"""What the screen says of a job below its line of progress."""
_UNTOLD: Final = frozenset({"launch_submitted", "member_prepared", "stale_result"})


@api_command(
    "lowtide watch bert-ft",
)
def watch(invocation: Invocation, job: JobName) -> None:
    """Watch one job live: progress and machines as a text chart.

    Shows state, machines, money and the newest events until the job ends or pauses; in a pipe,
    lines, and the chart at the end.
    """
    terminal = invocation.terminal
    path = job_path(invocation.api, job)
    source = _TimelineSource(invocation.api, path)
    try:
        if terminal.interactive:
            final = _watch_screen(invocation.api, terminal, path, source)
        else:
            final = follow(invocation.api, terminal, path)
            for line in timeline_lines(source.read(final), terminal.width):
                terminal.line(line)
    except KeyboardInterrupt:
        leave_running(terminal, job)
    if terminal.as_json:
        terminal.json(final)
    finish(terminal, final)


def follow(api: ApiClient, terminal: Terminal, path: str) -> dict[str, Any]:
    """Print events and progress until the job is at rest; returns it as it then stands.

    On a screen the last line is redrawn in place; a pipe gets a line every ten percent.
    """
    status = _StatusLine(terminal)
    told = -_PERCENT_STEP
    for job, events in _looks(api, path):
        for event in _worth_telling(events):
            status.above(event_line(event))
        now = datetime.now(UTC)
        percent = job["progress"]["percent"]
        if terminal.interactive:
            status.show(job_view.progress_line(job, now))
        elif percent is not None and percent >= told + _PERCENT_STEP:
            told = int(percent // _PERCENT_STEP) * _PERCENT_STEP
            terminal.line(job_view.progress_line(job, now))
    status.clear()
    return job


def finish(terminal: Terminal, job: dict[str, Any]) -> None:
    """The last lines, and exit code 1 unless the job succeeded."""
    name, state = job["name"], job["state"]
    spent = wording.money(job["money"]["spent_microusd"])
    why = f": {printable(job['why'])}" if job["why"] else ""
    terminal.line(f"{name} {terminal.state(state)}{why} · {spent} · lowtide cost {name}")
    if state == "succeeded":
        if job["progress"]["last_checkpoint_at"] is not None:
            terminal.line(f"What it trained: lowtide download {name}")
        else:
            terminal.line(f"Its output: lowtide logs {name}")
        return
    if state == "paused":
        for line in job_view.next_commands(job):
            terminal.line(line)
    elif state == "failed":
        terminal.line(f"Its output: lowtide logs {name} -n 50")
    raise typer.Exit(JOB_FAILED)


def leave_running(terminal: Terminal, name: str) -> None:
    """What Ctrl-C says while following; ends the command."""
    terminal.note(
        f"\n{name} continues in the background. Watch it again: lowtide watch {name} · "
        f"end it: lowtide cancel {name}"
    )
    raise typer.Exit(INTERRUPTED)


def event_line(event: dict[str, Any]) -> str:
    """ "12:00:05 ⚡ m2: The cloud will interrupt this machine in 2m."."""
    at = wording.instant(event["at"])
    told_at = wording.NOTHING if at is None else time_of_day(at)
    mark = _MARKS.get(event["kind"], " ")
    whose = f"{event['machine']}: " if event.get("machine") else ""
    return f"{told_at} {mark} {whose}{printable(event['message'])}"


def _looks(api: ApiClient, path: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The job with its new events, each second until it is at rest.

    An api that is away for less than five minutes is waited for: the job goes on meanwhile.
    """
    after, silent_since, heard = 0, None, False
    while True:
        try:
            job = api.get(path)
            events = api.get(f"{path}/events", {"after": after, "limit": 1_000})["items"]
        except CommandFailed as failure:
            silent_since = silent_since or time.monotonic()
            silent = time.monotonic() - silent_since
            if failure.exit_code != UNREACHABLE or not heard or silent > _SILENCE_SECONDS_MAX:
                raise
            time.sleep(_POLL_SECONDS)
            continue
        silent_since, heard = None, True
        after = events[-1]["seq"] if events else after
        yield job, events
        if job["state"] in job_view.AT_REST:
            return
        time.sleep(_POLL_SECONDS)


def _worth_telling(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what is of no use, and once what a job, its attempt and its machines all report."""
    return without_doubles(event for event in events if event["kind"] not in _UNTOLD)


class _TimelineSource:
    """What the chart is drawn from; points of metrics are asked for once."""

    def __init__(self, api: ApiClient, path: str) -> None:
        self._api = api
        self._path = path
        self._points: list[dict[str, Any]] = []

    def read(self, job: dict[str, Any]) -> Timeline:
        """The chart's facts beside the job itself."""
        after = None
        if self._points:
            after = f"{self._points[-1]['fence']}.{self._points[-1]['step']}"
        new = self._api.pages(
            f"{self._path}/metrics", {"after": after}, limit=_POINTS_MAX, turn="after"
        )
        self._points += new
        return Timeline(
            job=job,
            attempts=self._api.get(f"{self._path}/attempts")["items"],
            instances=self._api.get("/instances", {"job": job["id"], "live": False})["items"],
            points=self._points,
            now=datetime.now(UTC),
        )


def _watch_screen(
    api: ApiClient, terminal: Terminal, path: str, source: _TimelineSource
) -> dict[str, Any]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    recent: list[dict[str, Any]] = []
    console = Console(no_color=not terminal.colour, highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        for job, events in _looks(api, path):
            recent = [*recent, *_worth_telling(events)][-_EVENTS_KEPT:]
            chart = timeline_lines(source.read(job), terminal.width)
            live.update(Text.from_ansi(_screen(terminal, job, recent, chart)), refresh=True)
    return job


def _screen(
    terminal: Terminal, job: dict[str, Any], recent: list[dict[str, Any]], chart: list[str]
) -> str:
    import io

    # The same writers as everywhere, on paper instead of the screen.
    page = io.StringIO()
    paper = terminal.on(page)
    now = datetime.now(UTC)
    paper.line(paper.paint(job["name"], "bold"))
    paper.line(job_view.progress_line(job, now))
    paper.line()
    for line in chart:
        paper.line(line)
    if chart:
        paper.line()
    summary = job_view.summary(job, now, paper)
    paper.fields((name, value) for name, value in summary if name in _WATCHED)
    if job["machines"]:
        paper.line()
        paper.table(job_view.MACHINE_COLUMNS, job["machines"])
    if recent:
        paper.line()
        for event in recent:
            paper.line(event_line(event))
    return page.getvalue()


class _StatusLine:
    """The one line at the bottom of a screen that is redrawn; nothing on a pipe."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._shown = ""

    def show(self, text: str) -> None:
        self._shown = text[: self._terminal.width - 1]
        self._terminal.raw(f"\r\x1b[K{self._shown}")

    def above(self, text: str) -> None:
        shown = self._shown
        self.clear()
        self._terminal.line(text)
        if shown:
            self.show(shown)

    def clear(self) -> None:
        if self._shown:
            self._terminal.raw("\r\x1b[K")
        self._shown = ""
