"""Whether a job that is submitted can keep its deadline and its budget, said beforehand.

Lives here: the refusal of a promise that nothing can keep, the risk in one that probably will not
be kept, and which promises were accepted a moment ago. Not here: the figures (`estimate_job`), or
storing the job (`submit_job`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from app.domain.estimate.job_estimate import PATHS
from app.domain.spec.job_spec import JobSpec, spec_digest
from app.domain.spec.trainer_work import with_known_work
from app.domain.units.durations import exact_duration, whole_minutes
from app.domain.units.errors import Advice, ProblemKind, SpecError
from app.domain.units.percent import chances_text, percent
from app.orchestration.estimates.estimate_job import JobEstimate, ask, estimate_job
from app.orchestration.frame.runtime import Runtime
from app.ports.clock import Clock

RISKY_CHANCE: Final = 0.9
"""A promise that holds in a smaller share of simulated runs is made only when someone insists."""

_PATHS: Final = 200
"""Fewer than for a person who asks: many jobs may be submitted at once."""

_SEED: Final = 0

_ACCEPTED_SECONDS: Final = 10.0
"""Prices are read every 15 or 60 seconds by default: the answer would mostly be the same."""

_ACCEPTED_MAX: Final = 1_000


PromiseKey = tuple[UUID, bool, str]


def promise_key(project_id: UUID, spec: JobSpec, accept_risk: bool) -> PromiseKey:
    """What a promise rests on, but for the time; name and labels change nothing in it."""
    unnamed = spec.model_copy(update={"name": None, "labels": {}})
    return project_id, accept_risk, spec_digest(unnamed)


class AcceptedPromises:
    """Promises that were accepted in the last ten seconds. Not for several threads at once.

    A sweep or a script that submits the same work many times has it simulated once in that time. A
    refused one is simulated again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[PromiseKey, datetime] = {}

    def has(self, key: PromiseKey) -> bool:
        """Whether this promise was accepted a moment ago."""
        until = self._until.get(key)
        return until is not None and self._clock.now() < until

    def add(self, key: PromiseKey) -> None:
        """It was accepted: for ten seconds it need not be simulated."""
        if len(self._until) >= _ACCEPTED_MAX:
            self._until.clear()
        self._until[key] = self._clock.now() + timedelta(seconds=_ACCEPTED_SECONDS)


def evaluate_promise(
    runtime: Runtime, project_id: UUID, spec: JobSpec, *, accept_risk: bool = False
) -> None:
    """Nothing where deadline and budget will hold, or the risk is accepted, or none was given.

    Work that no one can tell beforehand is not weighed. Raises SpecError for a risk, and for a
    deadline that even on-demand machines cannot meet: by the spec's own estimate also when the risk
    is accepted, while the trainer's formula may err.
    """
    known = with_known_work(spec)
    if not spec.has_limit or known[0].estimate is None:
        return
    if accept_risk:
        if spec.estimate is not None:
            ask(runtime, project_id, spec)
        return
    found, source = estimate_known_work(
        runtime, project_id, spec, _SEED, compare=False, paths=_PATHS, known=known
    )
    risk = risk_of(spec, found)
    if risk is not None:
        field, sentence = risk
        raise _risky(f"{field}: {sentence}", field, None if spec.estimate is not None else source)


def estimate_known_work(
    runtime: Runtime,
    project_id: UUID,
    spec: JobSpec,
    seed: int,
    *,
    compare: bool = True,
    paths: int = PATHS,
    known: tuple[JobSpec, str] | None = None,
    accept_risk: bool = False,
) -> tuple[JobEstimate, str]:
    """The estimate of a spec, by the trainer's formula where it has none; and the work's source.

    Parameters and errors as of `estimate_job`; what only the formula calls impossible is a risk.
    known: what `with_known_work` has found of the spec already. accept_risk: a risk is still
    raised, for there are no figures, but without the advice to accept it.
    """
    told, source = with_known_work(spec) if known is None else known
    try:
        return estimate_job(runtime, project_id, told, seed, compare=compare, paths=paths), source
    except SpecError as error:
        problem = error.problems[0]
        if spec.estimate is not None or problem.kind is not ProblemKind.IMPOSSIBLE:
            raise
        raise _risky(problem.message, problem.field, source, advise=not accept_risk) from error


def _risky(message: str, field: str, formula: str | None, *, advise: bool = True) -> SpecError:
    """formula: where the work comes from, if the spec does not tell it."""
    by = f" (the work is by {formula}; `estimate` in the spec replaces it)" if formula else ""
    advice = Advice.ACCEPT_RISK if advise else None
    return SpecError.of(f"{message}{by}", field, ProblemKind.RISKY, advice=advice)


def risk_of(spec: JobSpec, found: JobEstimate) -> tuple[str, str] | None:
    """The field that will probably not hold, and why; None where all will, or nothing is known."""
    own = next(iter(found.estimates), None)
    if own is None:
        return None
    pools = [*found.pools, *([found.on_demand] if found.on_demand else [])]
    work_seconds = found.work_seconds / max(pool.speed for pool in pools)
    limit = spec.max_duration_seconds
    if limit is not None and limit < work_seconds:
        return "max_duration", (
            f"the job would be stopped after {exact_duration(limit)}, and even "
            f"without an interruption it needs {whole_minutes(work_seconds)}"
        )
    if own.kept_chance >= RISKY_CHANCE:
        return None
    chances = (own.deadline_chance, own.budget_chance)
    least = min(one for one in chances if one is not None)
    field = "deadline" if least == own.deadline_chance else "budget_usd"
    both = "" if None in chances else f" ({percent(own.kept_chance)} both)"
    told = (
        f"the chance of keeping the limits is too low: {chances_text(*chances)}{both} of the "
        f"simulated runs, where at least {percent(RISKY_CHANCE)} is required"
    )
    if own.deadline_chance is not None and found.on_demand is None:
        soonest = whole_minutes(found.restart_seconds + work_seconds)
        told += (
            "; on spot alone, even without an interruption, it would end in "
            f"{soonest} at the earliest"
        )
    return field, told
