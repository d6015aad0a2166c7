"""From parsed YAML or JSON to the rules of a project, with everything that is wrong in them.

Not here: the fields (`project_rules`), or a file of several projects (`projects_file`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from app.domain.launch_limits.launch_limits import LaunchLimits
from app.domain.projects.project_rules import Ceilings, ProjectRules
from app.domain.projects.resolve_spec import refused_fields
from app.domain.projects.spec_defaults import STAND_IN, read_defaults, with_defaults
from app.domain.spec.job_spec import parse_spec
from app.domain.spec.job_spec_problems import Sections, spec_error
from app.domain.spec.spec_value import kind_of
from app.domain.units.errors import ProblemKind, SpecError, SpecProblem

_SECTIONS: Final[Sections] = {"": ProjectRules, "ceilings": Ceilings, "limits": LaunchLimits}


def parse_rules(data: object) -> ProjectRules:
    """The rules from parsed JSON or YAML, or from `to_json`.

    Raises SpecError listing every field that is wrong or unknown, and defaults that the rules
    themselves would refuse.
    """
    if not isinstance(data, Mapping):
        raise SpecError.of(f"the rules must be a mapping of fields, not {kind_of(data)}")
    problems: list[SpecProblem] = []
    defaults: dict[str, object] = {}
    try:
        defaults = read_defaults(data.get("defaults", {}))
    except SpecError as error:
        problems += error.problems
    try:
        rules = ProjectRules.model_validate({**data, "defaults": defaults})
    except ValidationError as error:
        problems += [_with_known(one) for one in spec_error(error, _SECTIONS).problems]
        raise SpecError(problems) from error
    problems += _own_defaults_refused(rules)
    if problems:
        raise SpecError(problems)
    return rules


def _with_known(problem: SpecProblem) -> SpecProblem:
    """A refused key says which ones there are."""
    if problem.kind is not ProblemKind.UNKNOWN_FIELD:
        return problem
    section = _SECTIONS[problem.field.rpartition(".")[0]]
    known = ", ".join(info.alias or name for name, info in section.model_fields.items())
    return replace(problem, message=f"{problem.message}; known: {known}")


def _own_defaults_refused(rules: ProjectRules) -> Iterator[SpecProblem]:
    document, taken = with_defaults(parse_spec(STAND_IN), rules.defaults)
    refused = refused_fields(rules, parse_spec(document)) if taken else ()
    for field in taken:
        if field in refused:
            sentence = "is refused by the rules beside it; change one of them"
            yield SpecProblem(f"defaults.{field}", f"defaults.{field}: {sentence}")
