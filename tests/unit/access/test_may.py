"""May this key do that: each role, in its own project and another, to its own jobs and others'."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from app.domain.access.key_rules import expiry_of, is_key, require_grantable, require_name
from app.domain.access.may import (
    DEPLOYMENT,
    AccessDecision,
    Resource,
    may,
    require,
    require_role,
)
from app.domain.access.principal import Person, Principal
from app.domain.access.roles import GRANTABLE_BY, OWN_ROLES_OF, ROLES_OF, Action, Role
from app.domain.units.errors import Forbidden, InvalidValue, NotFound
from tests.support.stories.money_story import START

KEY, OTHER_KEY, PROJECT, OTHER_PROJECT = (UUID(int=number) for number in range(4))
ALLOWED, HIDDEN, FORBIDDEN = AccessDecision

V, S, M, AU, AD = Role
TABLE = {
    Action.READ: {V, S, M, AU, AD},
    Action.SUBMIT: {S, M, AD},
    Action.COMMAND_JOB: {M, AD},
    Action.MANAGE_KEYS: {M, AD},
    Action.MANAGE_RULES: {M, AD},
    Action.NAME_SECRETS: {S, M, AD},
    Action.MANAGE_SECRETS: {M, AD},
    Action.MANAGE_NOTIFICATIONS: {M, AD},
    Action.READ_AUDIT: {M, AU, AD},
    Action.MANAGE_MEMBERS: {M, AD},
    Action.MANAGE_OWN: {V, S, M, AU, AD},
    Action.READ_DEPLOYMENT: {AU, AD},
    Action.OPERATE_DEPLOYMENT: {AD},
    Action.OPEN_PROJECT: {AU, AD},
}
"""Written down a second time, so that a change of the table is meant."""


def principal(role: Role) -> Principal:
    return Principal(KEY, "ada", PROJECT, "alpha", role)


def test_the_table_is_as_documented():
    assert {action: set(ROLES_OF[action]) for action in Action} == TABLE
    assert {Action.COMMAND_JOB: {S}} == OWN_ROLES_OF


@pytest.mark.parametrize("action", sorted(set(Action) - {Action.OPEN_PROJECT}))
@pytest.mark.parametrize("role", list(Role))
def test_in_its_own_project_a_role_may_what_the_table_says(role: Role, action: Action):
    told = may(principal(role), action, Resource(PROJECT, OTHER_KEY))
    assert told is (ALLOWED if role in TABLE[action] else FORBIDDEN)


@pytest.mark.parametrize("action", sorted(set(Action) - {Action.OPEN_PROJECT}))
@pytest.mark.parametrize("role", list(Role))
def test_another_projects_things_are_hidden_from_every_role(role: Role, action: Action):
    for owner in (KEY, OTHER_KEY, None):
        assert may(principal(role), action, Resource(OTHER_PROJECT, owner)) is HIDDEN


def test_a_submitter_commands_its_own_jobs():
    for owner, told in ((KEY, ALLOWED), (OTHER_KEY, FORBIDDEN), (None, FORBIDDEN)):
        assert may(principal(S), Action.COMMAND_JOB, Resource(PROJECT, owner)) is told
    for role in (V, AU):
        assert may(principal(role), Action.COMMAND_JOB, Resource(PROJECT, KEY)) is FORBIDDEN


@pytest.mark.parametrize("role", list(Role))
def test_a_project_opens_for_its_keys_and_for_who_sees_all(role: Role):
    assert may(principal(role), Action.OPEN_PROJECT, Resource(PROJECT)) is ALLOWED
    told = may(principal(role), Action.OPEN_PROJECT, Resource(OTHER_PROJECT))
    assert told is (ALLOWED if role in (AU, AD) else HIDDEN)


def test_a_key_that_names_projects_opens_these_alone():
    named, lea = frozenset({PROJECT}), Person(UUID(int=9), "Lea", AD, M)
    member = Resource(OTHER_PROJECT, member_role=AD)
    for person in (lea, replace(lea, limit=AD), None):
        limited = replace(principal(M), person=person, projects=named)
        assert may(limited, Action.OPEN_PROJECT, member) is HIDDEN
        assert may(limited, Action.OPEN_PROJECT, Resource(PROJECT)) is ALLOWED
    both = replace(principal(S), projects=named | {OTHER_PROJECT})
    assert may(both, Action.OPEN_PROJECT, Resource(OTHER_PROJECT)) is ALLOWED
    assert may(both, Action.READ, Resource(OTHER_PROJECT)) is HIDDEN
    ended = replace(both, person=lea)
    assert may(ended, Action.OPEN_PROJECT, Resource(OTHER_PROJECT)) is HIDDEN
    assert may(ended, Action.OPEN_PROJECT, member) is ALLOWED


def test_what_concerns_the_deployment_is_forbidden_and_never_hidden():
    assert may(principal(M), Action.READ_DEPLOYMENT, DEPLOYMENT) is FORBIDDEN
    assert may(principal(AU), Action.READ_DEPLOYMENT, DEPLOYMENT) is ALLOWED
    assert may(principal(AU), Action.OPERATE_DEPLOYMENT, DEPLOYMENT) is FORBIDDEN


def test_a_refusal_names_the_key_its_role_and_the_roles_that_may():
    with pytest.raises(Forbidden) as refused:
        require(principal(V), Action.SUBMIT, Resource(PROJECT))
    assert refused.value.message == (
        "The key 'ada' has the role viewer, which may not submit jobs; use a key that has the role "
        "submitter, maintainer or admin."
    )
    with pytest.raises(Forbidden, match="or is the submitter that submitted it"):
        require(principal(S), Action.COMMAND_JOB, Resource(PROJECT, OTHER_KEY))
    with pytest.raises(NotFound):
        require(principal(AD), Action.READ, Resource(OTHER_PROJECT))
    require(principal(S), Action.SUBMIT, Resource(PROJECT))


def test_a_persons_refusal_names_the_project_in_which_the_role_is_too_little():
    person = Person(UUID(int=7), "Mia Müller", None, AD)
    with pytest.raises(Forbidden) as refused:
        require(replace(principal(S), person=person), Action.MANAGE_MEMBERS, Resource(PROJECT))
    assert refused.value.message == (
        "Mia Müller has the role submitter, which may not manage members; ask a maintainer or an "
        "admin of the project 'alpha' for the role maintainer or admin."
    )
    with pytest.raises(Forbidden, match="deployment; ask an admin for the role admin"):
        require(replace(principal(S), person=person), Action.OPERATE_DEPLOYMENT, DEPLOYMENT)


def test_a_role_that_may_do_it_to_nothing_is_refused_before_anything_is_looked_up():
    for role in (V, AU):
        with pytest.raises(Forbidden):
            require_role(principal(role), Action.COMMAND_JOB)
    for role in (S, M, AD):
        require_role(principal(role), Action.COMMAND_JOB)


@pytest.mark.parametrize("granting", list(Role))
@pytest.mark.parametrize("granted", list(Role))
def test_nobody_grants_more_than_it_has(granting: Role, granted: Role):
    if granted in GRANTABLE_BY.get(granting, set()):
        assert granting is AD or granted not in (AU, AD)
        require_grantable(granting, granted)
        return
    with pytest.raises(Forbidden, match="The role"):
        require_grantable(granting, granted)


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "A", "a b", "a/b", "ä", "a\n", "a.b", "a_b", "x" * 64, "..", "ci\0"]
)
def test_bad_names_are_refused(name: str):
    with pytest.raises(InvalidValue, match="cannot name a key"):
        require_name(name, "key")


@pytest.mark.parametrize("name", ["a", "ci", "team-7", "0", "x" * 63])
def test_good_names_are_taken(name: str):
    require_name(name, "key")


def test_a_key_has_one_form_and_a_bounded_life():
    assert is_key(f"lt_{'a' * 43}")
    for text in (
        "",
        "lt_",
        f"lt_{'a' * 42}",
        f"lt_{'ä' * 43}",
        f"lt_{'a' * 43}\n",
        f"xx_{'a' * 43}",
    ):
        assert not is_key(text)
    assert expiry_of(None, START) is None
    for seconds in (0, -1, 365 * 86_400 + 1, float("nan")):
        with pytest.raises(InvalidValue):
            expiry_of(seconds, START)
