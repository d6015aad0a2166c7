"""Why a job's machines are where they are: its decisions, its slack, and what it waits for.

Lives here: the route and the shape of its answer. Not here: the decisions themselves
(`placement.placement_decision`), or what would unblock a job (`placement.unmet_requirements`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.jobs.explanation_shapes import Explanation
from app.api.jobs.job_document import job_document
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import Reader
from app.api.serving.json_answers import as_json
from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobState
from app.domain.placement.placement import work_alike
from app.domain.placement.placement_decision import PoolVerdict
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.trainer_work import described_work
from app.domain.wording.deadline_words import slack_sentence
from app.domain.wording.decision_words import reason_now, sentence_now
from app.orchestration.estimates.as_it_runs import AsItRuns, as_it_runs, left_of_facts
from app.orchestration.placement.unmet_requirements import (
    UnmetRequirements,
    quoted_pools,
    unmet_requirements,
)
from app.storage.jobs.placement_decision_rows import KeptDecision

router = APIRouter(prefix="/api/v1/jobs/{job}", tags=["job history"])

_DECISIONS_MAX: Final = 100
_END: Final = ("eta_at", "eta_from")
_HEAD: Final = (
    "id", "name", "state", "why", "end_reason", "paused_by_budget", "node_count", "market_mode",
    "deadline",
)  # fmt: skip


@router.get("/explanation", response_model=None, responses={200: {"model": Explanation}})
def explanation(
    request: Request,
    caller: Reader,
    job: str,
    limit: Annotated[int, Query(ge=1, le=_DECISIONS_MAX, description="Newest decisions")] = 10,
) -> Response:
    """Why the job is where it is: decisions with every pool, slack, and what would end a wait."""
    parts = parts_of(request)
    job_id = parts.reports.job_id(caller.project_id, job)
    facts = parts.reports.job(job_id)
    now = parts.runtime.clock.now()
    with parts.runtime.begin() as uow:
        decisions = uow.decisions.of_job(job_id, limit)
        ordinals = uow.attempts.ordinals(job_id)
    whole = job_document(facts, now)
    spec = parse_spec(facts.job.spec)
    running = as_it_runs(facts, left_of_facts(facts, spec, now), now)
    machines = [one.instance for one in facts.machines]
    newest = decisions[0].decision if decisions else None
    slack = slack_sentence(facts.job, spec, now, newest)
    unmet = None
    if facts.job.state in CLAIMABLE_JOB_STATES:
        quoted, limits = quoted_pools(parts.reports, spec), parts.runtime.limits
        unmet = unmet_requirements(quoted, spec, now, facts.job, newest, limits)
    return as_json(
        {
            **{name: whole[name] for name in _HEAD},
            **{name: whole["progress"][name] for name in _END},
            "as_it_runs": None if running is None else vars(running),
            "billing_speed": max(
                [1, *(one.decision.billing_speed for one in decisions)]
                + [one.billing_speed for one in machines]
            ),
            "compares_speed": not work_alike(spec),
            "slack": slack,
            "work_by_formula": _by_formula(spec),
            "waiting": None if unmet is None else _waiting(facts.job, whole["why"], unmet),
            "decisions": [
                _decision(one, until, ordinals, facts.job, running)
                | {
                    "sentence_now": sentence_now(
                        one.decision, facts.job, machines, newest=until is None
                    )
                }
                for one, until in zip(decisions, _held_until(facts.job, decisions), strict=True)
            ],
        }
    )


def _by_formula(spec: JobSpec) -> dict[str, Any] | None:
    """How long the whole run was expected to take where its author gave no `estimate`."""
    described = described_work(spec) if spec.estimate is None else None
    if described is None:
        return None
    return {"seconds": described.estimate.seconds, "sentence": described.sentence}


def _waiting(job: Job, why: str | None, unmet: UnmetRequirements) -> dict[str, Any]:
    return {
        "reason": why,
        "next_look_at": job.claimable_at,
        "needs": unmet.needs,
        "unblocked_by": [vars(way) for way in unmet.ways_out],
        "nearest": [
            {
                "pool": row.pool,
                "price_microusd_per_hour": row.microusd_per_hour,
                "on_demand_ratio": row.on_demand_ratio,
                "available": row.available,
                "fits": row.fits,
                "why": row.verdict,
            }
            for row in unmet.offers
        ],
    }


def _held_until(job: Job, decisions: Sequence[KeptDecision]) -> list[datetime | None]:
    """Until when each held, newest first: until the next one, or until the job came to rest; None
    for one that holds.
    """
    later = [one.decision.decided_at for one in decisions]
    at_rest = job.ended_at or (job.paused_at if job.state is JobState.PAUSED else None)
    return [at_rest, *later][: len(decisions)]


def _decision(
    kept: KeptDecision,
    held_until_at: datetime | None,
    ordinals: Mapping[int, int],
    job: Job,
    running: AsItRuns | None,
) -> dict[str, Any]:
    made = vars(kept.decision)
    return {
        "decision_no": kept.decision_no,
        "held_until_at": held_until_at,
        "last_confirmed_at": kept.last_confirmed_at,
        **made,
        "node_count": kept.decision.node_count or job.node_count,
        "ordinal": ordinals.get(kept.decision.fence or 0),
        "unblock": None if kept.decision.unblock is None else vars(kept.decision.unblock),
        "pools": [_pool(one, kept.last_confirmed_at, running) for one in kept.decision.pools],
    }


def _pool(row: PoolVerdict, at: datetime, running: AsItRuns | None) -> dict[str, Any]:
    """Its stored fields, and those that follow from them and the instant of the figures."""
    trains_there = running is not None and row.pool in running.pools
    finish, full_price = row.expected_finish_seconds, row.on_demand_microusd_per_hour
    return {
        **vars(row),
        "why_now": reason_now(row, at, trains_there=trains_there),
        "on_demand_ratio": row.price_microusd_per_hour / full_price if full_price > 0 else None,
        "quote_age_seconds": max(0.0, (at - row.quoted_at).total_seconds()),
        "expected_finish_at": None if finish is None else at + timedelta(seconds=finish),
    }
