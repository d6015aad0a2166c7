"""The first rows of a new database: the deployment, its default project, the first key.

Not here: the schema (`migrate`), or further projects and keys, which people make.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Engine, insert
from sqlalchemy.dialects.postgresql import insert as insert_new

from app.domain.access.key_rules import KEY_PREFIX, SHOWN_CHARACTERS
from app.domain.access.roles import Role
from app.domain.deployment.credentials import digest
from app.ports.clock import Clock
from app.ports.entropy import Entropy
from app.storage.schema import tables

DEFAULT_PROJECT = "default"
ADMIN_KEY_NAME = "admin"


def prepare_first_use(
    engine: Engine, clock: Clock, entropy: Entropy, keep_key: Callable[[str], None]
) -> bool:
    """Write the first rows unless they are there; True when this call wrote them.

    keep_key: gets the first key, of which only a digest is stored, before anything is committed:
    if it raises, or the process dies, the next call makes another key.
    """
    with engine.begin() as connection:
        # Of two programs the second waits here for the first, and then finds its row.
        deployment = connection.execute(
            insert_new(tables.deployment)
            .values(id=1, deployment_id=entropy.new_id(), secret=entropy.new_token())
            .on_conflict_do_nothing()
            .returning(tables.deployment.c.id)
        ).one_or_none()
        if deployment is None:
            return False
        keep_key(_add_project_with_key(connection, clock, entropy))
    return True


def _add_project_with_key(connection: Connection, clock: Clock, entropy: Entropy) -> str:
    now, project_id = clock.now(), entropy.new_id()
    key = KEY_PREFIX + entropy.new_token()
    connection.execute(
        insert(tables.projects).values(id=project_id, name=DEFAULT_PROJECT, created_at=now)
    )
    connection.execute(
        # Without a cap; spending and reservations are counted from the start all the same.
        insert(tables.budgets).values(
            id=entropy.new_id(),
            project_id=project_id,
            job_id=None,
            cap_microusd=None,
            spent_microusd=0,
            reserved_microusd=0,
        )
    )
    connection.execute(
        insert(tables.api_keys).values(
            id=entropy.new_id(),
            project_id=project_id,
            name=ADMIN_KEY_NAME,
            key_hash=digest(key),
            prefix=key[:SHOWN_CHARACTERS],
            role=Role.ADMIN,
            is_admin=True,
            created_at=now,
        )
    )
    return key
