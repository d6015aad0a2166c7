"""The values of a job's `env` as people see them: hidden, unless the spec says `env_visible`.

A hidden value is told as `*** of JOB`. Whoever submits a spec with that, as a copy has it, gets the
value of that job of the same project without seeing it. Not here: secrets, which no spec holds
(`app.orchestration.secrets`).
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from app.domain.lifecycle.entities import Job
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.spec_document import SpecDocument
from app.domain.units.errors import SpecError, SpecProblem
from app.storage.unit_of_work import UnitOfWork

_HIDDEN: Final = re.compile(r"\*\*\* of ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.ASCII)


def shown_spec(job: Job) -> SpecDocument:
    """The job's spec for people."""
    return with_hidden_env(job.spec, job.id)


def with_hidden_env(spec: SpecDocument, job_id: UUID) -> SpecDocument:
    """A job's spec, or a part of it, with the values of `env` told as hidden."""
    shown = spec.copy()
    if shown.get("env") and not shown.get("env_visible"):
        shown["env"] = {
            name: value if _HIDDEN.fullmatch(value) else f"*** of {job_id}"
            for name, value in shown["env"].items()
        }
    return shown


def has_hidden_env(spec: JobSpec) -> bool:
    """Whether a value is told as another job's."""
    return any(_HIDDEN.fullmatch(value) for value in spec.env.values())


def with_env_of_jobs(uow: UnitOfWork, project_id: UUID, spec: JobSpec) -> JobSpec:
    """The spec with the values in place of what stands for them.

    Raises SpecError for a job that the project does not have, or that has no such variable.
    """
    env, problems = dict(spec.env), []
    for name, written in spec.env.items():
        meant = _HIDDEN.fullmatch(written)
        if meant is None:
            continue
        job = uow.jobs.get(UUID(meant[1]))
        known = {} if job is None or job.project_id != project_id else job.spec.get("env", {})
        if name in known:
            env[name] = known[name]
            continue
        told = (
            f"env.{name}: {written!r} stands for the hidden value of a job, and no such job of "
            "this project has the variable; write the value"
        )
        problems.append(SpecProblem(f"env.{name}", told))
    if problems:
        raise SpecError(problems)
    return spec.model_copy(update={"env": env})
