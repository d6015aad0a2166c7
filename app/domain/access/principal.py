"""Who asks: a key, its role, the project that the request is in, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from app.domain.access.roles import Role
from app.domain.lifecycle.events import Actor, ActorKind


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came from. address: an IP address. request_id: the answer has it, too."""

    address: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Principal:
    """A signed-in person or program, by its key.

    project_id, project_name: the key's own project, or another one that the request has chosen.
    takes_jobs: False for a project that is archived. rules_version: which rules it has, 0 for none.
    home: the key's own project, where the request has chosen another one. origin: None for what is
    no request, and for one that only reads.
    """

    key_id: UUID
    key_name: str
    project_id: UUID
    project_name: str
    role: Role
    takes_jobs: bool = True
    rules_version: int = 0
    home: str = ""
    origin: Origin | None = None

    @property
    def actor(self) -> Actor:
        """How it is named in histories: `home/key` in a project that is not its own."""
        name = f"{self.home}/{self.key_name}" if self.home else self.key_name
        return Actor(ActorKind.PERSON, name)

    def from_origin(self, origin: Origin) -> Principal:
        """The same, in one request."""
        return replace(self, origin=origin)

    def inside(
        self, project_id: UUID, project_name: str, takes_jobs: bool, rules_version: int
    ) -> Principal:
        """The same key in another project, which `may` has allowed it to open."""
        home = self.home or self.project_name
        return replace(
            self,
            project_id=project_id,
            project_name=project_name,
            takes_jobs=takes_jobs,
            rules_version=rules_version,
            home=home,
        )
