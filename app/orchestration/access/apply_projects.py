"""Bring projects to what a file says: make those that are missing, change those that differ.

Everything is one transaction: all of it, or nothing. What the file does not name stays as it is.
Not here: the file's form (`app.domain.projects.projects_file`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.domain.access.may import DEPLOYMENT, AccessDecision, Resource, may, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.projects.project_rules import ProjectRules
from app.domain.projects.projects_file import FieldChange, ProjectEntry, rule_changes
from app.domain.units.errors import NotFound
from app.orchestration.access.apply_members import change_members, member_changes
from app.orchestration.access.manage_projects import (
    OpenedProject,
    create_project,
    not_opened,
    opened_project,
    set_archived,
)
from app.orchestration.access.manage_rules import change_rules
from app.ports.entropy import Entropy
from app.storage.unit_of_work import UnitOfWork


class ApplyOutcome(StrEnum):
    """What becomes of a project that the file names."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class AppliedProject:
    """One project of the file, with every field that differs."""

    name: str
    outcome: ApplyOutcome
    changes: Sequence[FieldChange]


def apply_projects(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    entries: Sequence[ProjectEntry],
) -> list[AppliedProject]:
    """Apply the entries, and answer in their order. For a dry run, discard the unit of work: so it
    refuses whatever the verbs refuse.

    Raises NotFound for a project that the principal does not open, Forbidden for what its role may
    not do, and CommandRefused for the last admin.
    """
    if any(entry.rules is not None for entry in entries):
        uow.launch_gate.close()  # before any project's row, as `change_rules` does
    # Locked by name, so that two files with the same projects do not wait for each other.
    applied = {
        entry.name: _applied(uow, entropy, principal, entry)
        for entry in sorted(entries, key=lambda entry: entry.name)
    }
    return [applied[entry.name] for entry in entries]


def _applied(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, entry: ProjectEntry
) -> AppliedProject:
    opened = _opened(uow, principal, entry.name)
    created = opened is None
    if opened is None:
        require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
        create_project(uow, entropy, principal, entry.name)
        opened = _opened(uow, principal, entry.name)
        assert opened is not None, "just made"
    changes: list[FieldChange] = []
    if entry.archived is not None and entry.archived != opened.is_archived:
        require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
        changes.append(FieldChange("archived", opened.is_archived, entry.archived))
        set_archived(uow, entropy, principal, entry.name, archived=entry.archived)
    if entry.rules is not None:
        changes += _rules_applied(uow, entropy, entry.rules, opened)
    if entry.members is not None:
        members = member_changes(uow, opened.caller, entry.members)
        change_members(uow, entropy, opened.caller, members)
        changes += [change.field for change in members]
    changed = ApplyOutcome.CHANGED if changes else ApplyOutcome.UNCHANGED
    return AppliedProject(entry.name, ApplyOutcome.CREATED if created else changed, changes)


def _rules_applied(
    uow: UnitOfWork, entropy: Entropy, rules: ProjectRules, opened: OpenedProject
) -> list[FieldChange]:
    changes = rule_changes(uow.rules.of(opened.id, locked=True).document, rules.to_json())
    if changes:
        require(opened.caller, Action.MANAGE_RULES, Resource(opened.id))
        change_rules(uow, entropy, opened.caller, rules)
    return changes


def _opened(uow: UnitOfWork, principal: Principal, name: str) -> OpenedProject | None:
    """The project; None where there is none and the principal may make it. Raises NotFound."""
    found = opened_project(uow, principal, name)
    operates = may(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT) is AccessDecision.ALLOWED
    if found is None and not operates:
        raise NotFound(not_opened(principal, name))
    return found
