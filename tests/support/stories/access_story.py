"""People and keys of a deployment in a database, made by the verbs themselves; no server.

Not here: the same over REST and pages (`people_api`, `invited_people`).
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import Engine

from app.adapters.system_entropy import SystemEntropy
from app.bootstrap import NoWakeups
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.deployment.credentials import digest
from app.orchestration.access.manage_invitations import Accepted, accept, invite
from app.orchestration.access.manage_keys import IssuedKey, create_key, create_own_key
from app.orchestration.access.manage_projects import create_project
from app.storage.access.known_keys import OF_KEYS, is_good, principal_of
from app.storage.schema import tables
from app.storage.unit_of_work import PostgresUnitOfWorkFactory, UnitOfWork
from tests.support.servers.table_rows import add_row, change_rows

ENTROPY = SystemEntropy()
DAY = 86_400.0


class AccessStory:
    """A deployment with a project `home` and its service key `root`, an admin without an end."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.begin = PostgresUnitOfWorkFactory(engine, NoWakeups())
        add_row(engine, tables.deployment, id=1, deployment_id=uuid4(), secret="s" * 43)
        nobody = Principal(None, "first use", uuid4(), "", Role.ADMIN)
        with self.begin() as uow:
            home = create_project(uow, ENTROPY, nobody, "home")
            first = Principal(None, "first use", home.id, home.name, Role.ADMIN)
            self.root = create_key(uow, ENTROPY, first, "root", Role.ADMIN)
        self.home_id: UUID = home.id
        self.admin = self.known(self.root.secret)

    def known(self, secret: str) -> Principal:
        """Whose key it is, as the api knows it; the test fails for one that opens nothing."""
        now = datetime.now().astimezone()
        asked = OF_KEYS.where(tables.api_keys.c.key_hash == digest(secret), is_good(now))
        with self.engine.connect() as connection:
            return principal_of(connection.execute(asked).one())

    def opens(self, secret: str) -> bool:
        """Whether the key opens anything."""
        now = datetime.now().astimezone()
        asked = OF_KEYS.where(tables.api_keys.c.key_hash == digest(secret), is_good(now))
        with self.engine.connect() as connection:
            return connection.execute(asked).one_or_none() is not None

    def project(self, name: str) -> Principal:
        """The admin's key in a new project."""
        with self.begin() as uow:
            made = create_project(uow, ENTROPY, self.admin, name)
        return self.admin.inside(made.id, name, True, 0)

    def service_key(
        self, name: str, role: Role, days: float | None = None, by: Principal | None = None
    ) -> IssuedKey:
        """A new service key of the project of `by`, the admin's by default."""
        life = None if days is None else days * DAY
        with self.begin() as uow:
            return create_key(uow, ENTROPY, by or self.admin, name, role, life)

    def person(self, name: str, role: Role, by: Principal | None = None) -> IssuedKey:
        """A new member of the project of `by`, with the key that has no end and no limit."""
        with self.begin() as uow:
            key = self.accepted(uow, invite(uow, ENTROPY, by or self.admin, role).token, name).key
        assert key is not None
        return key

    def accepted(self, uow: UnitOfWork, token: str, name: str = "unread") -> Accepted:
        """An invitation that is accepted in an open transaction."""
        return accept(uow, ENTROPY, token, name)

    def own_key(
        self, owner: IssuedKey, name: str, limit: Role | None = None, days: float | None = None
    ) -> IssuedKey:
        """Another key of the person whose key `owner` is."""
        life = None if days is None else days * DAY
        with self.begin() as uow:
            return create_own_key(uow, ENTROPY, self.known(owner.secret), name, limit, life)

    def person_id(self, name: str) -> UUID:
        """Of the person of that name."""
        with self.begin() as uow:
            found = uow.people.person(name)
        assert found is not None
        return found.id

    def change_key(self, issued: IssuedKey, **values: object) -> None:
        """Other values in a key's row."""
        keys = tables.api_keys
        change_rows(self.engine, keys, keys.c.id == issued.row.id, **values)
