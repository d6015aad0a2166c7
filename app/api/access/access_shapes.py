"""The shapes of answers about keys and projects."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from app.api.serving.shapes import Shape
from app.domain.access.roles import Role
from app.orchestration.access.apply_projects import ApplyOutcome


class WhoShape(Shape):
    """Whose key the request came with, and the project that it is in. `person`: null where the key
    is a service key. `projects`: as in the list of keys.
    """

    key: str
    key_id: UUID
    person: str | None
    role: Role
    project: str
    projects: list[str] | None


class KeyShape(Shape):
    """A key without its secret. `role`: of your own key, what it may do in `project`; of another
    person's, and of one that does not open `project`, the most that it may do anywhere. `project`:
    the request's. `projects`: null where a key names none: a person's opens all of the person's, a
    service key works in its own. Else a person's opens these alone, and a service key works in
    these; those that you do not open are left out. `name`: of a service key of another project,
    `home/name`.

    `prefix`: what it begins with; null for keys of before prefixes. `last_used_at`: within two
    minutes. `former_until_at`: until when the secret from before the last rotation is valid, too.
    `revoked_by`, `created_by`: an actor, as in a job's events.
    """

    id: UUID
    name: str
    role: Role
    project: str
    projects: list[str] | None
    prefix: str | None
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    former_until_at: datetime | None


class KeyPage(Shape):
    """Keys that are not revoked, then the others; each the newest first. `next` is always null."""

    items: list[KeyShape]
    next: None


class IssuedKeyShape(KeyShape):
    """A key with its secret, which no other answer shows."""

    key: str


class ProjectShape(Shape):
    """A project. `jobs`: all that it ever had. `keys`: service keys that are good. `members`:
    people.
    """

    id: UUID
    name: str
    created_at: datetime
    archived_at: datetime | None
    jobs: int
    keys: int
    members: int


class ProjectRulesShape(Shape):
    """The rules of a project, in normal form; what is left out is not limited.

    `version` grows with each change and is 0 before the first one; `changed_by`: an actor, as in a
    job's events.
    """

    project: str
    version: int
    changed_at: datetime | None
    changed_by: str | None
    rules: dict[str, Any]


class FieldChangeShape(Shape):
    """One field that differs; null where it is not set."""

    field: str
    before: Any
    after: Any


class AppliedProjectShape(Shape):
    """A project that the file names, and what differs."""

    name: str
    outcome: ApplyOutcome
    changes: list[FieldChangeShape]


class AppliedShape(Shape):
    """What was changed; with `dry_run` what would be. In the file's order."""

    dry_run: bool
    items: list[AppliedProjectShape]


class ProjectPage(Shape):
    """Projects by name. `next` is always null."""

    items: list[ProjectShape]
    next: None
