"""No key gives itself, or anybody, more than it has: a greater role, a later end, a way back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine, insert, select, text

from app.domain.access.key_rules import KEYS_OF_PERSON_MAX
from app.domain.access.login_challenge import challenge_of
from app.domain.access.person_rules import OPEN_INVITATIONS_MAX
from app.domain.access.principal import Origin
from app.domain.access.roles import Role
from app.domain.deployment.credentials import digest
from app.domain.units.errors import CommandRefused, Forbidden, NotFound
from app.orchestration.access.confirm_login import (
    LoginAnswer,
    LoginProblem,
    confirm_login,
    redeem_login,
)
from app.orchestration.access.manage_invitations import (
    invite,
    invite_again,
    revoke_invitation,
)
from app.orchestration.access.manage_keys import (
    IssuedKey,
    own_keys,
    recover_admin,
    revoke_key,
    rotate_key,
    service_keys,
)
from app.orchestration.access.manage_members import (
    keys_of_person,
    remove_member,
    revoke_key_of_person,
    set_disabled,
    set_member_role,
)
from app.storage.access.web_sessions import NewSession, WebSessions, is_of
from app.storage.schema import tables
from tests.support.servers.table_rows import add_row, fetch
from tests.support.stories.access_story import ENTROPY, AccessStory

ORIGIN = Origin("192.0.2.1", "request")


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


def test_an_admin_ends_one_key_of_another_person(access: AccessStory):
    lea = access.person("Lea", Role.MAINTAINER)
    leaked = access.own_key(lea, "leaked")
    chief = access.person("Chief", Role.ADMIN)
    limited = access.known(access.own_key(chief, "ci", Role.MAINTAINER).secret)
    with access.begin() as uow:
        for by in (limited, access.known(lea.secret)):
            with pytest.raises(Forbidden, match="the role admin"):
                keys_of_person(uow, by, "Lea", 9)
            with pytest.raises(Forbidden, match="the role admin"):
                revoke_key_of_person(uow, ENTROPY, by, "Lea", "leaked")
        # Whatever leads to the verb: another person's key is an admin's to end.
        of_chief = own_keys(access.known(chief.secret))
        with pytest.raises(Forbidden, match="the role admin"):
            revoke_key(uow, ENTROPY, by, of_chief, "ci")
        names = {row.name for row in keys_of_person(uow, access.admin, "lea", 9)}
        assert names == {"leaked", lea.row.name}
        for named, key in (("Nobody", "leaked"), ("Lea", "absent")):
            with pytest.raises(NotFound):
                revoke_key_of_person(uow, ENTROPY, access.admin, named, key)
        ended = revoke_key_of_person(uow, ENTROPY, access.admin, "Lea", "leaked")
        assert ended.revoked_by == "person:root"
    assert not access.opens(leaked.secret)
    assert access.opens(lea.secret)
    with access.begin() as uow:
        revoke_key(uow, ENTROPY, access.admin, service_keys(access.admin), "root")
    by = access.known(chief.secret)
    with pytest.raises(CommandRefused, match="leave no admin"), access.begin() as uow:
        revoke_key_of_person(uow, ENTROPY, by, "Chief", chief.row.name)


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


def test_a_name_is_a_service_key_s_whatever_its_case(access: AccessStory):
    access.service_key("ci", Role.VIEWER)
    for name in ("CI", "\uff43\uff49"):
        with pytest.raises(CommandRefused, match="is taken"):
            access.person(name, Role.VIEWER)


def test_a_person_s_name_does_not_stand_in_the_way_of_a_recovery(access: AccessStory):
    lea = access.person("Lea", Role.VIEWER)
    add_row(
        access.engine, tables.people, id=uuid4(), name="recovered-1", name_folded="recovered-1",
        created_at=lea.row.created_at,
    )  # fmt: skip
    with access.begin() as uow:
        assert recover_admin(uow, ENTROPY, "home").row.name == "recovered-2"
        assert recover_admin(uow, ENTROPY, "home").row.name == "recovered-3"


def test_an_admin_s_key_that_is_lowered_has_invited_nobody_elsewhere(access: AccessStory):
    boss = access.service_key("boss", Role.ADMIN)
    away = access.project("away")
    with access.begin() as uow:
        there = access.known(boss.secret).inside(away.project_id, "away", True, 0)
        tokens = [
            invite(uow, ENTROPY, principal, Role.VIEWER).token
            for principal in (there, access.known(boss.secret))
        ]
        set_member_role(uow, ENTROPY, access.admin, "boss", Role.MAINTAINER)
    with pytest.raises(NotFound), access.begin() as uow:
        access.accepted(uow, tokens[0], "Away")
    with access.begin() as uow:
        assert access.accepted(uow, tokens[1], "Home").person.name == "Home"


# --- logins ---


def confirmed(access: AccessStory, key: IssuedKey) -> tuple[str, str, str]:
    """The verifier and the code of a login, and the session that confirmed it with the key."""
    verifier, session, now = uuid4().hex, uuid4().hex, datetime.now(UTC)
    new = NewSession(session, now, now + timedelta(days=7))
    owner = WebSessions(access.engine).begin(new, digest(key.secret), ORIGIN, uuid4())
    assert owner is not None
    with access.begin() as uow:
        code = confirm_login(uow, ENTROPY, owner, session, challenge_of(verifier), "laptop")
    return verifier, code, session


def redeemed(access: AccessStory, verifier: str, code: str) -> LoginAnswer:
    with access.begin() as uow:
        return redeem_login(uow, ENTROPY, verifier, code)


def _key_revoked(access: AccessStory, lea: IssuedKey, session: str) -> None:
    by = access.known(lea.secret)
    with access.begin() as uow:
        revoke_key(uow, ENTROPY, by, own_keys(by), lea.row.name)


def _key_rotated(access: AccessStory, lea: IssuedKey, session: str) -> None:
    by = access.known(lea.secret)
    with access.begin() as uow:
        rotate_key(uow, ENTROPY, by, own_keys(by), lea.row.name, 3_600)


def _key_over(access: AccessStory, lea: IssuedKey, session: str) -> None:
    access.change_key(lea, expires_at=lea.row.created_at)


def _signed_out(access: AccessStory, lea: IssuedKey, session: str) -> None:
    owner, now = access.known(lea.secret), datetime.now(UTC)
    WebSessions(access.engine).end(owner, session, now, uuid4())


def _disabled(access: AccessStory, lea: IssuedKey, session: str) -> None:
    with access.begin() as uow:
        set_disabled(uow, ENTROPY, access.admin, "Lea", disabled=True)


def _removed(access: AccessStory, lea: IssuedKey, session: str) -> None:
    with access.begin() as uow:
        remove_member(uow, ENTROPY, access.admin, "Lea")


def test_a_login_ends_with_what_has_confirmed_it(access: AccessStory):
    lea = access.person("Lea", Role.SUBMITTER)
    verifier, code, _ = confirmed(access, lea)
    good = redeemed(access, verifier, code).key
    assert good is not None
    assert access.known(good.secret).name == "Lea"
    ends = (_signed_out, _key_rotated, _key_revoked, _key_over, _disabled, _removed)
    for number, end in enumerate(ends):
        key = access.own_key(lea, f"of-{number}")
        verifier, code, session = confirmed(access, key)
        end(access, key, session)
        assert redeemed(access, verifier, code).problem is LoginProblem.UNKNOWN, end.__name__
        if end is _disabled:
            with access.begin() as uow:
                set_disabled(uow, ENTROPY, access.admin, "Lea", disabled=False)


def test_a_session_of_a_key_that_is_over_is_not_listed(access: AccessStory):
    lea = access.person("Lea", Role.VIEWER)
    short = access.own_key(lea, "short", days=1)
    for key in (lea, short):
        confirmed(access, key)
    owner, now, kept = access.known(lea.secret), datetime.now(UTC), WebSessions(access.engine)
    assert len(kept.of_owner(owner, now, 10)) == 2
    access.change_key(short, revoked_at=now)
    assert len(kept.of_owner(owner, now, 10)) == 1


def test_the_sessions_of_a_person_are_found_by_indexes(access: AccessStory):
    lea = access.known(access.person("Lea", Role.VIEWER).secret)
    asked = select(tables.sessions.c.id_hash).where(is_of(lea))
    shown = asked.compile(access.engine, compile_kwargs={"literal_binds": True})
    with access.engine.begin() as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = str(connection.execute(text(f"EXPLAIN {shown}")).all())
    for index in ("ix_sessions_person_id", "ix_sessions_key_id"):
        assert index in plan, plan


# --- how much there may be ---


def test_good_keys_are_listed_first_and_a_person_has_fifty(access: AccessStory):
    lea = access.person("Lea", Role.VIEWER)
    verifier, code, _ = confirmed(access, lea)
    over, *others = [access.own_key(lea, f"key-{n}") for n in range(KEYS_OF_PERSON_MAX - 1)]
    with pytest.raises(CommandRefused, match="Lea has 50 keys"):
        access.own_key(lea, "one-more")
    with pytest.raises(CommandRefused, match="Lea has 50 keys"):
        redeemed(access, verifier, code)
    access.change_key(others[-1], expires_at=lea.row.created_at)
    assert redeemed(access, verifier, code).key is not None
    access.change_key(over, revoked_at=lea.row.created_at)
    access.own_key(lea, "one-more")
    with access.begin() as uow:
        listed = uow.keys.keys(own_keys(access.known(lea.secret)), uow.now, 1_000)
    ended = {row.name for row in listed[KEYS_OF_PERSON_MAX:]}
    assert ended == {over.row.name, others[-1].row.name}
    assert listed[0].name == "one-more"


def test_invitations_and_sessions_that_are_over_are_removed_and_open_ones_bounded(
    access: AccessStory,
):
    lea = access.person("Lea", Role.VIEWER)
    past = lea.row.created_at - timedelta(days=9)
    given = {"created_at": past, "expires_at": past}
    with access.engine.begin() as connection:
        connection.execute(
            insert(tables.sessions),
            [{"id_hash": f"old-{n}", "key_id": lea.row.id, **given} for n in range(3)],
        )
        connection.execute(tables.invitations.update().values(given))
    new = NewSession("new", datetime.now(UTC), datetime.now(UTC) + timedelta(days=7))
    with access.begin() as uow:
        uow.people.add_session(new, access.known(lea.secret))
        kept = invite(uow, ENTROPY, access.admin, Role.VIEWER)
    assert [row.id_hash for row in fetch(access.engine, select(tables.sessions))] == ["new"]
    assert [row.id for row in fetch(access.engine, select(tables.invitations))] == [kept.row.id]
    with access.begin() as uow:
        for number in range(OPEN_INVITATIONS_MAX - 1):
            row = replace(kept.row, id=uuid4())
            uow.invitations.add(row, f"token-{number}")
        with pytest.raises(CommandRefused, match="has 200 invitations"):
            invite(uow, ENTROPY, access.admin, Role.VIEWER)
        revoke_invitation(uow, ENTROPY, access.admin, kept.row.id)
        assert invite(uow, ENTROPY, access.admin, Role.VIEWER).token


# --- who was removed ---


def test_who_is_a_member_of_nothing_any_more_comes_back_with_a_role(access: AccessStory):
    lea = access.person("Lea", Role.MAINTAINER)
    boss = access.known(access.service_key("boss", Role.MAINTAINER).secret)
    with access.begin() as uow:
        again = invite_again(uow, ENTROPY, access.admin, "Lea", Role.SUBMITTER)
        with pytest.raises(Forbidden):
            revoke_invitation(uow, ENTROPY, boss, again.row.id)
        key = access.accepted(uow, again.token).key
    assert key is not None
    assert access.known(key.secret).role is Role.MAINTAINER, "who is a member keeps its role"
    with access.begin() as uow:
        remove_member(uow, ENTROPY, access.admin, "Lea")
    assert not access.opens(lea.secret)
    with access.begin() as uow:
        again = invite_again(uow, ENTROPY, access.admin, "Lea", Role.SUBMITTER)
        back = access.accepted(uow, again.token)
    assert back.person.id == access.person_id("Lea")
    assert back.key is not None
    for secret in (lea.secret, back.key.secret):
        assert access.known(secret).role is Role.SUBMITTER


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
