"""What the page of a job shows, as one value made from the reports.

Lives here: figures and rows, ready for the template. Not here: sentences (`job_sentences`),
the table of machines (`machine_rows`),
geometry (`time_chart`, `metric_charts`), or the markup (`templates/job_live.html`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, Final
from uuid import UUID

from app.domain.lifecycle.entities import Contact, Job
from app.domain.lifecycle.job import (
    CLAIMABLE_JOB_STATES,
    JOB_TRANSITIONS,
    TERMINAL_JOB_STATES,
    JobState,
    StopCause,
    event_for_stop,
)
from app.domain.placement.placement import work_alike
from app.domain.placement.placement_decision import PlacementDecision
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.units.percent import progress_percent
from app.domain.wording.deadline_words import slack_sentence
from app.domain.wording.decision_words import ORDER_BY_PRICE, ORDER_BY_SPEED
from app.domain.wording.event_words import without_doubles
from app.orchestration.estimates.as_it_runs import AsItRuns, as_it_runs, left_of_facts
from app.orchestration.estimates.estimate_remaining import WorkLeft
from app.orchestration.gang.reserve_budget import reserve_window
from app.orchestration.placement.unmet_requirements import (
    UnmetRequirements,
    quoted_pools,
    unmet_requirements,
)
from app.storage.jobs.kept_estimate_rows import KeptEstimate
from app.storage.money.cost_figures import JobCost
from app.storage.reports.job_facts import JobFacts, LastCheckpoint
from app.storage.reports.page_read_models import JobTimeline
from app.web.charts.metric_charts import MetricChart, metric_charts
from app.web.charts.price_strip import Prices, pools_to_price
from app.web.charts.time_chart import LEGEND, ChartData, TimeChart, time_chart
from app.web.job.job_failure import JobFailure, job_failure
from app.web.job.machine_rows import MachineRow, machine_rows
from app.web.job.resume_outlook import ResumeOutlook, resume_outlook
from app.web.job.run_verdict import RunVerdict, run_verdict
from app.web.job.time_left import Countdown, ExpectedEnd, time_left
from app.web.job.why_here import DECISIONS_READ, WhyHere, why_here
from app.web.job_sentences import (
    TONES,
    before_first_step,
    gang_steps,
    head_sentence,
    next_look,
    steps_note,
)
from app.web.page_frame import PageParts

EVENTS_SHOWN: Final = 40
POINTS_MAX: Final = 400
_QUICK_SECONDS, _SLOW_SECONDS = 1, 5


@dataclass(frozen=True)
class CostShare:
    """Where money went: `x` and `share` are percentages of everything booked."""

    name: str
    microusd: int
    x: float
    share: float


@dataclass(frozen=True)
class Steps:
    """How far the job is. `percent` is None while the total is not known; doing: what it does
    before its first step, "" after it; end: when the work is done, None while that is not known;
    of_gang: how far the slowest machine of several is, "" where none lags.
    """

    step: int
    total_steps: int | None
    percent: float | None
    steps_per_second: float | None
    doing: str
    end: ExpectedEnd | None
    of_gang: str


@dataclass(frozen=True)
class JobDetails:
    """Everything on the page but the logs."""

    job: Job
    project_name: str
    now: datetime
    tone: str
    why: str
    replacing: str | None
    next_look: str | None
    refresh_seconds: int | None
    progress: Steps
    time: Countdown
    failure: JobFailure | None
    resume: ResumeOutlook | None
    attempts: int
    interruptions: int
    last_checkpoint: LastCheckpoint | None
    spent_microusd: int
    budget_microusd: int | None
    waived_microusd: int
    microusd_per_hour: int
    billing_speed: int
    machines: tuple[MachineRow, ...]
    earlier_machines: int
    chart: TimeChart | None
    curves: tuple[MetricChart, ...]
    verdict: RunVerdict | None
    cost: JobCost | None
    shares: tuple[CostShare, ...]
    events: tuple[Mapping[str, Any], ...]
    unmet: UnmetRequirements | None
    why_here: WhyHere
    pool_order: str
    estimate: KeptEstimate | None
    can_cancel: bool
    can_pause: bool
    can_resume: bool

    @property
    def budget_share(self) -> float | None:
        """How much of the budget is spent, 0 to 1."""
        budget = self.budget_microusd
        return min(1.0, self.spent_microusd / budget) if budget else None

    @property
    def is_unbooked(self) -> bool:
        """Whether the job had machines, and nothing of them is booked as yet."""
        ran = any(row.instance.launched_at is not None for row in self.machines)
        open_yet = self.job.cost_final_at is None
        return ran and open_yet and not self.spent_microusd and not self.waived_microusd

    @property
    def steps_note(self) -> str:
        """Why not every machine of a gang has a step in the table; "" where each has one."""
        gang = [row.step for row in self.machines if row.live] if self.job.node_count > 1 else []
        return steps_note(gang)

    @property
    def so_far(self) -> str:
        """What stands behind each total of a job that may still spend; "" once it has ended."""
        return " so far" if self.job.ended_at is None else ""

    @property
    def final_saved_ratio(self) -> Fraction | None:
        """The headline, as the list of jobs has it: None until the job's cost is final."""
        return None if self.job.cost_final_at is None else self.net_saved_ratio

    @property
    def net_saved_ratio(self) -> Fraction | None:
        """How much less this has cost so far than the same work on demand."""
        return None if self.cost is None else self.cost.statement.net_saved_ratio


