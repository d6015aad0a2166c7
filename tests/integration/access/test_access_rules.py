"""No key gives itself, or anybody, more than it has: a greater role, a later end, a way back."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from app.domain.access.roles import Role
from app.domain.deployment.credentials import digest
from app.domain.units.errors import Forbidden
from app.orchestration.access.manage_invitations import invite, invite_again
from app.orchestration.access.manage_keys import own_keys, revoke_key, rotate_key, service_keys
from tests.support.servers.table_rows import fetch
from tests.support.stories.access_story import ENTROPY, AccessStory


@pytest.fixture
def access(engine: Engine) -> AccessStory:
    return AccessStory(engine)


def test_a_lesser_key_of_a_person_neither_rotates_nor_revokes_a_greater_one(access: AccessStory):
    first = access.person("Lea", Role.ADMIN)
    lesser = access.known(access.own_key(first, "ci", Role.VIEWER).secret)
    other = access.own_key(first, "other-ci", Role.VIEWER)
    with access.begin() as uow:
        with pytest.raises(Forbidden, match="at most what the role viewer"):
            rotate_key(uow, ENTROPY, lesser, own_keys(lesser), first.row.name, 0)
        with pytest.raises(Forbidden, match="at most what the role viewer"):
            revoke_key(uow, ENTROPY, lesser, own_keys(lesser), first.row.name)
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


# --- beside an api of the release before, in a rolling upgrade ---


def test_to_the_release_before_a_person_s_key_is_a_viewer_s_that_no_path_names(
    access: AccessStory,
):
    first = access.person("Lea", Role.ADMIN)
    asked = "SELECT name, role, is_admin FROM api_keys WHERE key_hash = :hash"
    [found] = fetch(access.engine, asked, {"hash": digest(first.secret)})
    assert (found.role, found.is_admin) == ("viewer", False)
    assert "/" in found.name
    assert access.known(first.secret).role is Role.ADMIN
    assert access.known(first.secret).key_name == first.row.name


def test_the_release_before_makes_keys_and_sessions(access: AccessStory):
    access.own_key(access.person("Lea", Role.VIEWER), "ci")
    given = {"id": uuid4(), "project": access.home_id, "at": datetime.now(UTC)}
    with access.engine.begin() as connection:
        first = connection.execute(text(_KEY_BY_0012), {**given, "hash": "a"})
        again = connection.execute(text(_KEY_BY_0012), {**given, "id": uuid4(), "hash": "b"})
        assert (first.rowcount, again.rowcount) == (1, 0)
        assert connection.execute(text(_SESSION_BY_0012), given).rowcount == 1


_KEY_BY_0012 = """
INSERT INTO api_keys (id, project_id, name, role, prefix, created_at, created_by, expires_at,
    last_used_at, revoked_at, revoked_by, former_until_at, key_hash, is_admin)
VALUES (:id, :project, 'ci', 'submitter', 'lt_abcd', :at, 'person:root', NULL, NULL, NULL, NULL,
    NULL, :hash, false)
ON CONFLICT (project_id, name) DO NOTHING RETURNING id
"""
_SESSION_BY_0012 = """
INSERT INTO sessions (id_hash, key_id, created_at, expires_at) VALUES ('s', :id, :at, :at)
"""
