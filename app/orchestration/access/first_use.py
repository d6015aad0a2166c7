"""The first rows of a new database: the deployment, its default project, its first key, and the
invitation of its first admin.

Not here: the schema (`app.storage.session.migrate`), or further projects, keys and people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from app.domain.access.person_rules import FIRST_USE
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.orchestration.access.manage_invitations import invite_first_admin
from app.orchestration.access.manage_keys import create_key
from app.orchestration.access.manage_projects import create_project
from app.ports.entropy import Entropy
from app.storage.unit_of_work import UnitOfWorkFactory

DEFAULT_PROJECT: Final = "default"
ADMIN_KEY_NAME: Final = "admin"


def prepare_first_use(
    begin: UnitOfWorkFactory, entropy: Entropy, keep_key: Callable[[str], None]
) -> str | None:
    """Write the first rows unless they are there. Returns the token of the first admin's
    invitation; None where they were there.

    keep_key: gets the first key, of which only a digest is stored, before anything is committed:
    if it raises, or the process dies, the next call makes another key.
    """
    with begin() as uow:
        # Of two programs the second waits here for the first, and then finds its row.
        if not uow.operations.add_deployment(entropy.new_id(), entropy.new_token()):
            return None
        # Before there is a project, nobody has one to come from.
        nobody = Principal(None, FIRST_USE, entropy.new_id(), "", Role.ADMIN)
        project = create_project(uow, entropy, nobody, DEFAULT_PROJECT)
        first = replace(nobody, project_id=project.id, project_name=project.name)
        keep_key(create_key(uow, entropy, first, ADMIN_KEY_NAME, Role.ADMIN).secret)
        return invite_first_admin(uow, entropy, first)
