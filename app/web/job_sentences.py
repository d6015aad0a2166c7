"""What a job does now, in the words of its page; why it is in its state, all readers read alike.

Not here: that reason (`app.domain.wording.why_words`), or figures (`job_page`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Job
from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState
from app.domain.wording.machine_words import (
    PHASE_WORDS,
    gang_words,
    machines_in_words,
    zone_words,
)
from app.domain.wording.why_words import why
from app.storage.reports.job_facts import JobFacts
from app.web import formats
from trainer.protocol.agent_report import MachinePhase

TONES: Final = {
    JobState.QUEUED: "waiting",
    JobState.STARTING: "moving",
    JobState.RUNNING: "good",
    JobState.RECOVERING: "moving",
    JobState.STOPPING: "moving",
    JobState.PAUSED: "waiting",
    JobState.SUCCEEDED: "good",
    JobState.FAILED: "bad",
    JobState.CANCELLED: "ended",
}
"""How a state is coloured; its word is always there, too."""

_FIRST_PHASES: Final = (
    MachinePhase.SETUP,
    MachinePhase.RESTORE,
    MachinePhase.GANG_WAIT,
    MachinePhase.COMPILE,
)
"""What machines do before they train; the one that holds the others up comes first."""


def head_sentence(facts: JobFacts, now: datetime) -> str:
    """The line below the job's state: while it trains, on what; and why it is in that state."""
    reason = why(facts.standing, now) or ""
    attempt = facts.attempt
    trains = attempt is not None and attempt.state is AttemptState.RUNNING
    if attempt is None or not trains or facts.job.state is not JobState.RUNNING:
        return reason
    return f"{_training(facts, attempt)} {reason}".rstrip()


def before_first_step(facts: JobFacts) -> str:
    """What a job without a step does, in place of a number; one word or a few."""
    job, attempt = facts.job, facts.attempt
    if job.state in TERMINAL_JOB_STATES:
        return "" if job.state is JobState.SUCCEEDED else "no step was made"
    if job.state is JobState.PAUSED:
        return "paused before its first step"
    if job.state is JobState.STOPPING:
        return "stopping"
    if attempt is None:
        return "waiting for machines"
    if attempt.state is AttemptState.PROVISIONING:
        return "starting machines"
    if phase := _first_phase(facts):
        return PHASE_WORDS[phase]
    if attempt.state is AttemptState.PREPARING:
        return "preparing machines"
    return "running" if job.total_steps is None else "before its first step"


def _first_phase(facts: JobFacts) -> MachinePhase | None:
    """What the machine that holds the others up does before it trains; None once all train."""
    phases = {one.contact.phase for one in facts.machines if one.contact is not None}
    return next((phase for phase in _FIRST_PHASES if phase in phases), None)


def gang_steps(facts: JobFacts, step: int) -> str:
    """Of a gang whose machines each report steps: how far its slowest one is; "" if none lags.

    Rank 0 reports for all ranks of the trainer and of the hooks; of its machine nothing is said.
    step: the newest of any machine, which the page shows.
    """
    attempt = facts.attempt
    if attempt is None or attempt.node_count < 2 or facts.job.state is not JobState.RUNNING:
        return ""
    contacts = [one.contact for one in facts.machines if one.contact is not None]
    steps = [c.step for c in contacts if c.fence == attempt.fence and c.step is not None]
    lags = len(steps) > 1 and min(steps) < step
    return f"slowest machine at step {min(steps):,}" if lags else ""


def steps_note(steps: Sequence[int | None]) -> str:
    """Why machines that run have no step of their own, where one of them has; else ""."""
    if not any(steps) or all(steps):
        return ""
    return "The machine of rank 0 reports the steps for the others."


def next_look(job: Job, now: datetime) -> str | None:
    """When a waiting job is looked at again, None for one that does not wait."""
    if job.state not in (JobState.QUEUED, JobState.RECOVERING):
        return None
    if job.claimable_at is None or job.claimable_at <= now:
        return "now"
    return formats.ago(job.claimable_at, now)


def _training(facts: JobFacts, attempt: Attempt) -> str:
    """ "Training on 2 machines in us-west-2a.", or what the machines do before they train."""
    job, pools = facts.job, facts.standing.registered
    more = job.node_count - attempt.node_count
    growing = f"; {machines_in_words(more)} more on the way" if more > 0 else ""
    phase = _first_phase(facts)
    does = "Training" if phase is None else PHASE_WORDS[phase].capitalize()
    gang = gang_words(attempt.node_count, facts.standing.nodes)
    return f"{does} on {gang}{zone_words(pools)}{growing}."
