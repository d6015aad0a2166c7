"""Why a job is where it is, in one sentence.

Lives here: sentences made from states. Where a rule has written its own reason (a wait, an end),
that is what people read. Not here: figures (`job_page`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.domain.deployment.disk_full import DISK_FULL_SENTENCE, free_bytes_when_full
from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.entities import Attempt, Instance, Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState
from app.domain.wording.machine_words import PHASE_WORDS
from app.domain.wording.stop_words import why_stopping
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


def why(facts: JobFacts, now: datetime) -> str:
    """The sentence below the job's state."""
    job = facts.job
    if job.state is JobState.SUCCEEDED:
        return _succeeded(job)
    if job.end_message and job.ended_at is not None:
        return _sentence(job.end_message)
    if job.state is JobState.PAUSED:
        return _sentence(job.end_message or "Paused. Its checkpoints are kept.")
    if job.state in (JobState.QUEUED, JobState.RECOVERING):
        return _waiting(job, facts)
    if job.state is JobState.STOPPING:
        return why_stopping(job, facts.attempt, now)
    failed = "" if facts.last_failure is None else f" {facts.last_failure}"
    return f"{_attempting(facts, now)}{failed}"


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
    """Of a gang: how far its slowest machine is, and how many report no step; "" for one machine.

    step: the newest of any machine, which the page shows.
    """
    attempt = facts.attempt
    if attempt is None or attempt.node_count < 2 or facts.job.state is not JobState.RUNNING:
        return ""
    contacts = [one.contact for one in facts.machines if one.contact is not None]
    steps = [c.step for c in contacts if c.fence == attempt.fence and c.step is not None]
    if not steps:
        return ""
    if len(steps) < attempt.node_count:
        verb = "reports" if len(steps) == 1 else "report"
        return f"as {len(steps)} of {attempt.node_count} machines {verb} it"
    return f"slowest machine at step {min(steps):,}" if min(steps) < step else ""


def next_look(job: Job, now: datetime) -> str | None:
    """When a waiting job is looked at again, None for one that does not wait."""
    if job.state not in (JobState.QUEUED, JobState.RECOVERING):
        return None
    if job.claimable_at is None or job.claimable_at <= now:
        return "now"
    return formats.ago(job.claimable_at, now)


def _waiting(job: Job, facts: JobFacts) -> str:
    if job.wait_reason:
        return _sentence(job.wait_reason)
    if job.state is JobState.QUEUED:
        return "In the queue: looking for machines next."
    ended = facts.last_failure
    if ended is None:
        last = facts.counts.last_end
        because = "" if last is None else f" ({formats.words(last.reason)})"
        ended = f"The last attempt ended{because}."
    if facts.last_checkpoint is None:
        return f"{ended} It saved no checkpoint; the next one starts from the beginning."
    place = f"step {job.committed_step:,}" if job.committed_step else "its last checkpoint"
    return f"{ended} The next one continues from {place}."


def _attempting(facts: JobFacts, now: datetime) -> str:
    attempt = facts.attempt
    machines = [one.instance for one in facts.machines]
    if attempt is None:
        return "The next attempt is starting."
    here = [one for one in machines if one.registered_at is not None]
    if attempt.state is AttemptState.PROVISIONING:
        return f"{_of(len(here), attempt.node_count)} ready; waiting for the rest."
    if attempt.state is AttemptState.PREPARING:
        return f"{_gang(facts.job, attempt)}{_zone(here)}: restoring and connecting to each other."
    if attempt.state is AttemptState.DRAINING:
        return _draining(facts.job, attempt, machines, now)
    if attempt.state is AttemptState.SETTLING:
        return "The attempt ended; checking why before the next one."
    more = facts.job.node_count - attempt.node_count
    growing = f"; {_machines(more)} more on the way" if more > 0 else ""
    full = f" {DISK_FULL_SENTENCE}" if _disk_full(facts) else ""
    phase = _first_phase(facts)
    does = "Training" if phase is None else PHASE_WORDS[phase].capitalize()
    return f"{does} on {_gang(facts.job, attempt)}{_zone(here)}{growing}.{full}"


def _disk_full(facts: JobFacts) -> bool:
    living = [one.contact for one in facts.machines if one.instance.ended_at is None]
    told = [free_bytes_when_full(one.metrics) for one in living if one is not None]
    return any(free_bytes is not None for free_bytes in told)


def _draining(job: Job, attempt: Attempt, machines: Sequence[Instance], now: datetime) -> str:
    if attempt.drain_cause is DrainCause.INTERRUPTION:
        noticed = [one for one in machines if one.state is InstanceState.INTERRUPTING]
        left = "" if attempt.drain_until_at is None else _left(attempt.drain_until_at, now)
        return f"The cloud interrupts {_machines(len(noticed) or 1)}{left}: saving a checkpoint."
    if attempt.drain_cause is DrainCause.YIELD:
        if attempt.node_count != job.node_count:
            return f"Saving a checkpoint to continue with {_machines(job.node_count)}."
        return "Saving a checkpoint to move to other machines."
    return "Saving a checkpoint before the machines are released."


def _left(until: datetime, now: datetime) -> str:
    seconds = (until - now).total_seconds()
    return f" in {formats.brief(seconds)}" if seconds >= 1 else " now"


def _succeeded(job: Job) -> str:
    took = ""
    if job.ended_at is not None:
        took = f", {formats.brief((job.ended_at - job.submitted_at).total_seconds())} after it was"
        took += " submitted"
    at = f" at step {job.committed_step:,}" if job.committed_step else ""
    return f"Finished{at}{took}."


def _zone(machines: Sequence[Instance]) -> str:
    zones = sorted({one.pool.zone for one in machines if one.pool is not None})
    return f" in {', '.join(zones)}" if zones else ""


def _machines(number: int) -> str:
    return "1 machine" if number == 1 else f"{number} machines"


def _gang(job: Job, attempt: Attempt) -> str:
    """ "3 machines", or "3 of 2–4 machines" where the number may change."""
    nodes = job.spec.get("nodes")
    if not isinstance(nodes, str):
        return _machines(attempt.node_count)
    return f"{attempt.node_count} of {nodes.replace('..', '–')} machines"


def _of(number: int, total: int) -> str:
    return f"{number} of {_machines(total)} {'is' if number == 1 else 'are'}"


def _sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    stripped = text.strip()
    end = "" if stripped.endswith((".", "!", "?")) else "."
    return f"{stripped[:1].upper()}{stripped[1:]}{end}"