def job_view(parts: PageParts, job_id: UUID) -> JobDetails:
    """Read everything and put it together. Raises NotFound."""
    now = parts.runtime.clock.now()
    facts = parts.jobs.job(job_id)
    timeline = parts.reports.timeline(job_id, now)
    points = parts.reports.recent_metrics(job_id, POINTS_MAX)
    cost = parts.costs.job_cost(job_id)
    job = facts.job
    with parts.runtime.begin() as uow:
        kept = uow.kept_estimates.of(job_id)
        decisions = uow.decisions.of_job(job_id, DECISIONS_READ)
    contacts = [one.contact for one in facts.machines if one.contact is not None]
    spec = parse_spec(job.spec)
    newest = decisions[0].decision if decisions else None
    left = left_of_facts(facts, spec, now)
    running = as_it_runs(facts, left, now)
    progress = _progress(facts, left, running, now)
    waits_fresh = job.state in CLAIMABLE_JOB_STATES and not _ever_ran(timeline)
    unmet = _unmet(parts, job, spec, newest, now)
    speed = max((lane.instance.billing_speed for lane in timeline.lanes), default=1)
    return JobDetails(
        job=job,
        project_name=facts.project_name,
        now=now,
        tone=TONES[job.state],
        why=head_sentence(facts, now),
        replacing=facts.replacing,
        next_look=next_look(job, now),
        refresh_seconds=_refresh_seconds(job),
        progress=progress,
        time=time_left(
            job,
            progress.end,
            now,
            slack_sentence=slack_sentence(job, spec, now, newest),
            safe_moment_matters=unmet is None or bool(unmet.offers),
            decision=newest,
        ),
        failure=job_failure(parts, job, timeline),
        resume=_resume(parts, facts, spec, left, unmet),
        attempts=facts.counts.attempts,
        interruptions=facts.counts.interruptions,
        last_checkpoint=facts.last_checkpoint,
        spent_microusd=facts.budget.spent_microusd,
        budget_microusd=facts.budget.cap_microusd,
        waived_microusd=facts.waived_microusd,
        microusd_per_hour=facts.microusd_per_hour,
        billing_speed=speed,
        machines=machine_rows(facts, timeline, cost, now),
        earlier_machines=timeline.earlier_machines,
        chart=None
        if waits_fresh
        else time_chart(_story(parts, job, timeline, points, contacts, progress, now)),
        curves=metric_charts(points),
        verdict=run_verdict(contacts),
        cost=cost,
        shares=() if cost is None else _shares(cost),
        events=tuple(without_doubles(parts.reports.recent_events(job_id, EVENTS_SHOWN))),
        unmet=unmet if job.state in CLAIMABLE_JOB_STATES else None,
        why_here=why_here(job, decisions, [lane.instance for lane in timeline.lanes], running),
        pool_order=ORDER_BY_PRICE if work_alike(spec) else ORDER_BY_SPEED,
        estimate=None if kept is None or kept.cost_p50_microusd is None else kept,
        can_cancel=_possible(job, StopCause.USER),
        can_pause=job.state is not JobState.STOPPING and _possible(job, StopCause.PAUSE),
        can_resume=job.state is JobState.PAUSED,
    )


