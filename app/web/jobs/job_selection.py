"""Many jobs at once on the jobs page: the question before a command, the command, and its outcome.

A question names the jobs it is about, and the command goes to those alone, in one request. Not
here: the command itself (`app.orchestration.gang.stop_many`), or the API's way to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final
from urllib.parse import parse_qsl
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from app.domain.access.may import require_role
from app.domain.access.roles import Action
from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState
from app.domain.lifecycle.job_command import COMMANDED_STATES, JobCommand
from app.domain.units.errors import InvalidValue
from app.orchestration.gang.stop_many import JOBS_MAX, CommandedJob, CommandOutcome, command_many
from app.storage.reports.job_search import ChosenJob, JobSearch
from app.web.job_sentences import TONES
from app.web.jobs.job_query import JobQuery, read_query
from app.web.page_frame import PageParts, PageRoute, SignedIn, check_form, parts_of, render

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Token = Annotated[str, Form(max_length=200)]
Ids = Annotated[list[UUID], Form(max_length=JOBS_MAX)]

_WITHOUT_PROGRAMS: Final = frozenset({JobState.QUEUED, JobState.PAUSED})
_TOLD: Final = (CommandOutcome.REFUSED, CommandOutcome.BUSY, CommandOutcome.NOT_FOUND)
_PAST: Final = {
    JobCommand.CANCEL: "cancelled",
    JobCommand.PAUSE: "paused",
    JobCommand.RESUME: "resumed",
}


@dataclass(frozen=True)
class Confirmation:
    """What a command would do to the chosen jobs.

    is_cut: more were chosen than one request takes. by_state: (state, tone, how many).
    """

    command: JobCommand
    jobs: tuple[ChosenJob, ...]
    is_cut: bool
    back: str

    @property
    def meant(self) -> int:
        """How many of them the command changes."""
        return sum(job.state in COMMANDED_STATES[self.command] for job in self.jobs)

    @property
    def by_state(self) -> list[tuple[JobState, str, int]]:
        """(state, tone, how many), in the order of the states."""
        counts = Counter(job.state for job in self.jobs)
        return [(state, TONES[state], counts[state]) for state in JobState if counts[state]]

    @property
    def title(self) -> str:
        """The question itself."""
        return f"{self.command.value.capitalize()} {_jobs(self.meant)}?"

    @property
    def spent_microusd(self) -> int:
        """What the jobs that the command changes have cost so far."""
        changed = COMMANDED_STATES[self.command]
        return sum(job.spent_microusd for job in self.jobs if job.state in changed)

    @property
    def asks_at_once(self) -> bool:
        """Whether "without saving" is a choice: some job may have a program that saves first."""
        changed = COMMANDED_STATES[self.command] - _WITHOUT_PROGRAMS
        return self.command is JobCommand.CANCEL and any(job.state in changed for job in self.jobs)

    @property
    def consequences(self) -> list[str]:
        """What is lost and what is kept, a sentence each."""
        counts = Counter(job.state for job in self.jobs)
        return list(_consequences(self.command, counts))


@dataclass(frozen=True)
class CommandAnswer:
    """What became of a command. refused: (name, outcome, why) of each job that it did not reach."""

    command: JobCommand
    counts: Mapping[CommandOutcome, int]
    refused: tuple[tuple[str, CommandOutcome, str], ...]
    back: str

    @property
    def past(self) -> str:
        """The command as something that has happened."""
        return _PAST[self.command]

    @property
    def title(self) -> str:
        """How many jobs it reached."""
        done = self.counts[CommandOutcome.DONE]
        return f"{_jobs(done)} {_PAST[self.command]}" if done else f"No job {_PAST[self.command]}"


@router.post("/jobs/-/question")
def question(
    request: Request,
    visitor: SignedIn,
    action: Annotated[JobCommand, Form()],
    form_token: Token = "",
    search: Annotated[str, Form(max_length=4000)] = "",
    everything: Annotated[bool, Form()] = False,
    job: Ids = [],  # noqa: B006 (FastAPI copies it)
    prefix: Annotated[list[str], Form(max_length=JOBS_MAX)] = [],  # noqa: B006
) -> Response:
    """Ask before many jobs are commanded: those ticked, or all that a search finds."""
    check_form(request, visitor, form_token)
    parts = parts_of(request)
    assert visitor.owner is not None
    require_role(visitor.owner, Action.COMMAND_JOB)
    query = read_query(parse_qsl(search))
    jobs = _chosen(parts, visitor.owner.project_id, query, action, everything, job, prefix)
    asked = Confirmation(action, tuple(jobs[:JOBS_MAX]), len(jobs) > JOBS_MAX, query.address())
    whole = not request.headers.get("hx-request")
    template = "jobs_question_page.html" if whole else "jobs_question.html"
    return render(request, template, visitor, asked=asked, jobs_max=JOBS_MAX, search=search)


@router.post("/jobs/-/command")
def command(
    request: Request,
    visitor: SignedIn,
    action: Annotated[JobCommand, Form()],
    job: Ids,
    form_token: Token = "",
    search: Annotated[str, Form(max_length=4000)] = "",
    at_once: Annotated[bool, Form()] = False,
) -> Response:
    """Cancel, pause or resume the jobs, and tell of each that refused."""
    check_form(request, visitor, form_token)
    parts = parts_of(request)
    assert visitor.owner is not None
    require_role(visitor.owner, Action.COMMAND_JOB)
    known = parts.reports.jobs_by_id(visitor.owner.project_id, job)
    done = command_many(
        parts.runtime,
        [one.id for one in known],
        visitor.owner,
        action,
        at_once=at_once and action is JobCommand.CANCEL,
    )
    answer = _answer(action, known, done, len(set(job)) - len(known), read_query(parse_qsl(search)))
    return render(request, "jobs_commanded.html", visitor, answer=answer)


def _chosen(
    parts: PageParts,
    project_id: UUID,
    query: JobQuery,
    action: JobCommand,
    everything: bool,
    ids: Sequence[UUID],
    prefixes: Sequence[str],
) -> list[ChosenJob]:
    """Ticked jobs in any state; of groups and searches, those that the command is meant for."""
    chosen: list[ChosenJob] = []
    if query.problem is not None or any("\0" in one for one in prefixes):
        raise InvalidValue(query.problem or "A prefix of a name holds no NUL.", "search")
    if everything or prefixes:
        search = query.search(project_id, parts.runtime.clock.now())
        meant = (search.states or frozenset(JobState)) & COMMANDED_STATES[action]
        chosen = _found(parts, search, meant, prefixes, everything)
    if ids and not everything:
        found = {job.id for job in chosen}
        ticked = parts.reports.jobs_by_id(project_id, ids)
        chosen = [*(job for job in ticked if job.id not in found), *chosen]
    if not chosen and not (everything or prefixes or ids):
        raise InvalidValue("No job is selected. Go back and tick the jobs that you mean.", "job")
    return chosen


def _found(
    parts: PageParts,
    search: JobSearch,
    states: frozenset[JobState],
    prefixes: Collection[str],
    everything: bool,
) -> list[ChosenJob]:
    if not states:
        return []
    return parts.reports.chosen_jobs(
        replace(search, states=states), prefixes, everything=everything, limit=JOBS_MAX + 1
    )


def _answer(
    action: JobCommand,
    known: Sequence[ChosenJob],
    done: Mapping[UUID, CommandedJob],
    missing: int,
    query: JobQuery,
) -> CommandAnswer:
    counts = Counter(one.outcome for one in done.values())
    if missing:
        counts[CommandOutcome.NOT_FOUND] = missing
    refused = [
        (job.name, done[job.id].outcome, done[job.id].detail or "")
        for job in known
        if done[job.id].outcome in _TOLD
    ]
    by_outcome = {outcome: counts[outcome] for outcome in CommandOutcome}
    return CommandAnswer(action, by_outcome, tuple(refused), query.address())


def _consequences(action: JobCommand, counts: Mapping[JobState, int]) -> list[str]:
    """Sentences for the states that the chosen jobs are in."""
    starting = counts.get(JobState.STARTING, 0)
    running, stopping = counts.get(JobState.RUNNING, 0), counts.get(JobState.STOPPING, 0)
    waiting = counts.get(JobState.QUEUED, 0) + counts.get(JobState.RECOVERING, 0)
    paused = counts.get(JobState.PAUSED, 0)
    ended = sum(counts.get(state, 0) for state in TERMINAL_JOB_STATES)
    said = []
    if action is JobCommand.CANCEL:
        if running:
            said.append(
                f"{_run(running)}: a program that can save a checkpoint does so first, then the "
                "machines are released."
            )
        if starting:
            said.append(f"{_start(starting)}: the machines are released.")
        if waiting:
            said.append(
                f"{_wait(waiting)}: {'it leaves' if waiting == 1 else 'they leave'} the queue."
            )
        said.append(
            "A cancelled job cannot be resumed. To run it again, submit it under another name."
        )
    elif action is JobCommand.PAUSE:
        if running:
            said.append(
                f"{_run(running)}: a program that can save a checkpoint does so first, then the "
                "machines are released and cost nothing more."
            )
        if starting:
            said.append(f"{_start(starting)}: the machines are released and cost nothing more.")
        if waiting:
            said.append(f"{_wait(waiting)}: no machine is requested until you resume.")
        said.append(
            "Resumed jobs continue from their last checkpoint. Those without one start from the "
            "beginning."
        )
    else:
        said.append(
            "They join the queue and continue from their last checkpoint. Those without one start "
            "from the beginning."
        )
        said.append("Their machines cost money again.")
    if stopping and action is not JobCommand.RESUME:
        said.append(
            f"{_jobs(stopping)} {_are(stopping)} stopping already: the machines are released as "
            "soon as a program that can save has done so."
        )
    if paused and action is JobCommand.PAUSE:
        said.append(f"{_jobs(paused)} {_are(paused)} paused already.")
    if ended:
        said.append(
            f"{_jobs(ended)} {'has' if ended == 1 else 'have'} ended: nothing changes there."
        )
    return said


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _run(number: int) -> str:
    return f"{_jobs(number)} {_are(number)} running"


def _start(number: int) -> str:
    return f"{_jobs(number)} {_are(number)} starting"


def _wait(number: int) -> str:
    return f"{_jobs(number)} {'waits' if number == 1 else 'wait'} for machines"
