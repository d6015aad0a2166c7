"""No key gives itself, or anybody, more than it has: a greater role, a later end, a way back."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from app.domain.access.roles import Role
from app.domain.units.errors import Forbidden
from app.orchestration.access.manage_invitations import invite, invite_again
from app.orchestration.access.manage_keys import own_keys, revoke_key, rotate_key, service_keys
from tests.support.stories.access_story import ENTROPY, AccessStory


@pytest.fixture
def access(engine: Engine) -> AccessStory:
    return AccessStory(engine)


def test_a_lesser_key_of_a_person_neither_rotates_nor_revokes_a_greater_one(access: AccessStory):
    first = access.person("Lea", Role.ADMIN)
    lesser = access.known(access.own_key(first, "ci", Role.VIEWER).secret)
    other = access.own_key(first, "other-ci", Role.VIEWER)
    for verb in ("rotate", "revoke"):
        with access.begin() as uow, pytest.raises(Forbidden, match="at most what the role viewer"):
            if verb == "rotate":
                rotate_key(uow, ENTROPY, lesser, own_keys(lesser), first.row.name, 0)
            else:
                revoke_key(uow, ENTROPY, lesser, own_keys(lesser), first.row.name)
    with access.begin() as uow:
        turned = rotate_key(uow, ENTROPY, lesser, own_keys(lesser), other.row.name, 0)
        assert revoke_key(uow, ENTROPY, lesser, own_keys(lesser), "ci").revoked_at is not None
    assert access.known(turned.secret).role is Role.VIEWER


def test_a_key_with_an_end_gets_no_later_one_by_rotation(access: AccessStory):
    first = access.person("Lea", Role.SUBMITTER)
    short = access.own_key(first, "short", days=1)
    by = access.known(short.secret)
    with access.begin() as uow:
        with pytest.raises(Forbidden, match="does not end before it"):
            rotate_key(uow, ENTROPY, by, own_keys(by), first.row.name, 0)
        assert rotate_key(uow, ENTROPY, by, own_keys(by), "short", 0).row.expires_at
        # What leaked is ended with any key that may do as much.
        assert revoke_key(uow, ENTROPY, by, own_keys(by), first.row.name).revoked_at is not None
    access.service_key("lasting", Role.VIEWER)
    access.service_key("brief", Role.VIEWER, days=0.5)
    guest = access.known(access.service_key("guest", Role.MAINTAINER, days=1).secret)
    with access.begin() as uow:
        with pytest.raises(Forbidden, match="does not end before it"):
            rotate_key(uow, ENTROPY, guest, service_keys(guest), "lasting", 0)
        for name in ("brief", "guest"):
            rotate_key(uow, ENTROPY, guest, service_keys(guest), name, 0)


def test_a_key_with_an_end_invites_nobody_and_not_itself(access: AccessStory):
    first = access.person("Lea", Role.ADMIN)
    short = access.known(access.own_key(first, "short", days=1).secret)
    service = access.known(access.service_key("guest", Role.ADMIN, days=1).secret)
    with access.begin() as uow:
        for principal in (short, service):
            with pytest.raises(Forbidden, match="people would outlast it"):
                invite_again(uow, ENTROPY, principal, "Lea")
            with pytest.raises(Forbidden, match="people would outlast it"):
                invite(uow, ENTROPY, principal, Role.VIEWER)
        assert invite_again(uow, ENTROPY, access.known(first.secret), "Lea").token