def _story(
    parts: PageParts,
    job: Job,
    timeline: JobTimeline,
    points: Sequence[Mapping[str, Any]],
    contacts: list[Contact],
    progress: Steps,
    now: datetime,
) -> ChartData:
    """What the chart draws."""
    return ChartData(
        timeline=timeline,
        points=points,
        now=now,
        live=job.state not in TERMINAL_JOB_STATES and job.state is not JobState.PAUSED,
        step=progress.step,
        step_at=_step_at(contacts, progress.step),
        total_steps=progress.total_steps,
        eta_at=None if progress.end is None else progress.end.at,
        deadline_at=job.deadline_at,
        last_safe_at=job.last_safe_at,
        prices=_prices(parts, timeline),
    )


def _unmet(
    parts: PageParts, job: Job, spec: JobSpec, newest: PlacementDecision | None, now: datetime
) -> UnmetRequirements | None:
    """What a waiting job waits for, and a paused one will need; None for any other."""
    if job.state is JobState.PAUSED:
        return unmet_requirements(
            quoted_pools(parts.jobs, spec), spec, now, job, limits=parts.runtime.limits
        )
    if job.state not in CLAIMABLE_JOB_STATES:
        return None
    rows, limits = quoted_pools(parts.jobs, spec), parts.runtime.limits
    return unmet_requirements(rows, spec, now, job, newest, limits)


def _resume(
    parts: PageParts,
    facts: JobFacts,
    spec: JobSpec,
    left: WorkLeft,
    unmet: UnmetRequirements | None,
) -> ResumeOutlook | None:
    """What a paused job will need; None for any other."""
    if facts.job.state is not JobState.PAUSED or unmet is None:
        return None
    saved, budget = facts.last_checkpoint, facts.budget
    window = reserve_window(parts.runtime.limits, Fraction(1))
    return resume_outlook(facts.job, left, saved, unmet, budget, spec.nodes.least, window)


def _prices(parts: PageParts, timeline: JobTimeline) -> Prices:
    """Recorded prices of the pools that the machines shown were in."""
    used = [one.instance.pool for one in timeline.lanes if one.instance.pool is not None]
    if not used:
        return {}
    since = min(one.instance.requested_at for one in timeline.lanes)
    return parts.reports.pool_prices(pools_to_price(used), since)


def _possible(job: Job, cause: StopCause) -> bool:
    return JOB_TRANSITIONS.allows(job.state, event_for_stop(job.state, cause))


def _refresh_seconds(job: Job) -> int | None:
    """How often the page looks again; None once nothing can change any more."""
    if job.state in TERMINAL_JOB_STATES:
        return None if job.cost_final_at is not None else _SLOW_SECONDS
    return _SLOW_SECONDS if job.state is JobState.PAUSED else _QUICK_SECONDS


def _progress(facts: JobFacts, left: WorkLeft, running: AsItRuns | None, now: datetime) -> Steps:
    job, percent = facts.job, None
    if job.state is JobState.SUCCEEDED:
        percent = 100.0
    elif left.total_steps:
        percent = progress_percent(left.step, left.total_steps)
    going = job.state in (JobState.RUNNING, JobState.STARTING, JobState.RECOVERING)
    seconds, end = left.to_the_end if going else None, None
    if seconds is not None:
        ends_at = now + timedelta(seconds=seconds)
        if running is not None:
            ends_at, seconds = running.ends_at, running.remaining_seconds
        end = ExpectedEnd(ends_at, seconds, left.start_seconds, left.source == "measured")
    return Steps(
        step=left.step,
        total_steps=left.total_steps,
        percent=percent,
        steps_per_second=left.steps_per_second if job.state is JobState.RUNNING else None,
        doing="" if left.step else before_first_step(facts),
        end=end,
        of_gang=gang_steps(facts, left.step),
    )


def _step_at(contacts: list[Contact], step: int) -> datetime | None:
    found = [one.step_at for one in contacts if one.step == step and one.step_at is not None]
    return max(found, default=None)


def _ever_ran(timeline: JobTimeline) -> bool:
    return any(lane.instance.launched_at is not None for lane in timeline.lanes)


def _shares(cost: JobCost) -> tuple[CostShare, ...]:
    """Activities with an amount, in the order of the legend."""
    amounts = {name.value: amount for name, amount in cost.statement.by_activity.items() if amount}
    total = sum(amounts.values())
    order = [*LEGEND, *sorted(set(amounts) - set(LEGEND))]
    shares: list[CostShare] = []
    x = 0.0
    for name in order:
        if name not in amounts:
            continue
        share = 100 * amounts[name] / total if total > 0 else 0.0
        shares.append(CostShare(name, amounts[name], round(x, 3), round(share, 3)))
        x += share
    return tuple(shares)
