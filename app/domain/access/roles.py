"""Roles, and what each may do: the table of docs/security.md.

Lives here: the names and the table. Not here: how a request is compared with it (`may`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What a key is for. Values are stored and shown; never reuse or rename one."""

    VIEWER = "viewer"
    """Reads its project."""
    SUBMITTER = "submitter"
    """Submits jobs, and commands its own."""
    MAINTAINER = "maintainer"
    """Commands every job of its project, and manages the project's keys and rules."""
    AUDITOR = "auditor"
    """Reads every project and the deployment, and changes nothing."""
    ADMIN = "admin"
    """Everything, in every project and for the deployment."""


class Action(StrEnum):
    """What a route, a form or a command does."""

    OPEN_PROJECT = "open this project"
    READ = "read"
    SUBMIT = "submit jobs"
    COMMAND_JOB = "cancel, pause, resume or interrupt this job"
    MANAGE_KEYS = "manage keys"
    MANAGE_RULES = "change the rules of a project"
    NAME_SECRETS = "see the names of secrets"
    MANAGE_SECRETS = "manage secrets"
    MANAGE_NOTIFICATIONS = "manage notifications"
    READ_AUDIT = "read the audit"
    MANAGE_MEMBERS = "manage members"
    MANAGE_OWN = "manage its own keys and sessions"
    READ_DEPLOYMENT = "read what concerns the whole deployment"
    OPERATE_DEPLOYMENT = "change what concerns the whole deployment"


_OF_ALL_PROJECTS: Final = frozenset({Role.AUDITOR, Role.ADMIN})

ROLES_OF: Final[Mapping[Action, frozenset[Role]]] = {
    Action.OPEN_PROJECT: _OF_ALL_PROJECTS,
    Action.READ: frozenset(Role),
    Action.SUBMIT: frozenset({Role.SUBMITTER, Role.MAINTAINER, Role.ADMIN}),
    Action.COMMAND_JOB: frozenset({Role.MAINTAINER, Role.ADMIN}),
    Action.MANAGE_KEYS: frozenset({Role.MAINTAINER, Role.ADMIN}),
    Action.MANAGE_RULES: frozenset({Role.MAINTAINER, Role.ADMIN}),
    Action.NAME_SECRETS: frozenset({Role.SUBMITTER, Role.MAINTAINER, Role.ADMIN}),
    Action.MANAGE_SECRETS: frozenset({Role.MAINTAINER, Role.ADMIN}),
    Action.MANAGE_NOTIFICATIONS: frozenset({Role.MAINTAINER, Role.ADMIN}),
    Action.READ_AUDIT: frozenset({Role.MAINTAINER, Role.AUDITOR, Role.ADMIN}),
    Action.MANAGE_MEMBERS: frozenset({Role.MAINTAINER, Role.ADMIN}),
    Action.MANAGE_OWN: frozenset(Role),
    Action.READ_DEPLOYMENT: _OF_ALL_PROJECTS,
    Action.OPERATE_DEPLOYMENT: frozenset({Role.ADMIN}),
}
"""Who may do it to anything in the project that the request is in.

OPEN_PROJECT: another one than the key's own. What belongs to the caller is in `OWN_ROLES_OF`.
"""

CHANGES_OF_PROJECT: Final = frozenset(
    {
        Action.SUBMIT,
        Action.COMMAND_JOB,
        Action.MANAGE_KEYS,
        Action.MANAGE_RULES,
        Action.MANAGE_SECRETS,
        Action.MANAGE_NOTIFICATIONS,
        Action.MANAGE_MEMBERS,
    }
)
"""What must not happen in another project than was meant."""

OWN_ROLES_OF: Final[Mapping[Action, frozenset[Role]]] = {
    Action.COMMAND_JOB: frozenset({Role.SUBMITTER}),
}
"""Who may do it besides, to what the same key or person has made."""

GRANTABLE_BY: Final[Mapping[Role, frozenset[Role]]] = {
    Role.MAINTAINER: frozenset({Role.VIEWER, Role.SUBMITTER, Role.MAINTAINER}),
    Role.ADMIN: frozenset(Role),
}
"""The roles of keys and members that a role may make, change and end: never more than its own."""

_INCLUDES: Final[Mapping[Role, frozenset[Role]]] = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.SUBMITTER: frozenset({Role.VIEWER, Role.SUBMITTER}),
    Role.MAINTAINER: frozenset({Role.VIEWER, Role.SUBMITTER, Role.MAINTAINER}),
    Role.AUDITOR: frozenset({Role.VIEWER, Role.AUDITOR}),
    Role.ADMIN: frozenset(Role),
}
"""Which roles may do nothing that this one may not."""


def within(role: Role, limit: Role) -> Role:
    """The greatest role that neither exceeds: of a maintainer's and an auditor's, a viewer's."""
    return max(_INCLUDES[role] & _INCLUDES[limit], key=lambda one: len(_INCLUDES[one]))


def role_of_person(here: Role | None, elsewhere: Role | None, limit: Role) -> Role | None:
    """What a person is in a project, with a key of at most `limit`; None: it does not open.

    here: the role of its membership there. elsewhere: auditor or admin, where a membership in any
    project makes it that.
    """
    if elsewhere is Role.ADMIN:
        here = Role.ADMIN
    whole = here or elsewhere
    return None if whole is None else within(whole, limit)
