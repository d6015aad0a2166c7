"""How much work is left, in seconds on the machines the job runs on now: rate, work and start-up.

Lives here: the one function for it, which pages, the API, deadlines and placement ask. The rate is
what agents measured between steps, kept over attempts, and mixed with the spec's own estimate,
which is told for the machines that the spec asks for and for training without start-up. What an
elastic gang trained with fewer machines counts in seconds of a gang of full size. Not here: several
accepted kinds of machine (`work_by_gpu`), or what follows from it (`watch_deadlines`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Contact, Job
from app.domain.lifecycle.job import JobState
from app.domain.market.gpu_catalog import GPU_MODELS, relative_speed
from app.domain.market.offer import Market
from app.domain.placement.placement import need_of, work_alike
from app.domain.spec.job_spec import JobSpec
from app.domain.throughput.gang_scaling import GangScaling, scaling_of_share
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, gpu_shape_of_choice
from app.domain.throughput.start_up import start_up_left
from app.orchestration.estimates.attempt_measures import newest_of, pace_of, unstepped_seconds
from trainer.protocol.agent_report import Pace

# A trainer may report any number of steps; what is left must stay within the calendar.
SECONDS_MAX = 100 * 365 * 86_400
STEPS_MAX = 2**62
# After the first step: fewer are a rate only when they took so long that no stall explains it.
RATE_STEPS_MIN = 10
SLOW_STEPS_MIN = 2
RATE_SECONDS_ENOUGH = 300.0
# Of an estimate is always left while no total tells the end: it may be off by so much.
ESTIMATE_LEFT_MIN = 0.1
# The estimate weighs as much as so much stepping, in seconds and as a share of itself.
PRIOR_SECONDS = 60.0
PRIOR_SHARE = 0.02
# What is stored for the list is written again when it is off by so much.
ETA_OFF_SECONDS = 5.0
OFF_SHARE = 0.01


@dataclass(frozen=True)
class WorkLeft:
    """Progress and what is left.

    steps_per_second: as measured, None before that. `seconds` is None while neither rate nor
    estimate exists, and at most a hundred years; start-up is no part of it. start_seconds: until
    the trainer steps; 0 while it does. estimate_seconds: what is left by the estimate alone, told
    for the estimate's machines as below; None without one.
    `estimated`: whether `seconds` rests on the estimate alone. Where a spec accepts several kinds
    of machine it is then told for the estimate's kind, and otherwise for that which trained:
    measured_here, that of the live attempt.
    """

    step: int
    total_steps: int | None
    steps_per_second: float | None
    seconds: int | None
    estimated: bool = False
    start_seconds: float = 0.0
    estimate_seconds: int | None = None
    measured_here: bool = False

    @property
    def to_the_end(self) -> int | None:
        """Seconds until the work is done, once its machines are there: start-up, then work."""
        if self.seconds is None:
            return None
        return min(SECONDS_MAX, self.seconds + ceil(self.start_seconds))

    @property
    def source(self) -> str | None:
        """Where it comes from: `measured` or `estimate`; None while nothing is known."""
        if self.seconds is None:
            return None
        return "estimate" if self.steps_per_second is None else "measured"


@dataclass(frozen=True)
class _Measured:
    """Steps after the first of each attempt, and their seconds of a full gang; here: of the live
    attempt among them.
    """

    steps: int
    seconds: float
    here: Pace | None

    @property
    def is_rate(self) -> bool:
        """Whether so much says how fast it goes."""
        slow = self.steps >= SLOW_STEPS_MIN and self.seconds >= RATE_SECONDS_ENOUGH
        return self.seconds > 0 and (self.steps >= RATE_STEPS_MIN or slow)


def work_left(
    job: Job,
    spec: JobSpec,
    attempt: Attempt | None,
    contacts: list[Contact],
    now: datetime,
    node_count: int | None = None,
) -> WorkLeft:
    """What is left of a job, from its newest reports.

    contacts: those of the live attempt's machines. node_count: of the gang that would do it where
    no attempt is live; the job's own without it.
    """
    newest = newest_of(contacts, attempt)
    measured = _measured(job, spec, attempt, newest)
    total = job.total_steps
    step = _step(job, attempt, newest, measured.here)
    count = node_count or job.node_count
    if attempt is not None:
        count = attempt.node_count
    scaling = scaling_of_share(job.serial_share)
    pace = scaling.relative_pace(count, spec.nodes.most)
    rate = measured.steps / measured.seconds * pace if measured.is_rate else None
    estimate = _estimated_seconds(spec, count, scaling)
    seconds: float | None = None
    by_estimate: float | None = None
    if total is not None:
        left = max(0, total - step)
        if estimate is not None:
            by_estimate = estimate * (left / total if total else 0.0)
        seconds = by_estimate
        if rate is not None:
            seconds = left / _with_prior(measured, pace, total, estimate, spec)
    elif estimate is not None:
        done = _done_seconds(job, attempt, measured.here, pace, rate) * _slowest_pace(spec)
        seconds = by_estimate = max(estimate - done, estimate * ESTIMATE_LEFT_MIN, 1.0)
    return WorkLeft(
        step,
        total,
        rate,
        _whole(seconds),
        estimated=seconds is not None and (rate is None or total is None),
        start_seconds=_start_seconds(job, attempt, newest, now),
        estimate_seconds=_whole(by_estimate),
        measured_here=measured.here is not None,
    )


def keep_progress(job: Job, left: WorkLeft, now: datetime) -> bool:
    """Store for the list how a running job goes; whether it differed enough to be written."""
    eta_at = _end(left, now)
    if _same_end(job, left, now) and left.source == job.eta_from and _alike(left, job):
        return False
    job.eta_at, job.eta_from = eta_at, left.source
    job.steps_per_second = left.steps_per_second
    return True


def expected_end(job: Job, left: WorkLeft, now: datetime) -> datetime | None:
    """When a job that trains is done; None for any other, and while that is not known.

    The end that is stored for the list, unless it is so far off that it is written again: so all
    places tell the same end.
    """
    if job.state is not JobState.RUNNING or left.to_the_end is None:
        return None
    same = left.source == job.eta_from and _same_end(job, left, now)
    return job.eta_at if same else _end(left, now)


def _end(left: WorkLeft, now: datetime) -> datetime | None:
    return None if left.to_the_end is None else now + timedelta(seconds=left.to_the_end)


def _same_end(job: Job, left: WorkLeft, now: datetime) -> bool:
    """Whether the stored end is the present one, but for what is not worth a write."""
    eta_at = _end(left, now)
    if eta_at is None or job.eta_at is None:
        return eta_at is job.eta_at
    off = ETA_OFF_SECONDS + OFF_SHARE * (left.to_the_end or 0)
    return abs((eta_at - job.eta_at).total_seconds()) <= off


def _alike(left: WorkLeft, job: Job) -> bool:
    new, old = left.steps_per_second, job.steps_per_second
    if new is None or old is None:
        return new is old
    return abs(new - old) <= OFF_SHARE * old


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else ceil(min(float(SECONDS_MAX), seconds))


def _with_prior(
    measured: _Measured, pace: float, total: int, estimate: float | None, spec: JobSpec
) -> float:
    """Steps per second, measured and expected in one; as measured where kinds of machine differ.

    There the estimate is told for another kind than that which trains.
    """
    steps, seconds = float(measured.steps), measured.seconds / pace
    if estimate is not None and work_alike(spec):
        weight = max(PRIOR_SECONDS, PRIOR_SHARE * estimate)
        steps, seconds = steps + total * weight / estimate, seconds + weight
    return steps / seconds


def _step(job: Job, attempt: Attempt | None, newest: Contact | None, here: Pace | None) -> int:
    """The newest step; one beyond the total is no step of the work, but what was seen counts."""
    if newest is None or newest.step is None:
        return job.committed_step
    step, total = newest.step, job.total_steps
    if total is not None and step > total:
        parent = 0 if attempt is None else attempt.parent_step or 0
        step = min(total, parent + (0 if here is None else here.last_step - here.first_step))
    return max(job.committed_step, step)


def _done_seconds(
    job: Job, attempt: Attempt | None, here: Pace | None, pace: float, rate: float | None
) -> float:
    """What of an estimate is done, in seconds of the machines of now; no total tells it.

    By its steps, so that work which was lost and done again counts once; without any by the time
    up to what was saved, for what came since a loss would take away again.
    """
    if rate is None:
        return (job.saved_seconds or 0.0) / pace + _saved_seconds(job, attempt, here)
    parent = None if attempt is None else attempt.parent_step
    begun = job.begun_step
    if begun is None:
        begun = here.first_step - 1 if here is not None and parent is None else 0
    done = max(0, job.committed_step - begun)
    if here is not None:
        before = 0 if parent is None else max(0, parent - begun)
        done = max(done, before + here.last_step - here.first_step + 1)
    return done / rate


def _start_seconds(
    job: Job, attempt: Attempt | None, newest: Contact | None, now: datetime
) -> float:
    """Until the trainer steps: all of a start-up, what is left of one, or nothing."""
    usual = job.start_up_seconds or 0.0
    waited = unstepped_seconds(attempt, newest, now)
    if attempt is not None and attempt.state is AttemptState.RUNNING:
        return 0.0 if waited is None else start_up_left(usual, waited)
    return usual


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
    shape = gpu_shape_of_choice(told)
    return max(
        NOTHING_MEASURED.seconds_on(gpu_shape_of_choice(one), seconds, shape) for one in asked
    )


def _saved_seconds(job: Job, attempt: Attempt | None, here: Pace | None) -> float:
    """How long an attempt trained up to what it saved last, start-up excluded."""
    if attempt is None or attempt.trained_at is None or attempt.committed_at is None:
        return 0.0
    start = attempt.start_up_seconds if here is None else here.start_up_seconds
    if start is None:
        start = job.start_up_seconds or 0.0
    return max(0.0, (attempt.committed_at - attempt.trained_at).total_seconds() - start)


def _slowest_pace(spec: JobSpec) -> float:
    """How fast the slowest accepted machine works against the kind that work is told for; <= 1."""
    if spec.estimate is None or (spec.gpu_choices and work_alike(spec)):
        return 1.0
    told = NOTHING_MEASURED.of(gpu_shape_of_choice(spec.estimate.gpu))
    named = [gpu_shape_of_choice(one) for one in spec.gpu_choices if one.name is not None]
    speeds = [NOTHING_MEASURED.of(shape) for shape in named]
    if len(named) < max(1, len(spec.gpu_choices)):
        least = need_of(spec, Market.SPOT, 1).gpu_memory_gb_min
        fit = (one for one in GPU_MODELS if one.memory_gb >= least)
        speeds += [relative_speed(one.name, one.memory_gb) for one in fit]
    return min([1.0, *(speed / told for speed in speeds)])


def record_scaling(job: Job, serial_share: float | None) -> None:
    """How its gangs scale, as measured by now; None: as expected.

    Once seconds of ended attempts are kept it stays: they were counted with it.
    """
    if job.trained_seconds is None and job.saved_seconds is None:
        job.serial_share = serial_share


def record_training(job: Job, spec: JobSpec, attempt: Attempt) -> None:
    """Keep what an ending attempt trained, so that the next one's rate does not start from nothing.

    What its agent measured is on the attempt already (`attempt_measures`).
    """
    scaling = scaling_of_share(job.serial_share)
    pace = scaling.relative_pace(attempt.node_count, spec.nodes.most)
    found = pace_of(attempt)
    saved = _saved_seconds(job, attempt, found) * pace
    if saved > 0:
        job.saved_seconds = (job.saved_seconds or 0.0) + saved
    if found is None:
        return
    if job.begun_step is None:
        job.begun_step = found.first_step - 1 if attempt.parent_step is None else 0
    steps = (job.trained_steps or 0) + found.last_step - found.first_step
    job.trained_steps = min(STEPS_MAX, steps)
    job.trained_seconds = (job.trained_seconds or 0.0) + found.stepping_seconds * pace


def _measured(
    job: Job, spec: JobSpec, attempt: Attempt | None, newest: Contact | None
) -> _Measured:
    """What all attempts measured, each from its own first step on: slow to change, and so is what
    rests on it.
    """
    steps, seconds = job.trained_steps or 0, job.trained_seconds or 0.0
    here = pace_of(newest)
    if here is not None and attempt is not None:
        scaling = scaling_of_share(job.serial_share)
        steps += here.last_step - here.first_step
        seconds += here.stepping_seconds * scaling.relative_pace(
            attempt.node_count, spec.nodes.most
        )
    return _Measured(steps, seconds, here)
