"""The file of `lowtide project apply`: projects by name, with what each is to be.

Lives here: its form, and the difference to what is there, field by field. Not here: applying it
(`app.orchestration.access.apply_projects`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.domain.access.key_rules import require_name
from app.domain.access.roles import Role
from app.domain.projects.project_rules import PROJECTS_MAX, ProjectRules
from app.domain.projects.read_rules import parse_rules
from app.domain.projects.rules_document import RulesDocument
from app.domain.spec.job_spec_problems import MAX_PROBLEMS
from app.domain.spec.spec_value import kind_of, nearest
from app.domain.units.errors import InvalidValue, ProblemKind, SpecError, SpecProblem

_ROLES: Final = tuple(role.value for role in Role)
_KEYS: Final = ("archived", "rules", "members")

MEMBERS_MAX: Final = 1_000
"""Members of one project that a file may name."""


@dataclass(frozen=True)
class ProjectEntry:
    """What a file says of one project. None: nothing, so that it stays as it is.

    members: the role of each, by a person's name or address, or a service key's name.
    """

    name: str
    archived: bool | None
    rules: ProjectRules | None
    members: Mapping[str, Role] | None = None


@dataclass(frozen=True)
class FieldChange:
    """One field of a project before and after, as JSON values; None where it is not set."""

    field: str
    before: object
    after: object


def parse_projects(data: object) -> list[ProjectEntry]:
    """The projects of a file, in its order, from parsed YAML or JSON.

    Raises SpecError listing everything that is wrong, with the path to it.
    """
    if not isinstance(data, Mapping):
        raise SpecError.of(f"the file must be a mapping with `projects`, not {kind_of(data)}")
    problems = list(_unknown(data, "", ("projects",)))
    projects = data.get("projects")
    if not isinstance(projects, Mapping) or not 1 <= len(projects) <= PROJECTS_MAX:
        problems.append(
            SpecProblem(
                "projects",
                f"projects: must be a mapping of 1 to {PROJECTS_MAX:,} projects by name, like "
                "{vision: {rules: {…}}}",
            )
        )
        raise SpecError(problems)
    entries = [_entry(name, written, problems) for name, written in projects.items()]
    if problems:
        raise SpecError(problems[:MAX_PROBLEMS])
    return entries


def _entry(name: object, written: object, problems: list[SpecProblem]) -> ProjectEntry:
    path = f"projects.{str(name)[:80]}"
    try:
        require_name(str(name), "project")
    except InvalidValue as error:
        problems.append(SpecProblem(path, f"{path}: {error.message}"))
    inside = {} if written is None else written
    if not isinstance(inside, Mapping):
        wrong = f"must be a mapping with {', '.join(_KEYS)}, not {kind_of(inside)}"
        problems.append(SpecProblem(path, f"{path}: {wrong}"))
        inside = {}
    problems += _unknown(inside, f"{path}.", _KEYS)
    archived = inside.get("archived")
    if archived is not None and not isinstance(archived, bool):
        problems.append(SpecProblem(f"{path}.archived", f"{path}.archived: write true or false"))
    rules = None
    if inside.get("rules") is not None:
        try:
            rules = parse_rules(inside["rules"])
        except SpecError as error:
            problems += [_below(f"{path}.rules", one) for one in error.problems]
    members = None
    if inside.get("members") is not None:
        members = _members(inside["members"], f"{path}.members", problems)
    is_archived = archived if isinstance(archived, bool) else None
    return ProjectEntry(str(name), is_archived, rules, members)


def _members(written: object, path: str, problems: list[SpecProblem]) -> dict[str, Role]:
    if not isinstance(written, Mapping) or not 1 <= len(written) <= MEMBERS_MAX:
        problems.append(
            SpecProblem(
                path,
                f"{path}: must be a mapping of 1 to {MEMBERS_MAX:,} names to their roles, like "
                "{una: maintainer}; the last member is removed by `lowtide member remove`",
            )
        )
        return {}
    roles: dict[str, Role] = {}
    for name, role in written.items():
        field = f"{path}.{str(name)[:80]}"
        if not isinstance(name, str) or not name.strip():
            problems.append(SpecProblem(field, f"{field}: write the name in quotes"))
        elif not isinstance(role, str) or role not in _ROLES:
            word = f"{role!r:.40}"
            problems.append(
                SpecProblem(field, f"{field}: {word} is no role; use {', '.join(Role)}")
            )
        else:
            roles[name] = Role(role)
    return roles


def _unknown(
    data: Mapping[object, object], path: str, known: tuple[str, ...]
) -> Iterator[SpecProblem]:
    for key in [key for key in data if key not in known][:MAX_PROBLEMS]:
        word = str(key)[:40]
        yield SpecProblem(
            f"{path}{word}",
            f"{path}{word}: unknown field {word!r}{nearest(word, known)}; "
            f"known: {', '.join(known)}",
            ProblemKind.UNKNOWN_FIELD,
        )


def _below(path: str, problem: SpecProblem) -> SpecProblem:
    field = f"{path}.{problem.field}".rstrip(".")
    return replace(problem, field=field, message=f"{path}: {problem.message}")


def rule_changes(before: RulesDocument, after: RulesDocument) -> list[FieldChange]:
    """What differs between two documents of rules, by dotted field."""
    old, new = dict(_flat(before)), dict(_flat(after))
    return [
        FieldChange(field, old.get(field), new.get(field))
        for field in sorted(old.keys() | new.keys())
        if old.get(field) != new.get(field)
    ]


def _flat(document: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
