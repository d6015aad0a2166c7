"""People's accounts at issuers of OpenID Connect, and memberships that follow groups there.

Not here: people themselves (`people_repository`), or what groups give (`app.domain.access`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import delete, exists, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as insert_new

from app.domain.access.identity_rules import VerifiedIdentity
from app.domain.access.roles import Role
from app.storage.schema import tables
from app.storage.session.record_session import RecordSession

_IDENTITIES: Final = tables.identities
_ANSWERED: Final = tables.answered_sign_ins
_MEMBERS: Final = tables.memberships
_PEOPLE: Final = tables.people
_PROJECTS: Final = tables.projects
_REMOVED_MAX: Final = 100


@dataclass(frozen=True)
class MembershipRow:
    """A person's role in a project. issuer: whose groups it follows; None: made by hand."""

    project_id: UUID
    project_name: str
    role: Role
    issuer: str | None


class IdentityRepository:
    """Accounts elsewhere, in the store."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def answer_once(self, state_hash: str, now: datetime, until: datetime) -> bool:
        """Whether a sign-in's answer comes for the first time; remembered until then.

        Each call removes up to a hundred of which nobody needs to know any more.
        """
        old = (
            select(_ANSWERED.c.state_hash)
            .where(_ANSWERED.c.expires_at <= now)
            .order_by(_ANSWERED.c.expires_at, _ANSWERED.c.state_hash)
            .limit(_REMOVED_MAX)
            .with_for_update(skip_locked=True)
        )
        self._session.execute(delete(_ANSWERED).where(_ANSWERED.c.state_hash.in_(old)))
        statement = (
            insert_new(_ANSWERED)
            .values(state_hash=state_hash, expires_at=until)
            .on_conflict_do_nothing()
            .returning(_ANSWERED.c.state_hash)
        )
        return self._session.execute(statement).one_or_none() is not None

    def person_id(self, identity: VerifiedIdentity) -> UUID | None:
        """Whose account it is."""
        statement = select(_IDENTITIES.c.person_id).where(
            _IDENTITIES.c.issuer == identity.issuer, _IDENTITIES.c.subject == identity.subject
        )
        return self._session.execute(statement).scalar_one_or_none()

    def person_ids_of_email(self, email: str, issuer: str) -> list[UUID]:
        """People with this address, in lower case, who have no account at the issuer; at most two.

        An address may be another person's by now; an account that has it proves nothing then.
        """
        has_account = exists().where(
            _IDENTITIES.c.person_id == _PEOPLE.c.id, _IDENTITIES.c.issuer == issuer
        )
        statement = (
            select(_PEOPLE.c.id)
            .where(func.lower(_PEOPLE.c.email) == email, ~has_account)
            .order_by(_PEOPLE.c.id)
            .limit(2)
        )
        return [row.id for row in self._session.execute(statement)]

    def link(self, identity: VerifiedIdentity, person_id: UUID, now: datetime) -> None:
        """Store whose account it is."""
        self._session.execute(
            insert(_IDENTITIES).values(
                issuer=identity.issuer, subject=identity.subject, person_id=person_id,
                created_at=now, signed_in_at=now,
            )
        )  # fmt: skip

    def signed_in(self, identity: VerifiedIdentity, now: datetime) -> None:
        """Write when the account was used."""
        self._session.execute(
            update(_IDENTITIES)
            .where(_IDENTITIES.c.issuer == identity.issuer)
            .where(_IDENTITIES.c.subject == identity.subject)
            .values(signed_in_at=now)
        )

    def memberships(self, person_id: UUID) -> dict[str, MembershipRow]:
        """The person's memberships by the project's name, locked."""
        statement = (
            select(_PROJECTS.c.id, _PROJECTS.c.name, _MEMBERS.c.role, _MEMBERS.c.issuer)
            .join(_PROJECTS, _PROJECTS.c.id == _MEMBERS.c.project_id)
            .where(_MEMBERS.c.person_id == person_id)
            .order_by(_PROJECTS.c.name)
            .with_for_update(of=_MEMBERS)
        )
        return {row[1]: MembershipRow(*row) for row in self._session.execute(statement)}

    def project_ids(self, names: Collection[str]) -> dict[str, UUID]:
        """The projects of these names that there are."""
        statement = select(_PROJECTS.c.name, _PROJECTS.c.id).where(
            _PROJECTS.c.name.in_(sorted(names))
        )
        return {row.name: row.id for row in self._session.execute(statement)}

    def admin_names(self, limit: int) -> list[str]:
        """Admins who are people, by name: whom to ask."""
        statement = (
            select(_PEOPLE.c.name)
            .where(
                _PEOPLE.c.disabled_at.is_(None),
                exists().where(_MEMBERS.c.person_id == _PEOPLE.c.id, _MEMBERS.c.role == Role.ADMIN),
            )
            .order_by(_PEOPLE.c.name_folded)
            .limit(limit)
        )
        return list(self._session.execute(statement).scalars())
