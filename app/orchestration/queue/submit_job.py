"""Submit a job: what is stored for it, which name it gets, and what an idempotency key means.

Lives here: the row, the choice of a name and the answers to a clash, shared by the API's hot route
(`accept`, awaiting its pool) and by `submit_job` (inside a unit of work). Not here: the rules of a
spec (`app.domain.spec.job_spec`), or the statement (`app.storage.jobs.submission_batch`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from app.domain.access.principal import Principal
from app.domain.launch_limits.limit_use import LimitUse
from app.domain.lifecycle.events import Actor
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market
from app.domain.placement.placement import capacity_key
from app.domain.projects.resolve_spec import ResolvedSpec, as_written
from app.domain.spec.job_spec import JobSpec, digest_of, normal_text, spec_digest
from app.domain.spec.names import DEFAULT_NAME_COUNT, NAME_LENGTH_MAX, default_name
from app.domain.units.errors import CommandRefused
from app.domain.units.instants import format_instant
from app.domain.units.money import format_usd
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.end_attempt import CLAIM_CONTROLLER, PRIORITY_STEP
from app.ports.entropy import Entropy
from app.storage.jobs.hot_statements import HotStatements
from app.storage.jobs.job_submission import KnownJob, Submission, Submitted
from app.storage.unit_of_work import UnitOfWork

IDEMPOTENCY_KEY_LENGTH_MAX = 200
_NAMES_TRIED_MAX = 8
_SUGGESTIONS_MAX = 50


async def accept(
    store: HotStatements,
    entropy: Entropy,
    now: datetime,
    principal: Principal,
    resolved: ResolvedSpec,
    idempotency_key: str | None = None,
) -> Submitted:
    """Store a new job, or find the one that the key has made. The caller rings the controllers.

    Raises SpecError (the deadline has passed) and CommandRefused (name taken, idempotency key used
    for another spec, the queue is full).
    """
    project_id, actor = principal.project_id, principal.actor
    spec, submission = resolved.spec, None
    for _ in range(_NAMES_TRIED_MAX):
        submission = build_submission(
            resolved, project_id, actor, now, entropy, idempotency_key, submission, principal
        )
        if await store.submit(submission):
            return _created(submission)
        if idempotency_key is not None:
            known = await store.known_job(project_id, idempotency_key)
            if known is not None:
                return replay(known, submission.idempotency_digest)
        _require_room(await store.full_queue(project_id))
        if spec.name is not None:
            taken = await store.taken_names(project_id, name_candidates(spec.name))
            raise name_taken(spec.name, taken)
    raise _no_free_name()


def submit_job(
    uow: UnitOfWork,
    runtime: Runtime,
    project_id: UUID,
    spec: JobSpec,
    actor: Actor,
    idempotency_key: str | None = None,
) -> Submitted:
    """As `accept`, inside a unit of work, of a spec that is stored as it was written.

    The queue's controller is rung after its commit.
    """
    resolved, submission = as_written(spec), None
    for _ in range(_NAMES_TRIED_MAX):
        submission = build_submission(
            resolved, project_id, actor, uow.now, runtime.entropy, idempotency_key, submission
        )
        if uow.jobs.submit(submission):
            uow.notify_after_commit(CLAIM_CONTROLLER)
            return _created(submission)
        if idempotency_key is not None:
            known = uow.jobs.known_job(project_id, idempotency_key)
            if known is not None:
                return replay(known, submission.idempotency_digest)
        _require_room(uow.jobs.full_queue(project_id))
        if spec.name is not None:
            taken = uow.jobs.taken_names(project_id, name_candidates(spec.name))
            raise name_taken(spec.name, taken)
    raise _no_free_name()


def build_submission(
    resolved: ResolvedSpec,
    project_id: UUID,
    actor: Actor,
    now: datetime,
    entropy: Entropy,
    idempotency_key: str | None,
    earlier: Submission | None = None,
    principal: Principal | None = None,
) -> Submission:
    """Every stored value of a new job. `earlier`: the same submission under a name that was taken.

    principal: who owns the job and is named in the audit; None for nobody, as in a simulation.
    Raises SpecError when the deadline is not ahead of `now`.
    """
    spec = resolved.spec
    spec.require_deadline_ahead(now)
    text = earlier.spec_json if earlier else normal_text(spec)
    digest = earlier.spec_digest if earlier else digest_of(text)
    deadline_at = spec.deadline_at(now)
    max_wait_at = None
    if spec.max_wait_seconds is not None:
        max_wait_at = now + timedelta(seconds=spec.max_wait_seconds)
    on_demand = spec.effective_market() == "on_demand"
    origin = None if principal is None else principal.origin
    return Submission(
        job_id=entropy.new_id(),
        budget_id=entropy.new_id(),
        project_id=project_id,
        name=spec.name or default_name(int(entropy.uniform() * DEFAULT_NAME_COUNT)),
        spec_json=text,
        spec_digest=digest,
        priority=spec.priority,
        node_count=spec.node_count,
        capacity_key=capacity_key(spec),
        market_mode=(Market.ON_DEMAND if on_demand else Market.SPOT).value,
        submitted_at=now,
        queue_rank_at=now - spec.priority * PRIORITY_STEP,
        deadline_at=deadline_at,
        max_wait_at=max_wait_at,
        max_duration_seconds=spec.max_duration_seconds,
        timer_at=min((at for at in (deadline_at, max_wait_at) if at is not None), default=None),
        total_steps=None if spec.trainer is None else spec.trainer.steps,
        budget_microusd=spec.budget_microusd,
        idempotency_key=idempotency_key,
        idempotency_digest=None if idempotency_key is None else _digest_of(resolved, digest),
        actor=str(actor),
        message=_message(spec, deadline_at),
        spec_sources=resolved.sources_json(),
        owner_key_id=None if principal is None else principal.key_id,
        owner_person_id=None if principal is None else principal.person_id,
        audit_id=None if principal is None else entropy.new_id(),
        address=None if origin is None else origin.address,
        request_id=None if origin is None else origin.request_id,
    )


def _digest_of(resolved: ResolvedSpec, digest: str) -> str:
    """Of what was asked: a repetition is one also after the project's rules have changed."""
    return spec_digest(resolved.written) if resolved.sources else digest


