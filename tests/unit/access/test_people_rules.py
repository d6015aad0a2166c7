"""Rules about people: what memberships make of a key, names, addresses of clients, codes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from uuid import UUID

import pytest

from app.domain.access.login_challenge import challenge_of, machine_name, require_challenge
from app.domain.access.may import (
    DEPLOYMENT,
    AccessDecision,
    Resource,
    may,
    require,
    require_role,
    require_somewhere,
)
from app.domain.access.person_rules import folded, read_email, read_name
from app.domain.access.principal import Person, Principal
from app.domain.access.roles import CHANGES_OF_PROJECT, Action, Role, role_of_person, within
from app.domain.access.session_rules import (
    CODE_LENGTH,
    CODE_LETTERS,
    AttemptKind,
    address_subject,
    code_of,
    read_code,
)
from app.domain.units.errors import Forbidden, InvalidValue

V, S, M, AU, AD = Role
HOME, OTHER = UUID(int=1), UUID(int=2)
LEA = UUID(int=7)
SIGN_IN = AttemptKind.SIGN_IN


def test_a_key_does_at_most_what_both_its_limit_and_the_person_may():
    assert within(M, S) is within(S, M) is S
    assert within(M, AU) is within(AU, S) is V
    for role in Role:
        assert within(role, AD) is within(AD, role) is within(role, role) is role
        assert within(role, V) is V


def test_what_a_membership_elsewhere_is_worth():
    assert role_of_person(None, None, AD) is None
    assert role_of_person(S, None, AD) is S
    assert role_of_person(None, AU, AD) is AU
    assert role_of_person(M, AU, AD) is M
    assert role_of_person(V, AD, AD) is role_of_person(None, AD, AD) is AD
    assert role_of_person(V, AD, S) is S


def lea(role: Role = S, elsewhere: Role | None = None, limit: Role = AD) -> Principal:
    person = Person(LEA, "Lea", elsewhere, limit)
    return Principal(UUID(int=9), "laptop", HOME, "home", role, person=person)


@pytest.mark.parametrize(
    ("elsewhere", "member_role", "opens"),
    [(None, None, False), (None, V, True), (AU, None, True), (AD, None, True)],
)
def test_a_project_opens_for_its_members_and_for_who_sees_all(
    elsewhere: Role | None, member_role: Role | None, opens: bool
):
    project = Resource(OTHER, member_role=member_role)
    decision = may(lea(elsewhere=elsewhere), Action.OPEN_PROJECT, project)
    assert decision is (AccessDecision.ALLOWED if opens else AccessDecision.HIDDEN)


@pytest.mark.parametrize("elsewhere", [AU, AD])
def test_a_limit_holds_for_what_opens_every_project(elsewhere: Role):
    for limit in Role:
        chief = lea(elsewhere=elsewhere, limit=limit)
        assert chief.opens_every_project is (limit in (AU, AD)), limit
        reads = may(chief, Action.READ_DEPLOYMENT, DEPLOYMENT) is AccessDecision.ALLOWED
        assert reads is (limit in (AU, AD)), limit


def test_an_auditor_elsewhere_reads_as_one_and_changes_as_what_it_is_here():
    auditing = lea(S, AU)
    for action, allowed in (
        (Action.READ_AUDIT, True),
        (Action.SUBMIT, True),
        (Action.COMMAND_JOB, False),
        (Action.MANAGE_KEYS, False),
    ):
        decision = may(auditing, action, Resource(HOME))
        assert (decision is AccessDecision.ALLOWED) is allowed, action
    operates = may(auditing, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    assert operates is AccessDecision.FORBIDDEN


def test_what_stands_in_for_a_lost_project_is_read_alone_until_it_is_named():
    stray = replace(lea(M), project_is_fallback=True)
    for action in set(Action) - {Action.OPEN_PROJECT}:
        known = may(lea(M), action, Resource(HOME))
        changes = action in CHANGES_OF_PROJECT
        assert may(stray, action, Resource(HOME)) is (
            AccessDecision.FORBIDDEN if changes else known
        )
        assert may(stray.in_named_project(), action, Resource(HOME)) is known
        inside = stray.inside(OTHER, "other", True, 0, M)
        assert may(inside, action, Resource(OTHER)) is known
    with pytest.raises(Forbidden, match="as 'home': use --project"):
        require_role(stray, Action.COMMAND_JOB)


def test_a_role_in_some_project_is_asked_of_the_key_before_the_project_is_known():
    require_somewhere(lea(V), Action.SUBMIT)
    with pytest.raises(Forbidden, match="'laptop' of Lea has the limit viewer"):
        require_somewhere(lea(V, limit=V), Action.SUBMIT)
    with pytest.raises(Forbidden, match="Lea has the role viewer"):
        require(lea(V), Action.SUBMIT, Resource(HOME))
    service = Principal(UUID(int=9), "ci", HOME, "home", V)
    with pytest.raises(Forbidden, match="The key 'ci' has the role viewer"):
        require_somewhere(service, Action.SUBMIT)


def test_in_another_project_a_person_has_the_role_that_it_has_there_and_its_own_name():
    there = lea(M, limit=S).inside(OTHER, "other", True, 0, V)
    assert (there.role, there.project_name, str(there.actor)) == (V, "other", "person:Lea")
    assert lea(V).inside(OTHER, "other", True, 0, M).role is M


def test_a_person_s_jobs_are_its_own_whatever_key_submitted_them():
    for owner, decision in ((LEA, AccessDecision.ALLOWED), (None, AccessDecision.FORBIDDEN)):
        job = Resource(HOME, UUID(int=5), owner)
        assert may(lea(), Action.COMMAND_JOB, job) is decision


def test_names_are_kept_as_they_are_written_but_for_spaces_and_composition():
    assert read_name("  Lea \t Müller ") == "Lea Müller"
    assert read_name("Jose\u0301") == "Jos\u00e9"
    assert folded("STRASSE") == folded("straße") == folded("\uff33trasse")
    assert folded("a\u200db") == folded("ab")


@pytest.mark.parametrize(
    "hidden",
    [
        "\U000e0100",
        "\U000e01ef",
        "\U00016fe4",
        "\U0001d159",
        "\u00ad",
        "\ufe0f",
        "\u2064",
        "\u3164",
    ],
)
def test_what_has_no_ink_is_no_part_of_a_name(hidden: str):
    with pytest.raises(InvalidValue, match="invisible"):
        read_name(f"Le{hidden}a")


@pytest.mark.parametrize(
    "name",
    [
        "00000000-0000-0000-0000-000000000007",
        "\uff10" * 32,
        "ABCDEF" + "0" * 26,
        "first use",
        "First  Use",
        "recovery on the host",
        "Recovered-1",
        "recovered-x",
        "Someone Removed 7",
    ],
)
def test_a_name_that_means_something_else_is_refused(name: str):
    with pytest.raises(InvalidValue, match="means something else"):
        read_name(name)


def test_a_sign_for_many_letters_is_counted_as_these():
    assert read_name("\u00df" * 80)
    with pytest.raises(InvalidValue, match="written out"):
        read_name("\ufdfa" * 80)
    assert read_name("\ufdfa")


@pytest.mark.parametrize("email", ["lea", "@", "a@", "a b@c.de", "a@b@c", f"{'x' * 65}@y.de"])
def test_what_is_no_address_is_refused(email: str):
    with pytest.raises(InvalidValue, match="lea@example"):
        read_email(email)


def test_addresses_are_kept_without_spaces_around():
    assert read_email(" léa@exämple.de ") == "léa@exämple.de"
    assert read_email("  ") is read_email(None) is None


def test_attempts_are_counted_by_address_and_of_ipv6_by_subscriber():
    same = {address_subject(SIGN_IN, f"2001:db8:1:2:{one:x}::7") for one in range(3)}
    assert same == {"address:2001:db8:1:2::/64"}
    assert address_subject(SIGN_IN, "2001:db8:1:3::7") not in same
    assert address_subject(SIGN_IN, "::ffff:192.0.2.1") == address_subject(SIGN_IN, "192.0.2.1")
    assert address_subject(SIGN_IN, "fe80::1%eth0") == "address:fe80::/64"
    assert address_subject(SIGN_IN, "") == address_subject(SIGN_IN, "unix") == "address:unknown"


def test_a_code_has_letters_that_can_be_told_apart_and_is_read_as_people_type_it():
    codes = {code_of(f"token-{number}") for number in range(200)}
    assert len(codes) == 200
    assert all(len(code) == CODE_LENGTH and set(code) <= set(CODE_LETTERS) for code in codes)
    assert not set(CODE_LETTERS) & set("AEIOU01")
    for one, other in ("B8", "S5", "Z2", "G6"):
        assert len({one, other} & set(CODE_LETTERS)) <= 1
    assert read_code(" bcdf-ghjk\n") == read_code("BCDF GHJK") == "BCDFGHJK"


def test_a_challenge_is_the_sha_256_of_its_verifier():
    # RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert challenge_of(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    require_challenge(challenge_of(verifier))
    for bad in ("", "x" * 42, "ü" * 43, hashlib.sha256(b"x").hexdigest()):
        with pytest.raises(InvalidValue, match="not whole"):
            require_challenge(bad)
    assert machine_name("Leas-MacBook.local") == "Leas-MacBook.local"
    assert machine_name("a\x1b[31mb\u202ec") == "a-31mb-c"
    asked = "the new build server. IT asks you to confirm"
    assert machine_name(asked) == "the-new-build-server.-IT-asks-you-to-confirm"
    assert machine_name(" ") == machine_name("名前") == "unknown"
    assert len(machine_name("x" * 500)) == 60
