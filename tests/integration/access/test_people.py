"""People: invited once, members of several projects, lowered, removed, disabled; and their keys."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import insert, select, text

from app.domain.access.person_rules import folded
from app.domain.access.roles import Role
from app.domain.deployment.credentials import digest
from app.domain.units.errors import NotFound
from app.orchestration.access.manage_invitations import accept
from app.storage.schema import tables
from tests.support.api.agent_api import wait_until
from tests.support.api.invited_people import (
    Browser,
    Invited,
    accept_with,
    admin_headers,
    invitation,
    invited,
)
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    browser_of,
    hidden_field,
    make_key,
    make_project,
    post,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import change_rows, fetch, fetch_value

PROJECT = "admin"
"""Of the served api."""
INVITATIONS, MEMBERS, PEOPLE = tables.invitations, tables.memberships, tables.people


def jobs(api: PeopleApi, key: str, project: str | None = None) -> int:
    named = {} if project is None else {"Lowtide-Project": project}
    return api.client.get("/api/v1/jobs", headers={**bearer(key), **named}).status_code


def _is_out(api: PeopleApi, key: str) -> bool:
    return jobs(api, key) == 401


def project_of(api: PeopleApi, name: str, root: dict[str, str]) -> dict[str, str]:
    """Headers of an admin in another project."""
    make_project(api.engine, name)
    return {**root, "Lowtide-Project": name}


def test_an_invitation_gives_a_member_a_session_and_one_key_shown_once(api: PeopleApi):
    lea = invited(api, "Lea  Müller")
    assert jobs(api, lea.key) == 200
    assert lea.browser.get("/jobs").status_code == 200
    assert lea.key not in lea.browser.get("/account").text
    me = api.client.get("/api/v1/me", headers=lea.headers).json()
    assert (me["person"], me["role"], me["project"]) == ("Lea Müller", "submitter", "admin")
    [row] = [row for row in api.items("/members") if row["name"] == "Lea Müller"]
    assert (row["kind"], row["role"], row["disabled_at"]) == ("person", "submitter", None)
    stored = str([fetch(api.engine, select(table)) for table in (tables.api_keys, INVITATIONS)])
    assert lea.key not in stored
    submitted = post(api, "/jobs", {**SPEC, "name": "of-lea"}, **lea.headers)
    assert submitted.status_code == 201
    [event] = api.items("/jobs/of-lea/events")
    assert event["actor"] == "person:Lea Müller"


@pytest.mark.parametrize(
    "name", ["王小明", "Ольга", "أميرة", "José", "O'Brien-Núñez 3rd", "क्षितिज"]
)
def test_names_of_every_script_are_shown_as_they_are(api: PeopleApi, name: str):
    person = invited(api, name, "viewer")
    assert f"Welcome, {name.replace(chr(39), '&#39;')}" in person.page
    found = api.client.get("/api/v1/me", headers=person.headers).json()
    assert found["person"] == name
    lowered = post(api, f"/members/{name}/role", {"role": "viewer"})
    assert lowered.json()["name"] == name, lowered.text


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "a/b",
        "person:x",
        "x" * 81,
        "Lea\u202ereversed",
        "Le\u200ba",
        "\u3164",
        "-",
        "a\0b",
    ],
)
def test_a_name_that_cannot_be_seen_or_told_apart_is_refused(api: PeopleApi, name: str):
    token, before = invitation(api), api.count(PEOPLE)
    browser = Browser(api.url)
    answer = accept_with(browser, token, name)
    assert answer.status_code == 422, answer.text
    assert 'role="alert"' in answer.text
    assert api.count(PEOPLE) == before
    assert accept_with(browser, token, f"good {uuid4().hex[:6]}").status_code == 200


def test_a_name_is_unique_whatever_its_case_and_width(api: PeopleApi):
    invited(api, "Ada Lovelace")
    make_key(api.engine, api.project_id, "robot")
    token = invitation(api)
    browser = Browser(api.url)
    for twin in (
        "ada lovelace",
        "ADA\u3000LOVELACE",
        "\uff21da Lovelace",
        "A\u200dda Lovelace",
        "robot",
    ):
        answer = accept_with(browser, token, twin)
        assert (answer.status_code, "is taken" in answer.text) == (422, True), twin
    invited(api, "grace")
    assert_refused(post(api, "/keys", {"name": "grace"}), 409, "A person is called 'grace'")


def test_a_token_that_is_forged_used_expired_or_taken_back_opens_nothing(api: PeopleApi):
    used, old, back = (invitation(api) for _ in range(3))
    first = Browser(api.url)
    assert accept_with(first, used, "First Come").status_code == 200
    past = api.parts.runtime.clock.now() - timedelta(seconds=1)
    change_rows(api.engine, INVITATIONS, INVITATIONS.c.token_hash == digest(old), expires_at=past)
    listed = api.items("/invitations")
    [taken] = [
        row.id for row in fetch(api.engine, select(INVITATIONS)) if row.token_hash == digest(back)
    ]
    assert str(taken) in {row["id"] for row in listed}
    assert post(api, f"/invitations/{taken}/revoke").json()["revoked_at"] is not None
    assert str(taken) not in {row["id"] for row in api.items("/invitations")}
    before = api.count(PEOPLE)
    late = Browser(api.url)
    for token in (used, old, back, "forged", "", "x" * 43, "ü" * 20):
        answer = accept_with(late, token, "Too Late")
        assert (answer.status_code, "unknown, was used or taken back" in answer.text) == (
            404,
            True,
        )
    assert api.count(PEOPLE) == before


def test_only_a_form_that_this_browser_was_shown_accepts(api: PeopleApi):
    token = invitation(api)
    browser = Browser(api.url)
    browser.get("/invitation")
    for form_token in ("", "0" * 64):
        form = {"form_token": form_token, "token": token, "name": "Mallory"}
        assert browser.post("/invitation", data=form).status_code == 403
    assert (
        fetch_value(
            api.engine,
            select(INVITATIONS.c.used_at).where(INVITATIONS.c.token_hash == digest(token)),
        )
        is None
    )


def test_the_audit_has_who_joined_and_who_invited(api: PeopleApi):
    root = admin_headers(api, "audited-root")
    una = invited(api, "Una")
    rows = api.client.get("/api/v1/audit?limit=4", headers=root).json()["items"]
    # The three of one moment come in no order.
    rows = [*sorted(rows[:3], key=lambda row: row["action"]), *rows[3:]]
    assert [(row["action"], row["who"]) for row in rows] == [
        ("invitation.accept", "Una"),
        ("key.create", "Una"),
        ("session.begin", "Una"),
        ("invitation.create", "ada"),
    ]
    assert {row["address"] for row in rows} == {"127.0.0.1"}
    assert len({row["request_id"] for row in rows}) == 2
    assert rows[0]["person_id"] is not None
    assert (rows[0]["key_id"], rows[3]["person_id"]) == (None, None)
    post(api, "/me/keys", {"name": "more"}, **una.headers)
    found = api.client.get("/api/v1/audit?who=una&action=key", headers=root).json()["items"]
    assert found[0]["subject_name"] == "more"
    # Which project one's own pages show is nobody's concern.
    page = una.browser.get("/account").text
    form = {"form_token": hidden_field(page, "form_token"), "project": "admin"}
    before = api.count(tables.audit_entries)
    assert una.browser.post("/account/project", form).status_code == 303
    assert api.count(tables.audit_entries) == before


def test_of_two_who_accept_at_once_one_joins(api: PeopleApi):
    token, runtime = invitation(api), api.parts.runtime
    in_hand, goes_on = threading.Event(), threading.Event()

    def slowly() -> str:
        with runtime.begin() as uow:
            person = accept(uow, runtime.entropy, token, "Quick").person
            in_hand.set()
            assert goes_on.wait(20)
        return person.name

    def after() -> str:
        assert in_hand.wait(20)
        threading.Timer(0.3, goes_on.set).start()
        # Waits for the row, which the other transaction has in hand.
        try:
            with runtime.begin() as uow:
                return accept(uow, runtime.entropy, token, "Second").person.name
        except NotFound:
            return "refused"

    with ThreadPoolExecutor(2) as pool:
        assert [one.result(30) for one in (pool.submit(slowly), pool.submit(after))] == [
            "Quick",
            "refused",
        ]


def test_nobody_invites_above_its_own_role_or_after_it_has_lost_it(api: PeopleApi):
    root = admin_headers(api, "inviting-root")
    boss = invited(api, "Boss", "maintainer")
    for role in ("admin", "auditor"):
        refused = post(api, "/invitations", {"role": role}, **boss.headers)
        assert_refused(refused, 403, "not " + role)
    assert_refused(post(api, "/invitations", {"email": "no address"}), 422, "email")
    assert_refused(post(api, "/invitations", {"role": "king"}), 422, "role")
    token = invitation(api, boss.headers, "maintainer")
    assert post(api, "/members/Boss/role", {"role": "submitter"}, **root).status_code == 200
    browser = Browser(api.url)
    assert accept_with(browser, token, "Friend of Boss").status_code == 404
    guest = post(api, "/keys", {"name": "visiting", "role": "maintainer", "expires_in": "7d"})
    refused = post(api, "/invitations", {}, **bearer(guest.json()["key"]))
    assert_refused(refused, 403, "people would outlast it")


def test_a_member_that_is_lowered_or_removed_is_so_for_its_keys_and_its_browsers(api: PeopleApi):
    kim = invited(api, "Kim", "maintainer")
    second = post(api, "/me/keys", {"name": "second"}, **kim.headers).json()["key"]
    assert post(api, "/keys", {"name": "of-kim"}, **bearer(second)).status_code == 201
    assert post(api, "/members/Kim/role", {"role": "viewer"}).json()["role"] == "viewer"
    wait_until(lambda: post(api, "/keys", {"name": "x1"}, **bearer(second)).status_code == 403, 2)
    refused = post(api, "/jobs", {**SPEC, "name": "not-kims"}, **kim.headers)
    assert_refused(refused, 403, "Kim has the role viewer, which may not submit jobs; ask a")
    assert "cancel-button" not in kim.browser.get("/jobs").text
    assert post(api, "/members/Kim/remove").status_code == 200
    for key in (kim.key, second):
        wait_until(partial(_is_out, api, key), 2)
    assert kim.browser.get("/jobs").headers["location"].startswith("/sign-in")
    assert_refused(post(api, "/members/Kim/remove"), 404, "no member 'Kim'")


def test_a_person_chooses_among_its_projects_and_others_are_not_there(api: PeopleApi):
    root = admin_headers(api, "choosing-root")
    there = project_of(api, "second-home", root)
    make_project(api.engine, "closed")
    noa = invited(api, "Noa", "viewer")
    answer = accept_with(noa.browser, invitation(api, there, "maintainer"), "unread")
    assert answer.status_code == 200
    assert "shown here once" not in answer.text, "her key opens this one, too"
    inside = {**noa.headers, "Lowtide-Project": "second-home"}
    roles = [
        api.client.get("/api/v1/me", headers=one).json()["role"] for one in (noa.headers, inside)
    ]
    assert roles == ["viewer", "maintainer"]
    assert post(api, "/jobs", {**SPEC, "name": "there"}, **inside).status_code == 201
    assert_refused(post(api, "/jobs", {**SPEC, "name": "here"}, **noa.headers), 403)
    spec = {**SPEC, "name": "by-spec", "project": "second-home"}
    assert post(api, "/jobs", spec, **noa.headers).json()["project"] == "second-home"
    closed, absent = (
        api.client.get("/api/v1/jobs", headers={**noa.headers, "Lowtide-Project": name})
        for name in ("closed", "absent")
    )
    assert closed.status_code == absent.status_code == 404
    assert closed.text.replace("closed", "absent") == absent.text
    # In the browser the choice is the session's.
    page = noa.browser.get("/account").text
    form = {"form_token": hidden_field(page, "form_token"), "project": "second-home"}
    assert noa.browser.post("/account/project", data=form).status_code == 303
    assert "second-home · Noa" in noa.browser.get("/jobs").text
    form["project"] = "closed"
    assert noa.browser.post("/account/project", data=form).status_code == 404
    # Removed from where her key was made, she still has the other.
    assert post(api, "/members/Noa/remove").status_code == 200
    api.parts.keys._remembered.clear()
    assert api.client.get("/api/v1/me", headers=noa.headers).json()["project"] == "second-home"


def test_a_person_s_jobs_are_its_own_with_every_key_and_in_the_browser(api: PeopleApi):
    ida, other = invited(api, "Ida"), invited(api, "Other")
    second = post(api, "/me/keys", {"name": "laptop"}, **ida.headers).json()["key"]
    assert post(api, "/jobs", {**SPEC, "name": "idas"}, **ida.headers).status_code == 201
    assert_refused(post(api, "/jobs/idas/pause", **other.headers), 403, "or is the submitter")
    assert post(api, "/jobs/idas/pause", **bearer(second)).json()["state"] == "paused"
    page = ida.browser.get("/jobs/idas").text
    form = {"form_token": hidden_field(page, "form_token")}
    assert ida.browser.post("/jobs/idas/cancel", data=form).status_code == 303
    assert api.get("/jobs/idas")["state"] == "cancelled"


def test_own_keys_do_at_most_what_they_were_made_for(api: PeopleApi):
    max_ = invited(api, "Max", "maintainer")
    reads = post(api, "/me/keys", {"name": "reads", "role": "viewer"}, **max_.headers).json()
    assert reads["role"] == "viewer"
    assert_refused(post(api, "/jobs", SPEC, **bearer(reads["key"])), 403, "viewer")
    # A lesser key makes no greater one, and one with an end none without.
    greater = post(api, "/me/keys", {"name": "greater", "role": "admin"}, **bearer(reads["key"]))
    assert greater.json()["role"] == "viewer"
    short = post(api, "/me/keys", {"name": "short", "expires_in": "1d"}, **max_.headers).json()
    refused = post(api, "/me/keys", {"name": "longer"}, **bearer(short["key"]))
    assert_refused(refused, 422, "your own key ends at")
    names = {
        row["name"]
        for row in api.client.get("/api/v1/me/keys", headers=max_.headers).json()["items"]
    }
    assert names > {"reads", "greater", "short"}
    assert not names & {row["name"] for row in api.items("/keys")}, "no service keys"
    turned = post(api, "/me/keys/reads/rotate", {"overlap": "0s"}, **max_.headers).json()
    assert turned["key"] != reads["key"]
    api.parts.keys._remembered.clear()
    assert (jobs(api, reads["key"]), jobs(api, turned["key"])) == (401, 200)
    assert post(api, "/me/keys/reads/revoke", **max_.headers).json()["revoked_by"] == "person:Max"
    wait_until(lambda: jobs(api, turned["key"]) == 401, 2)
    other = invited(api, "Not Max")
    assert_refused(post(api, "/me/keys/short/revoke", **other.headers), 404, "Not Max has no key")
    for path in ("/me/keys", "/me/keys/x/rotate", "/me/keys/x/revoke"):
        assert_refused(
            post(api, path, {"name": "x"} if path == "/me/keys" else {}), 409, "service key"
        )


def only_admin(api: PeopleApi, name: str) -> Invited:
    """A person who is the only admin with a key without an end."""
    root = admin_headers(api, f"{name}-maker")
    person = invited(api, name, "admin", root)
    others = tables.api_keys.c.role == Role.ADMIN
    mine = tables.api_keys.c.key_hash != digest(person.key)
    change_rows(
        api.engine, tables.api_keys, others & mine, revoked_at=api.parts.runtime.clock.now()
    )
    return person


def test_the_last_admin_is_neither_lowered_nor_removed_nor_disabled(api: PeopleApi):
    eve = only_admin(api, "Eve")
    for path, body in (
        ("/members/Eve/role", {"role": "maintainer"}),
        ("/members/Eve/remove", {}),
        ("/people/Eve/disable", {}),
    ):
        assert_refused(
            post(api, path, body, **eve.headers), 409, "Make a second key with the role admin"
        )
    [key] = api.client.get("/api/v1/me/keys", headers=eve.headers).json()["items"]
    assert_refused(
        post(api, f"/me/keys/{key['name']}/revoke", **eve.headers), 409, "leave no admin"
    )
    # Two admins who lower each other: one stays.
    ben = invited(api, "Ben", "admin", eve.headers)

    def lower(who: tuple[Invited, str]) -> int:
        by, whom = who
        path = f"{api.url}/api/v1/members/{whom}/role"
        return httpx.post(path, json={"role": "viewer"}, headers=by.headers, timeout=20).status_code

    with ThreadPoolExecutor(2) as pool:
        answers = sorted(pool.map(lower, [(eve, "Ben"), (ben, "Eve")]))
    left = select(MEMBERS.c.person_id).where(MEMBERS.c.role == Role.ADMIN)
    admins = {row.person_id for row in fetch(api.engine, left)}
    names = fetch(api.engine, select(PEOPLE.c.name).where(PEOPLE.c.id.in_(admins)))
    [stays] = {row.name for row in names} & {"Eve", "Ben"}
    assert answers in ([200, 409], [200, 403])
    # With a file that names neither, nor another admin, nothing changes; one may follow another.
    last, other = (eve, ben) if stays == "Eve" else (ben, eve)
    alone = {"projects": {PROJECT: {"members": {other.name: "viewer"}}}}
    assert_refused(post(api, "/projects/apply", alone, **last.headers), 409, "leave no admin")
    follows = {"projects": {PROJECT: {"members": {other.name: "admin"}}}}
    assert post(api, "/projects/apply", follows, **last.headers).status_code == 200
    wait_until(lambda: jobs(api, last.key) == 401, 2)


def test_an_admin_disables_a_person_and_invites_another_again(api: PeopleApi):
    root = admin_headers(api, "disabling-root")
    zoe = invited(api, "Zoe")
    assert post(api, "/people/Zoe/disable", **root).json()["disabled_at"] is not None
    wait_until(lambda: jobs(api, zoe.key) == 401, 2)
    assert zoe.browser.get("/jobs").status_code == 303
    people = api.client.get("/api/v1/people?limit=1000", headers=root).json()["items"]
    assert {row["name"]: row["disabled_at"] is not None for row in people}["Zoe"]
    assert post(api, "/people/Zoe/enable", **root).json()["disabled_at"] is None
    wait_until(lambda: jobs(api, zoe.key) == 200, 2)
    # Whose keys are lost gets another one by a link that an admin makes.
    assert_refused(post(api, "/invitations", {"person": "Zoe"}), 403, "admin")
    again = post(api, "/invitations", {"person": "Zoe"}, **root).json()
    browser = Browser(api.url)
    answer = accept_with(browser, again["link"].partition("#")[2], "unread")
    assert "Welcome, Zoe" in answer.text
    assert "shown here once" in answer.text
    told = "no person 'nobody': `lowtide person` lists all"
    assert_refused(post(api, "/people/nobody/disable", **root), 404, told)


def test_a_service_key_is_a_member_too(api: PeopleApi):
    key = post(api, "/keys", {"name": "pipeline", "role": "viewer"}).json()["key"]
    assert post(api, "/members/pipeline/role", {"role": "submitter"}).json()["kind"] == "key"
    wait_until(
        lambda: post(api, "/jobs", {**SPEC, "name": "p"}, **bearer(key)).status_code == 201, 2
    )
    assert_refused(post(api, "/members/pipeline/role", {"role": "admin"}), 403)
    assert post(api, "/members/pipeline/remove").json()["name"] == "pipeline"
    wait_until(lambda: jobs(api, key) == 401, 2)


def test_ten_thousand_members_are_listed_part_by_part(api: PeopleApi):
    root = project_of(api, "crowd", admin_headers(api, "crowd-root"))
    project = fetch_value(
        api.engine, select(tables.projects.c.id).where(tables.projects.c.name == "crowd")
    )
    now = api.parts.runtime.clock.now()
    names = [f"Person {number:05d}" for number in range(10_000)]
    rows = [
        {
            "id": UUID(int=10**6 + number),
            "name": name,
            "name_folded": folded(name),
            "created_at": now,
        }
        for number, name in enumerate(names)
    ]
    with api.engine.begin() as connection:
        connection.execute(insert(PEOPLE), rows)
        connection.execute(
            text(
                "INSERT INTO memberships (person_id, project_id, role, created_at) "
                "SELECT id, :project, 'viewer', created_at FROM people WHERE name LIKE 'Person %'"
            ),
            {"project": project},
        )
    post(api, "/keys", {"name": "person-between", "role": "viewer"}, **root)
    found: list[str] = []
    after: dict[str, Any] = {}
    for _ in range(11):
        page = api.client.get(
            "/api/v1/members", params={"limit": 1000, **after}, headers=root
        ).json()
        found += [row["name"] for row in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == [*names, "person-between"]
    for bad in ("", "person", "king/x"):
        refused = api.client.get("/api/v1/members", params={"after": bad}, headers=root)
        assert_refused(refused, 422, "after")


def test_a_sign_in_and_the_end_of_its_key_wait_for_each_other(api: PeopleApi):
    """Whichever is first: no session is left of a key that was revoked."""
    gil = invited(api, "Gil")
    runtime, held = api.parts.runtime, threading.Event()
    keys = tables.api_keys

    def revoke() -> None:
        with runtime.begin() as uow:
            uow.session.execute(
                select(keys.c.id)
                .where(keys.c.key_hash == digest(gil.key))
                .with_for_update(key_share=True)
            )
            held.set()
            threading.Event().wait(0.3)
            row = fetch_value(
                api.engine, select(keys.c.id).where(keys.c.key_hash == digest(gil.key))
            )
            uow.keys.end_sessions(row, uow.now)
            uow.keys.revoke_key(row, uow.now, "person:test")

    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(revoke)
        assert held.wait(20)
        with httpx.Client(base_url=api.url, timeout=20) as browser:
            token = hidden_field(browser.get("/sign-in").text, "form_token")
            answer = browser.post("/sign-in", data={"key": gil.key, "form_token": token})
        ending.result(20)
    assert answer.status_code == 401, "the sign-in has waited, and seen the end"
    with pytest.raises(AssertionError), browser_of(api, gil.key):
        pass
