"""The secrets that a job's spec names, at its submission: whether its author may use them.

A name means a secret of the job's own project; there is no way to write another project's. One of a
cloud must be within what the project's rules allow. Not here: the spec's own form
(`app.domain.spec.job_spec_secrets`), or what machines are given (`deliver_secrets`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from app.domain.access.principal import Principal
from app.domain.projects.read_rules import parse_rules
from app.domain.spec.job_spec import JobSpec
from app.domain.units.errors import ProblemKind, SpecError, SpecProblem
from app.orchestration.frame.runtime import Runtime
from app.orchestration.secrets.allow_cloud_secrets import cloud_name_of, not_allowed
from app.orchestration.secrets.manage_secrets import known_keys, named_secrets
from app.storage.unit_of_work import UnitOfWork


def require_named_secrets(runtime: Runtime, principal: Principal, spec: JobSpec) -> None:
    """Raises SpecError for secrets that the project lacks, that are not for the principal, which is
    told as the same, and that cannot be read, as their key is missing; for those of a cloud that
    the project's rules do not allow.
    """
    if not spec.names_secrets:
        return
    with runtime.begin() as uow:
        known = {row.name: row for row in named_secrets(uow, principal)}
        problems = list(_cloud_problems(uow, principal, spec))
    keys = known_keys(runtime)
    for name in spec.secret_names:
        field = "image_secret" if name == spec.image_secret else f"secrets.{name}"
        row = known.get(name)
        if row is None:
            told = f"{field}: {_unknown(principal, name, list(known))}"
            problems.append(SpecProblem(field, told, ProblemKind.NOT_ALLOWED))
        elif row.key_id not in keys:
            told = (
                f"{field}: the server cannot read this secret, as its key is missing: whoever runs "
                "it finds the reason with `lowtide secret verify`"
            )
            problems.append(SpecProblem(field, told, ProblemKind.IMPOSSIBLE))
    if problems:
        raise SpecError(problems)


def _cloud_problems(uow: UnitOfWork, principal: Principal, spec: JobSpec) -> Iterator[SpecProblem]:
    if not spec.cloud_secrets:
        return
    rules = parse_rules(uow.rules.of(principal.project_id).document)
    for use in spec.cloud_secrets:
        told = not_allowed(rules, principal.project_name, cloud_name_of(use))
        if told is not None:
            field = f"secrets.{use.name}"
            yield SpecProblem(field, f"{field}: {told}", ProblemKind.NOT_ALLOWED)


def _unknown(principal: Principal, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"set it with `lowtide secret set {name}`"
    return f"the project {principal.project_name!r} has no such secret that you may use; {hint}"
