"""The part of a job spec that a project gives to jobs which leave it out.

Lives here: what such a part may hold, and how it goes under a job's own spec. Not here: the rules
beside it (`project_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.job_spec_problems import MAX_PROBLEMS
from app.domain.spec.spec_value import kind_of
from app.domain.units.errors import ProblemKind, SpecError, SpecProblem

_OWN: Final = (
    "name", "project", "trainer", "run", "workdir", "estimate", "secrets", "image_secret",
)  # fmt: skip
"""What only a job itself can say."""

_SECTIONS: Final = ("resources", "checkpoint", "env", "labels", "inputs", "outputs")
"""Mappings that are merged key by key."""

STAND_IN: Final[Mapping[str, object]] = {"run": "true", "estimate": {"hours": 1}}
"""What makes a spec of a part of one: some work, and an estimate of it for its limits."""


def defaultable_fields() -> tuple[str, ...]:
    """The fields of a job spec that a project may give, in their order."""
    fields = (info.alias or name for name, info in JobSpec.model_fields.items())
    later = {"keep_on_failure"}
    return tuple(name for name in fields if name not in later.union(_OWN))


def read_defaults(data: object) -> dict[str, object]:
    """The defaults in normal form. Raises SpecError; its fields begin with `defaults`."""
    if not isinstance(data, Mapping):
        raise SpecError.of(
            f"defaults: must be a mapping of fields of a job spec, not {kind_of(data)}", "defaults"
        )
    known = defaultable_fields()
    refused = [str(name)[:40] for name in data if name not in known]
    if refused:
        raise SpecError([_unknown(name, known) for name in refused[:MAX_PROBLEMS]])
    try:
        spec = parse_spec({**data, **STAND_IN})
    except SpecError as error:
        raise SpecError([_inside(one) for one in error.problems]) from error
    if isinstance(spec.deadline, datetime):
        raise SpecError.of(
            "defaults.deadline: must be a duration, like 36h: a time would pass for later jobs",
            "defaults.deadline",
        )
    found: dict[str, object] = {**spec.to_written_json()}
    return {name: found[name] for name in data if name in found}


def with_defaults(
    spec: JobSpec, defaults: Mapping[str, object]
) -> tuple[dict[str, object], list[str]]:
    """What a job's author wrote over the defaults, as a document; and which fields it took of them.

    A default gives way to what cannot be with it: `patience` to a deadline, a deadline to
    `patience`, and an interval of checkpoints to one in steps and to a command of one's own.
    """
    own: dict[str, object] = {**spec.to_written_json()}
    merged, taken = own.copy(), []
    fitting = _fitting(spec, defaults)
    for name, value in fitting.items():
        if name in _SECTIONS:
            inside = section_of(own, name)
            given = section_of(fitting, name)
            added = {key: one for key, one in given.items() if key not in inside}
            if added:
                merged[name] = {**added, **inside}
                taken += [f"{name}.{key}" for key in added]
        elif name not in own:
            merged[name] = value
            taken.append(name)
    return merged, taken


def section_of(document: Mapping[str, object], name: str) -> dict[str, object]:
    """A mapping in a spec's document; empty where it is left out."""
    found = document.get(name)
    return {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def without_fields(document: Mapping[str, object], fields: Iterable[str]) -> dict[str, object]:
    """A spec's document less these dotted fields, and less mappings that are empty then."""
    left: dict[str, object] = dict(document)
    for field in fields:
        section, _, name = field.partition(".")
        if not name:
            left.pop(section, None)
        elif section in left:
            inside = {key: one for key, one in section_of(left, section).items() if key != name}
            left[section] = inside
            if not inside:
                del left[section]
    return left


def _fitting(spec: JobSpec, defaults: Mapping[str, object]) -> dict[str, object]:
    found = dict(defaults)
    if spec.deadline is not None:
        found.pop("patience", None)
    if spec.patience_seconds:
        found.pop("deadline", None)
    trainer = spec.trainer
    if "checkpoint" in found and (trainer is None or trainer.checkpoint_interval_steps is not None):
        found = without_fields(found, ["checkpoint.interval"])
    return found


def _unknown(name: str, known: tuple[str, ...]) -> SpecProblem:
    why = "each job says itself" if name in _OWN else "is not a field that a project can give"
    return SpecProblem(
        f"defaults.{name}",
        f"defaults.{name}: {name!r} {why}; known: {', '.join(known)}",
        ProblemKind.UNKNOWN_FIELD,
    )


def _inside(problem: SpecProblem) -> SpecProblem:
    field = f"defaults.{problem.field}".rstrip(".")
    return replace(problem, field=field, message=f"defaults.{problem.message}")