def replay(known: KnownJob, digest: str | None) -> Submitted:
    """The answer for a key that has made a job. Raises CommandRefused for another spec."""
    if known.idempotency_digest != digest:
        raise CommandRefused(
            f"This idempotency key has already submitted another spec, as job {known.name!r}; "
            "use a new key for a new job."
        )
    return Submitted(
        known.job_id, known.name, known.state, known.submitted_at, known.deadline_at, False
    )


def name_candidates(name: str) -> list[str]:
    """Names to offer in place of one that is taken, best first."""
    numbers = range(2, 2 + _SUGGESTIONS_MAX)
    return [f"{name[: NAME_LENGTH_MAX - len(f'-{n}')].rstrip('-')}-{n}" for n in numbers]


def name_taken(name: str, taken: set[str]) -> CommandRefused:
    """The refusal of a name, with the next free one."""
    free = next((one for one in name_candidates(name) if one not in taken), None)
    hint = f"{free!r} is free" if free else "choose another name, or leave `name` out"
    return CommandRefused(f"name: this project has a job named {name!r} already; {hint}.", "name")


def _require_room(full: LimitUse | None) -> None:
    """Raises CommandRefused for a limit of queued jobs that lets no other one in."""
    if full is not None:
        raise CommandRefused(full.full_queue)


def _created(submission: Submission) -> Submitted:
    return Submitted(
        submission.job_id,
        submission.name,
        JobState.QUEUED.value,
        submission.submitted_at,
        submission.deadline_at,
        True,
    )


def _no_free_name() -> CommandRefused:
    return CommandRefused("No free name was found for this job; give it one.", "name")


def _message(spec: JobSpec, deadline_at: datetime | None) -> str:
    what = "a command" if spec.trainer is None else f"{spec.trainer.model} on {spec.trainer.data}"
    machines = "1 machine" if spec.node_count == 1 else f"{spec.nodes} machines"
    limits = ""
    if spec.budget_microusd is not None:
        limits += f", budget {format_usd(spec.budget_microusd)}"
    if deadline_at is not None:
        limits += f", deadline {format_instant(deadline_at)}"
    return f"Submitted: {what} on {machines}{limits}."
