"""How much work is left, in seconds on the machines the job runs on now.

Lives here: the measured rate, kept over attempts, else the spec's own estimate, told for the
machines that the spec asks for. What an elastic gang trained with fewer machines counts in seconds
of a gang of full size. Not here: several accepted kinds of machine (`work_on_kinds`), or what
follows from it (`watch_deadlines`, the job page).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from app.domain.entities import Attempt, Contact, Job
from app.domain.gang_scaling import GangScaling, scaling_of_share
from app.domain.gpu_catalog import GPU_MODELS, relative_speed
from app.domain.job_spec import JobSpec
from app.domain.kind_speed import NOTHING_MEASURED, kind_of_choice
from app.domain.offer import Market
from app.domain.placement import need_of, work_alike

# A trainer may report any number of steps; what is left must stay within the calendar.
SECONDS_MAX = 100 * 365 * 86_400
# Fewer steps are a rate only when they took so long that they cannot be a start alone.
RATE_STEPS_MIN = 10
RATE_SECONDS_ENOUGH = 300.0
# Of an estimate is always left while no total tells the end: it may be off by so much.
ESTIMATE_LEFT_MIN = 0.1


@dataclass(frozen=True)
class WorkLeft:
    """Progress and what is left.

    `seconds` is None while neither rate nor estimate exists, and at most a hundred years.
    `estimated`: whether they rest on the estimate. Where a spec accepts several kinds of machine
    they are then told for the estimate's kind, and otherwise for that which trained.
    """

    step: int
    total_steps: int | None
    steps_per_second: float | None
    seconds: int | None
    estimated: bool = False


def work_left(
    job: Job, spec: JobSpec, attempt: Attempt | None, contacts: list[Contact]
) -> WorkLeft:
    """What is left of a job, from its newest reports.

    contacts: those of the live attempt's machines.
    """
    newest = _newest(contacts, attempt)
    step = job.committed_step
    if newest is not None and newest.step is not None:
        step = max(step, newest.step)
    total = job.total_steps
    count = job.node_count if attempt is None else attempt.node_count
    scaling = scaling_of_share(job.serial_share)
    rate = _rate(job, spec, attempt, newest, count)
    estimate = _estimated_seconds(spec, count, scaling)
    left = None if total is None else max(0, total - step)
    if left is not None and rate is not None:
        return WorkLeft(step, total, rate, min(SECONDS_MAX, ceil(left / rate)))
    if estimate is None:
        return WorkLeft(step, total, rate, None)
    if total is None or left is None:
        # By its steps, so that work which was lost and done again counts once.
        trained = _saved_seconds(attempt) if newest is None else 0.0
        done = (trained if rate is None else step / rate) * _slowest_pace(spec)
        seconds = max(estimate - done, estimate * ESTIMATE_LEFT_MIN, 1.0)
        return WorkLeft(step, None, rate, min(SECONDS_MAX, ceil(seconds)), estimated=True)
    share = left / total if total else 0.0
    seconds = min(SECONDS_MAX, ceil(estimate * share))
    return WorkLeft(step, total, None, seconds, estimated=True)


def _estimated_seconds(spec: JobSpec, count: int, scaling: GangScaling) -> float | None:
    """The spec's estimate on so many machines, of the accepted kind where that is one alone.

    Of several accepted kinds it stays told for its own.
    """
    if spec.estimate is None:
        return None
    seconds = spec.estimate.seconds / scaling.relative_pace(count, spec.estimate.nodes)
    told, asked = spec.estimate.gpu, spec.gpu_choices
    if told is None or told.name is None or not asked or not work_alike(spec):
        return seconds
    kind = kind_of_choice(told)
    return max(NOTHING_MEASURED.seconds_on(kind_of_choice(one), seconds, kind) for one in asked)


def _saved_seconds(attempt: Attempt | None) -> float:
    """How long the live attempt trained up to what it saved last, of a command without steps.

    What came since a loss would take away again.
    """
    if attempt is None or attempt.trained_at is None or attempt.committed_at is None:
        return 0.0
    return max(0.0, (attempt.committed_at - attempt.trained_at).total_seconds())


def _slowest_pace(spec: JobSpec) -> float:
    """How fast the slowest accepted machine works against the kind that work is told for; <= 1."""
    if spec.estimate is None or (spec.gpu_choices and work_alike(spec)):
        return 1.0
    told = NOTHING_MEASURED.of(kind_of_choice(spec.estimate.gpu))
    named = [kind_of_choice(one) for one in spec.gpu_choices if one.name is not None]
    speeds = [NOTHING_MEASURED.of(kind) for kind in named]
    if len(named) < max(1, len(spec.gpu_choices)):
        least = need_of(spec, Market.SPOT, 1).gpu_memory_gb_min
        fit = (one for one in GPU_MODELS if one.memory_gb >= least)
        speeds += [relative_speed(one.name, one.memory_gb) for one in fit]
    return min([1.0, *(speed / told for speed in speeds)])


def _current(contact: Contact, attempt: Attempt | None) -> bool:
    return attempt is not None and contact.fence == attempt.fence


def note_scaling(job: Job, serial_share: float | None) -> None:
    """How its gangs scale, as measured by now; None: as expected.

    Once seconds of ended attempts are kept it stays: they were counted with it.
    """
    if job.trained_seconds is None:
        job.serial_share = serial_share


def note_training(job: Job, spec: JobSpec, attempt: Attempt, contacts: list[Contact]) -> None:
    """Keep what an ending attempt trained, so that the next one's rate does not start from nothing.

    contacts: its members' newest reports, of its own fence.
    """
    trained = _trained(attempt, _newest(contacts, attempt))
    if trained is not None:
        job.trained_steps = (job.trained_steps or 0) + trained[0]
        scaling = scaling_of_share(job.serial_share)
        pace = scaling.relative_pace(attempt.node_count, spec.nodes.most)
        job.trained_seconds = (job.trained_seconds or 0.0) + trained[1] * pace


def _newest(contacts: list[Contact], attempt: Attempt | None) -> Contact | None:
    return max(
        (c for c in contacts if c.step is not None and _current(c, attempt)),
        key=lambda contact: contact.step or 0,
        default=None,
    )


def _trained(attempt: Attempt | None, newest: Contact | None) -> tuple[int, float] | None:
    """Steps of the attempt, and the seconds from its start to the newest; None before the first."""
    if attempt is None or attempt.trained_at is None or newest is None:
        return None
    if newest.step is None or newest.step_at is None:
        return None
    seconds = (newest.step_at - attempt.trained_at).total_seconds()
    steps = newest.step - (attempt.parent_step or 0)
    return (steps, seconds) if steps > 0 and seconds > 0 else None


def _rate(
    job: Job, spec: JobSpec, attempt: Attempt | None, newest: Contact | None, count: int
) -> float | None:
    """Steps per second over all of the job's training: slow to change, and so is what rests on it.

    An attempt begins with imports, compiling and restoring, so that its first steps say nothing of
    its pace: alone they are no rate, after earlier attempts they weigh little.
    """
    pace = scaling_of_share(job.serial_share).relative_pace(count, spec.nodes.most)
    steps, seconds = _trained(attempt, newest) or (0, 0.0)
    steps += job.trained_steps or 0
    seconds = seconds * pace + (job.trained_seconds or 0.0)
    if steps < RATE_STEPS_MIN and seconds < RATE_SECONDS_ENOUGH:
        return None
    return steps / seconds * pace if steps > 0 and seconds > 0 else None
