"""The shapes of answers about people: members, invitations, sessions."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.api.access.access_shapes import IssuedKeyShape
from app.api.serving.shapes import Shape
from app.domain.access.roles import Role
from app.storage.access.people_repository import MemberKind


class ProjectMemberShape(Shape):
    """A person or a service key, with its role in the project. `since`: of the membership, or of
    the key. `disabled_at`: since when its keys and sessions do nothing, in any project. `issuer`:
    whose groups gave the membership, and give it again at the next sign-in if they still do; null
    for one by hand, and for a key.
    """

    kind: MemberKind
    id: UUID
    name: str
    email: str | None
    role: Role
    since: datetime
    disabled_at: datetime | None
    issuer: str | None


class MemberPage(Shape):
    """Members by name. Send `next` as `after`; it is null at the end."""

    items: list[ProjectMemberShape]
    next: str | None


class PersonShape(Shape):
    """A person of the deployment. `disabled_at`: since when its keys and sessions do nothing."""

    id: UUID
    name: str
    email: str | None
    created_at: datetime
    disabled_at: datetime | None


class PersonPage(Shape):
    """People by name. Send `next` as `after`; it is null at the end."""

    items: list[PersonShape]
    next: str | None


class InvitationShape(Shape):
    """An invitation without its token. `person_id`: who gets another key by it; null if it makes a
    member. `created_by`: an actor, as in a job's events.
    """

    id: UUID
    project: str
    role: Role
    email: str | None
    person_id: UUID | None
    created_at: datetime
    created_by: str
    expires_at: datetime
    revoked_at: datetime | None


class InvitationPage(Shape):
    """Invitations that can be accepted, the newest first. Send `next` as `after`."""

    items: list[InvitationShape]
    next: str | None


class IssuedInvitationShape(InvitationShape):
    """An invitation with its link, which no other answer shows: a path of this address. What
    follows the # is its token, which browsers do not send with the address.
    """

    link: str


class SessionShape(Shape):
    """A browser that is signed in. `id` tells it apart, and opens nothing. `last_seen_at`: within
    five minutes. `browser`, `address`: as they were at the sign-in.
    """

    id: str
    created_at: datetime
    expires_at: datetime
    last_seen_at: datetime
    browser: str | None
    address: str | None


class SessionPage(Shape):
    """The caller's sessions, the newest first. `next` is always null."""

    items: list[SessionShape]
    next: None


class LoginShape(IssuedKeyShape):
    """The key of a person for a machine that it has confirmed. `person`: its name."""

    person: str
