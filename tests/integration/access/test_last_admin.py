"""An admin with a key without an end is always left, whoever takes one away, and however."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from app.domain.access.identity_rules import IssuerRules, VerifiedIdentity
from app.domain.access.roles import Role
from app.domain.units.errors import CommandRefused
from app.orchestration.access.last_admin import is_last_admin
from app.orchestration.access.manage_keys import revoke_key, service_keys
from app.orchestration.access.manage_members import (
    anonymise_person,
    remove_member,
    set_disabled,
    set_member_role,
)
from app.orchestration.access.sign_in_identity import sign_in_identity
from app.storage.unit_of_work import UnitOfWork
from tests.support.api.agent_api import wait_until
from tests.support.servers.table_rows import fetch, fetch_value, waiting_for_locks
from tests.support.stories.access_story import ENTROPY, AccessStory

Change = Callable[[UnitOfWork], object]


@pytest.fixture
def access(engine: Engine) -> AccessStory:
    return AccessStory(engine)


def answers(
    access: AccessStory, first: Change, second: Change, then: Change | None = None
) -> list[str]:
    """Of two changes: the first is held open until the second waits for it, or is over; it ends
    with `then`.
    """
    in_hand, over = threading.Event(), threading.Event()

    def slowly() -> str:
        with access.begin() as uow:
            first(uow)
            in_hand.set()
            wait_until(lambda: over.is_set() or waiting_for_locks(access.engine) > 0, 60)
            if then is not None:
                then(uow)
        return "changed"

    def after() -> str:
        assert in_hand.wait(60)
        try:
            with access.begin() as uow:
                second(uow)
        except CommandRefused:
            return "refused"
        finally:
            over.set()
        return "changed"

    with ThreadPoolExecutor(2) as pool:
        return [one.result(120) for one in (pool.submit(slowly), pool.submit(after))]


def test_of_two_admins_keys_that_are_revoked_at_once_one_stays(access: AccessStory):
    access.service_key("second", Role.ADMIN)

    def revoke(name: str) -> Change:
        admin = access.admin
        return lambda uow: revoke_key(uow, ENTROPY, admin, service_keys(admin), name)

    assert answers(access, revoke("root"), revoke("second")) == ["changed", "refused"]


def test_of_two_people_who_are_lowered_and_disabled_at_once_one_stays(access: AccessStory):
    lea, admin = access.person("Lea", Role.ADMIN), access.admin
    access.person("Ben", Role.ADMIN)
    with access.begin() as uow:
        by = access.known(lea.secret)
        revoke_key(uow, ENTROPY, by, service_keys(by), "root")
    found = answers(
        access,
        lambda uow: set_member_role(uow, ENTROPY, admin, "Lea", Role.VIEWER),
        lambda uow: set_disabled(uow, ENTROPY, admin, "Ben", disabled=True),
    )
    assert found == ["changed", "refused"]


def test_where_no_admin_has_a_key_without_an_end_what_takes_none_away_goes_on(access: AccessStory):
    access.person("Lea", Role.VIEWER)
    access.person("Ben", Role.ADMIN)
    access.service_key("ci", Role.SUBMITTER)
    with access.begin() as uow:
        tomorrow = uow.now + timedelta(days=1)
    access.change_key(access.root, expires_at=tomorrow)
    admin = access.admin
    # Ben's key is the last one without an end.
    for take in (remove_member, anonymise_person):
        with pytest.raises(CommandRefused, match="leave no admin"), access.begin() as uow:
            take(uow, ENTROPY, admin, "Ben")
    with access.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE memberships SET role = 'viewer' WHERE role = 'admin'")
    with access.begin() as uow:
        assert set_disabled(uow, ENTROPY, admin, "Lea", disabled=True).disabled_at is not None
        assert revoke_key(uow, ENTROPY, admin, service_keys(admin), "ci").revoked_at is not None
        assert remove_member(uow, ENTROPY, admin, "Ben").name == "Ben"


def test_the_question_for_the_last_admin_changes_no_row(access: AccessStory):
    access.person("Lea", Role.ADMIN)
    lea, home, admin = access.person_id("Lea"), access.home_id, access.admin
    versions = "SELECT xmin::text FROM memberships ORDER BY 1"
    before = fetch(access.engine, versions)
    with access.begin() as uow:
        assert not is_last_admin(uow, lea, home), "the key of the project is left"
    with access.begin() as uow:
        revoke_key(uow, ENTROPY, admin, service_keys(admin), "root")
    with access.begin() as uow:
        assert is_last_admin(uow, lea, home)
    assert fetch(access.engine, versions) == before
    second = access.project("second")
    with access.begin() as uow:
        uow.people.add_member(lea, second.project_id, Role.ADMIN, uow.now, "test")
        assert not is_last_admin(uow, lea, home), "still an admin of the other project"


def test_a_sign_in_that_lowers_an_admin_and_a_change_by_hand_wait_for_each_other(
    access: AccessStory,
):
    groups = {"ops": {"home": Role.ADMIN}, "ml": {"home": Role.VIEWER}}
    rules = IssuerRules("corp", "Corp", "https://corp.example", groups)

    def sign_in(uow: UnitOfWork, group: str) -> None:
        identity = VerifiedIdentity(rules.issuer, "1", ("Lea",), groups=frozenset({group}))
        sign_in_identity(uow, ENTROPY, rules, identity)

    with access.begin() as uow:
        sign_in(uow, "ops")
    outcome = answers(
        access,
        lambda uow: uow.keys.lock_admins(),
        lambda uow: sign_in(uow, "ml"),
        lambda uow: set_member_role(uow, ENTROPY, access.admin, "Lea", Role.SUBMITTER),
    )
    assert outcome == ["changed", "changed"]
    assert fetch_value(access.engine, "SELECT role FROM memberships") == Role.SUBMITTER
