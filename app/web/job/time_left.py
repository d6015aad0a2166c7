"""Whether a job is in time, told once for the whole page: its end, its deadline, and the slack.

Lives here: one figure with its notes. Not here: how the end is worked out (`estimate_remaining`),
or the last safe moment (`app.orchestration.transitions.watch_deadlines`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market
from app.domain.placement.placement_decision import PlacementDecision
from app.web import formats

_STARTS = (JobState.STARTING, JobState.RECOVERING)


@dataclass(frozen=True)
class FigureNote:
    """A short line below the figure; `title` explains it. tone: as of the figure."""

    text: str
    tone: str = ""
    title: str = ""


@dataclass(frozen=True)
class ExpectedEnd:
    """When the work is done, if nothing interrupts it; start_seconds of it until the next step."""

    at: datetime
    seconds: int
    start_seconds: float
    measured: bool


@dataclass(frozen=True)
class Countdown:
    """The figure. `label`: what it is of; `at`: the instant it tells of, None for a mere word.

    tone: "", good, bad or warn.
    """

    label: str
    value: str
    notes: tuple[FigureNote, ...]
    tone: str = ""
    at: datetime | None = None


def time_left(
    job: Job,
    end: ExpectedEnd | None,
    now: datetime,
    *,
    slack_sentence: str,
    safe_moment_matters: bool,
    decision: PlacementDecision | None,
) -> Countdown:
    """The figure of a job. end: None while it is not known.

    slack_sentence: all that is known of the slack. safe_moment_matters: whether machines exist that
    could keep the deadline. decision: the newest, which knows the last safe moment first.
    """
    if job.ended_at is not None:
        return _ended(job, job.ended_at)
    if job.deadline_at is None:
        return _without_deadline(job, end)
    return _before(job, job.deadline_at, end, now, slack_sentence, safe_moment_matters, decision)


def _ended(job: Job, ended_at: datetime) -> Countdown:
    took = formats.brief((ended_at - job.submitted_at).total_seconds())
    ended = FigureNote(
        f"ended {formats.clock_time(ended_at)} UTC", title=formats.full_time(ended_at)
    )
    if job.deadline_at is None:
        return Countdown("Took, from submission", took, (ended,))
    spare = (job.deadline_at - ended_at).total_seconds()
    took_note = FigureNote(f"took {took} from submission")
    if job.state is not JobState.SUCCEEDED:
        passed = f"{formats.brief(abs(spare))} {'before' if spare >= 0 else 'after'} its deadline"
        return Countdown("Took, from submission", took, (ended, FigureNote(passed)))
    if spare < 0:
        late = f"{formats.brief(-spare)} late"
        return Countdown(
            "Deadline", "missed", (FigureNote(late, "bad"), took_note), "bad", job.deadline_at
        )
    notes = (FigureNote(f"{formats.brief(spare)} early"), took_note)
    return Countdown("Deadline", "met", notes, "good", job.deadline_at)


def _without_deadline(job: Job, end: ExpectedEnd | None) -> Countdown:
    none = FigureNote("no deadline")
    if end is None:
        return Countdown("Done", "not known yet", (FigureNote(_unknown(job)), none), "muted")
    value = f"in {formats.brief(end.seconds)}"
    return Countdown("Done", value, (_eta(job, end), none), at=end.at)


def _before(
    job: Job,
    deadline_at: datetime,
    end: ExpectedEnd | None,
    now: datetime,
    sentence: str,
    safe_moment_matters: bool,
    decision: PlacementDecision | None,
) -> Countdown:
    label = f"Deadline {formats.ago(deadline_at, now)}"
    notes = [FigureNote(_unknown(job))] if end is None else [_eta(job, end)]
    if safe_moment_matters and now < deadline_at:
        notes.append(_safety(job, now, sentence, decision))
    if now >= deadline_at:
        return Countdown(label, "missed", tuple(notes), "bad", deadline_at)
    if end is None:
        clock = f"{formats.clock_time(deadline_at)} UTC"
        return Countdown(label, clock, tuple(notes), at=deadline_at)
    spare = (deadline_at - end.at).total_seconds()
    if spare < 0:
        late = f"{formats.brief(-spare)} late"
        return Countdown(label, late, tuple(notes), "bad", deadline_at)
    # Green is what was measured: an estimate of its author's shows nothing yet.
    tone = "good" if end.measured and job.unsafe_since_at is None else ""
    return Countdown(label, f"ends {formats.brief(spare)} early", tuple(notes), tone, deadline_at)


def _eta(job: Job, end: ExpectedEnd) -> FigureNote:
    start = ""
    if end.start_seconds >= 1:
        start = f" with {formats.brief(end.start_seconds)} of start-up"
    once = ", once its machines are there" if job.state in _STARTS else ""
    by = "" if end.measured else ", by its estimate"
    text = f"ETA {formats.clock_time(end.at)} UTC, in {formats.brief(end.seconds)}{start}{once}{by}"
    from_where = "measured rate" if end.measured else "spec's estimate"
    title = f"{formats.full_time(end.at)}, by the {from_where}; interruptions are not counted"
    return FigureNote(text, title=title)


def _unknown(job: Job) -> str:
    if job.state is JobState.PAUSED:
        return "no end while it is paused"
    if job.state is JobState.STOPPING:
        return "it is stopping"
    if job.state is JobState.QUEUED:
        return "no end known yet: it waits for machines"
    if job.total_steps is None:
        return "no end known: it reports no total_steps, and its spec has no estimate"
    return "no end known before the first steps"


def _safety(
    job: Job, now: datetime, sentence: str, decision: PlacementDecision | None
) -> FigureNote:
    """Until when spot is safe, in a few words."""
    if job.unsafe_since_at is not None:
        return FigureNote("not safe: may be missed", "bad", sentence)
    last_safe_at = job.last_safe_at
    if last_safe_at is None and job.market_mode is Market.ON_DEMAND:
        return FigureNote("on on-demand machines, to meet it", "", sentence)
    if last_safe_at is None and decision is not None:
        last_safe_at = decision.last_safe_at
    if last_safe_at is None:
        return FigureNote("slack not known yet: the work left is unknown", "", sentence)
    left = (last_safe_at - now).total_seconds()
    if left > 0 and job.state is JobState.PAUSED:
        return FigureNote(f"safe on spot if resumed within {formats.brief(left)}", "", sentence)
    if left > 0:
        return FigureNote(f"spot is safe for {formats.brief(left)} (slack)", "", sentence)
    return FigureNote("spot is no longer safe", "warn", sentence)
