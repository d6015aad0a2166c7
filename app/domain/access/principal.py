"""Who asks: a key or a person, the role, the project of the request, and where it came from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import UUID

from app.domain.access.roles import ROLES_OF, Action, Role, role_of_person, within
from app.domain.lifecycle.events import Actor, ActorKind


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came from. address: an IP address. request_id: the answer has it, too."""

    address: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Person:
    """The person behind a personal key or a session.

    elsewhere: auditor or admin, where any of its memberships makes it that. limit: the most that
    the key lets it do.
    """

    id: UUID
    name: str
    elsewhere: Role | None
    limit: Role


@dataclass(frozen=True, slots=True)
class Principal:
    """A signed-in person or program.

    key_id, key_name: None and "" in a session that belongs to a person and not to a key.
    project_id, project_name: its own project, or another one that the request has chosen.
    takes_jobs: False for a project that is archived. home: its own project, where the request
    has chosen another one. person: None for a service key. project_is_fallback: the person's key
    or session was made for a project that does not open for the person any more, so this one of
    its others is read, and changed only by a request that names it. projects: those that the key
    names, and no others open; None for a key that names none, and without a key.
    """

    key_id: UUID | None
    key_name: str
    project_id: UUID
    project_name: str
    role: Role
    takes_jobs: bool = True
    rules_version: int = 0
    home: str = ""
    origin: Origin | None = None
    person: Person | None = None
    project_is_fallback: bool = False
    projects: frozenset[UUID] | None = None

    @property
    def name(self) -> str:
        """The person's, else the key's."""
        return self.key_name if self.person is None else self.person.name

    @property
    def person_id(self) -> UUID | None:
        """None for a service key."""
        return None if self.person is None else self.person.id

    @property
    def actor(self) -> Actor:
        """How it is named in histories: a person by its name, which no other person has; a key as
        `home/key` in a project that is not its own.
        """
        name = f"{self.home}/{self.name}" if self.home and self.person is None else self.name
        return Actor(ActorKind.PERSON, name)

    def from_origin(self, origin: Origin) -> Principal:
        """The same, in one request."""
        return replace(self, origin=origin)

    def in_named_project(self) -> Principal:
        """The same in its own project, which the request names."""
        return replace(self, project_is_fallback=False)

    @property
    def reach(self) -> Role:
        """Its role in the deployment: auditor or admin where one of the person's memberships makes
        it that and the key's limit lets it; else its role in the project.
        """
        if self.person is None or self.person.elsewhere is None:
            return self.role
        return within(self.person.elsewhere, self.person.limit)

    @property
    def opens_every_project(self) -> bool:
        """Whether its role is one of the whole deployment."""
        return self.reach in ROLES_OF[Action.OPEN_PROJECT]

    def covers(self, project_ids: Collection[UUID] | None) -> bool:
        """Whether its key lets it work in all of these projects of its person; None: in any."""
        if self.projects is None:
            return True
        return project_ids is not None and self.projects.issuperset(project_ids)

    def inside(
        self,
        project_id: UUID,
        project_name: str,
        takes_jobs: bool,
        rules_version: int,
        member_role: Role | None = None,
    ) -> Principal:
        """The same in another project, which `may` has allowed it to open.

        member_role: of the person's membership there.
        """
        role = self.role
        if self.person is not None:
            of_person = role_of_person(member_role, self.person.elsewhere, self.person.limit)
            assert of_person is not None, "a project that does not open for this person"
            role = of_person
        home = self.home or self.project_name
        return replace(
            self,
            project_id=project_id,
            project_name=project_name,
            role=role,
            takes_jobs=takes_jobs,
            rules_version=rules_version,
            home=home,
            project_is_fallback=False,
        )
