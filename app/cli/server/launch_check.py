"""`lowtide doctor --launch`: rent, let the machine do one step, give it back, and say how.

An ordinary job over the ordinary api: no way of its own to any cloud. Whatever happens here, the
job is cancelled and its machines are waited for; should this process die, the job's budget and
deadline end it. Not here: what is rented (`launch_plan`), what its history means (`launch_stages`).
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import typer

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import BAD_INPUT, UNREACHABLE, CommandFailed
from app.cli.client.job_view import AT_REST
from app.cli.client.terminal import Terminal
from app.cli.jobs.logs import visible
from app.cli.server import launch_stages as stages
from app.cli.server.launch_plan import (
    GRACE_SECONDS,
    SAYS,
    LaunchPlan,
    TrialRequest,
    make_launch_plan,
    write_script,
)
from app.cli.server.launch_report import LaunchReport
from app.cli.server.launch_stages import JobHistory, LaunchPhase, StageFailure, StageView
from app.domain.units.durations import format_duration

WENT_WRONG: Final = 1

_POLL_SECONDS: Final = 0.5
_PRICES_SECONDS: Final = 20.0
_SILENCE_SECONDS_MAX: Final = 120.0
_GIVE_BACK_SECONDS: Final = 600.0
_LOG_LINES: Final = 15
_LOG_BYTES: Final = 16_384
_STREAMS_MAX: Final = 8
_EVENTS_MAX: Final = 2_000
_ARCHIVE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How it went; stages in their order."""

    job: str
    stages: tuple[StageView, ...]
    spent_microusd: int
    left: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every stage was seen to end well."""
        return all(view.ok for view in self.stages)


def check_launch(terminal: Terminal, api: ApiClient, wish: TrialRequest, *, yes: bool) -> int:
    """Plan, ask, rent, follow, give back. Returns the exit code; raises CommandFailed."""
    name = f"doctor-{secrets.token_hex(3)}"
    plan = make_launch_plan(wish, name, _offers(api), datetime.now(UTC))
    for sentence in plan.sentences():
        terminal.line(sentence)
    if not yes:
        _ask(terminal)
    trial = _TrialLaunch(terminal, api, plan, wish, name)
    outcome = trial.run()
    if terminal.as_json:
        terminal.json(
            {
                "ok": outcome.ok,
                "job": outcome.job,
                "plan": plan.to_json(),
                "stages": [view.to_json() for view in outcome.stages],
                "spent_microusd": outcome.spent_microusd,
                "left": list(outcome.left),
            }
        )
    return 0 if outcome.ok else WENT_WRONG


def _offers(api: ApiClient) -> list[dict[str, Any]]:
    """What can be rented; a control plane that has just started knows it some seconds later."""
    ends = time.monotonic() + _PRICES_SECONDS
    while True:
        found: list[dict[str, Any]] = api.get("/offers")["items"]
        if found or time.monotonic() > ends:
            return found
        time.sleep(_POLL_SECONDS)


def _ask(terminal: Terminal) -> None:
    if not (terminal.interactive and sys.stdin.isatty()):
        raise CommandFailed("this rents a machine for money: add -y to run without a prompt")
    typer.confirm("Rent it now?", default=False, abort=True)


class _TrialLaunch:
    """One trial launch, from the submission to the last machine's end."""

    def __init__(
        self, terminal: Terminal, api: ApiClient, plan: LaunchPlan, wish: TrialRequest, name: str
    ) -> None:
        self._api = api
        self._plan = plan
        self._wish = wish
        self._name = name
        self._path = f"/jobs/{name}"
        self._report = LaunchReport(terminal, wish.timeout_seconds)
        self._began = time.monotonic()
        self._heard_at = self._began
        self._failed_after = 0.0

    def run(self) -> CheckReport:
        """Submit, follow, and in every case see that nothing is left running."""
        self._submit()
        try:
            failure = self._follow()
            story = self._give_back(failure is not None)
        except BaseException as error:
            self._end_after(error)
            raise
        shown = self._shown(story, failure)
        spent_microusd = int(story.job["money"]["spent_microusd"])
        self._report.end(shown, spent_microusd, self._name)
        return CheckReport(self._name, shown, spent_microusd, tuple(stages.still_there(story)))

    def _submit(self) -> None:
        from app.cli.jobs.workdir_archive import packed

        with tempfile.TemporaryDirectory(prefix="lowtide-doctor-") as folder:
            write_script(Path(folder))
            with packed(Path(folder), _ARCHIVE_BYTES_MAX) as archive:
                path = f"/workdirs/{archive.digest}"
                if not self._api.exists(path):
                    self._api.upload(path, archive.pieces(), archive.size_bytes)
                spec = self._plan.spec(archive.digest)
        # One key for all tries: a lost answer cannot rent a second machine.
        key = f"lowtide-doctor-{secrets.token_hex(16)}"
        try:
            self._api.post("/jobs?accept_risk=true", spec, idempotency_key=key)
        except (CommandFailed, KeyboardInterrupt) as error:
            refused = isinstance(error, CommandFailed) and error.exit_code == BAD_INPUT
            if not refused:
                self._end_after(error)
            raise
        self._began = self._heard_at = time.monotonic()
        self._report.begin(self._name, self._api.url)

    def _follow(self) -> StageFailure | None:
        """Until its checkpoint is committed and it succeeded: None; else what failed."""
        while True:
            story = self._story()
            if story is not None:
                self._report.show(stages.views(story), story.events, self._seconds())
                if story.job["state"] == "succeeded":
                    return None
                failure = stages.failure_of(story) or self._told_by_pools(story)
                if failure is None and self._seconds() > self._wish.timeout_seconds:
                    failure = stages.late(story, self._wish.timeout_seconds)
                if failure is not None:
                    self._failed_after = self._seconds()
                    return failure
            time.sleep(_POLL_SECONDS)

    def _told_by_pools(self, story: JobHistory) -> StageFailure | None:
        """What goes on for ever unless a person acts: refusals, machines that never register."""
        if not stages.may_ask_pools(story):
            return None
        offers = {row["pool"]: row for row in self._api.get("/offers")["items"]}
        return stages.failure_of_pools(story, offers, self._plan.pools, datetime.now(UTC))

    def _give_back(self, cancel: bool) -> JobHistory:
        """The story once every machine is gone, or as it is when that was waited for in vain."""
        if cancel:
            self._cancel()
        ends = time.monotonic() + _GIVE_BACK_SECONDS
        while True:
            story = self._story()
            if story is not None:
                self._report.wait_for_end(stages.still_there(story))
                settled = story.job["state"] in AT_REST and not stages.still_there(story)
                if settled or time.monotonic() > ends:
                    return story
            time.sleep(_POLL_SECONDS)

    def _cancel(self) -> None:
        """End the job now; one that has ended already is fine."""
        try:
            self._api.post(f"{self._path}/cancel", {"now": True})
        except CommandFailed as failure:
            if failure.exit_code != BAD_INPUT:
                raise

    def _end_after(self, error: BaseException) -> None:
        """Give the machine back after Ctrl-C or an error here, and say whether that worked."""
        self._report.clear()
        why = "Ctrl-C" if isinstance(error, KeyboardInterrupt) else "This check failed"
        self._report.note(f"{why}: releasing the machine …")
        seconds = self._wish.timeout_seconds + GRACE_SECONDS
        limit = f"the job ends at its budget, or {format_duration(seconds)} after its submission"
        try:
            story = self._give_back(cancel=True)
        except (CommandFailed, KeyboardInterrupt):
            self._report.note(
                f"This check could not be completed: {limit}. Look with "
                f"`lowtide show {self._name}`; end it with `lowtide cancel {self._name} --now`."
            )
            return
        left = stages.still_there(story)
        if left:
            self._report.note(
                f"Still there: {', '.join(left)}. {stages.REMEDIES[LaunchPhase.GIVE_BACK]}"
            )
        else:
            self._report.note(f"{self._name} is cancelled, and all its machines are released.")

    def _shown(self, story: JobHistory, failure: StageFailure | None) -> tuple[StageView, ...]:
        if failure is None:
            shown = [self._with_words(view) for view in stages.views(story)]
        else:
            has_log = failure.stage in (
                LaunchPhase.REGISTER,
                LaunchPhase.TRAIN,
                LaunchPhase.CHECKPOINT,
            )
            log = tuple(self._log_lines()[-_LOG_LINES:]) if has_log else ()
            shown = list(stages.failed_views(story, failure, self._failed_after, log))
        left = stages.still_there(story)
        if left:
            told = f"not confirmed after {format_duration(_GIVE_BACK_SECONDS)}: {', '.join(left)}"
            remedy = stages.REMEDIES[LaunchPhase.GIVE_BACK]
            shown[-1] = StageView(LaunchPhase.GIVE_BACK, False, None, told, remedy)
        return tuple(shown)

    def _with_words(self, view: StageView) -> StageView:
        """Of the training: what the job said of the machine that it found itself on."""
        if view.stage is not LaunchPhase.TRAIN:
            return view
        said = [line.removeprefix(SAYS) for line in self._log_lines() if line.startswith(SAYS)]
        return replace(view, sentence=f"one step done: {'; '.join(dict.fromkeys(said))}")

    def _log_lines(self) -> list[str]:
        """The end of what the job's machines wrote; empty where it cannot be read."""
        lines: list[str] = []
        try:
            for row in self._api.get(f"{self._path}/logs")["items"][-_STREAMS_MAX:]:
                query = {"stream": row["stream"], "offset": -_LOG_BYTES, "limit": _LOG_BYTES}
                content = self._api.get_raw(f"{self._path}/logs", query).content
                lines += map(visible, content.decode("utf-8", "replace").splitlines())
        except CommandFailed:
            return lines
        return lines

    def _story(self) -> JobHistory | None:
        """Everything about the job now; None while the api is away, which is waited for."""
        try:
            story = JobHistory(
                self._api.get(self._path),
                tuple(self._api.pages(f"{self._path}/events", limit=_EVENTS_MAX, turn="after")),
                tuple(self._api.get(f"{self._path}/attempts")["items"]),
                tuple(self._api.get("/instances", {"job": self._name, "live": False})["items"]),
            )
        except CommandFailed as failure:
            silent = time.monotonic() - self._heard_at
            if failure.exit_code != UNREACHABLE or silent > _SILENCE_SECONDS_MAX:
                raise
            return None
        self._heard_at = time.monotonic()
        return story

    def _seconds(self) -> float:
        return time.monotonic() - self._began
