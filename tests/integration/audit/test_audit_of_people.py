"""Audit rows hold no name and no address of a person; whoever reads them sees today's."""

from __future__ import annotations

import csv
import io
import json
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text

from app.api.audit.audit_routes import csv_parts, json_parts
from app.domain.access.identity_rules import IssuerRules, VerifiedIdentity
from app.domain.access.person_rules import removed_name
from app.domain.access.principal import Person, Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.orchestration.access.manage_invitations import accept, invite
from app.orchestration.access.manage_members import (
    anonymise_person,
    remove_member,
    set_disabled,
    set_member_role,
)
from app.orchestration.access.sign_in_identity import sign_in_identity
from app.orchestration.audit.record_action import record_action
from app.storage.access.web_sessions import NewSession
from app.storage.audit.audit_reports import AuditFilter, AuditReports, AuditRow
from app.storage.schema import tables
from tests.support.api.people_api import make_key, make_project
from tests.support.servers.table_rows import fetch, fetch_value
from tests.support.stories.seal_story import SealStory

ISSUER = "https://issuer.example.com"
RULES = IssuerRules("corp", "Corp", ISSUER, {}, frozenset({"example.com"}))
PEOPLE = tables.people


def listed(story: SealStory, who: str | None = None) -> list[AuditRow]:
    """The newest row first."""
    return AuditReports(story.engine).rows(AuditFilter(None, 100, who=who))


def shown(story: SealStory, who: str | None = None) -> set[tuple[str, str | None, str]]:
    """Action, who and what of each row that is about no key."""
    return {
        (row.entry.action.value, row.who, row.subject_name)
        for row in listed(story, who)
        if row.entry.subject_kind is not SubjectKind.KEY
    }


def stored(story: SealStory) -> str:
    """All rows, as text."""
    rows = "SELECT string_agg(entry::text, ' ') FROM audit_entries AS entry"
    return str(fetch_value(story.engine, text(rows)))


@pytest.fixture
def root(story: SealStory) -> Principal:
    project_id = make_project(story.engine, "alpha")
    make_key(story.engine, project_id, "root", Role.ADMIN)
    key_id = fetch_value(story.engine, select(tables.api_keys.c.id))
    return Principal(key_id, "root", project_id, "alpha", Role.ADMIN)


def invited(story: SealStory, root: Principal, name: str, email: str) -> Person:
    """A person who has accepted an invitation, and has a session."""
    entropy = story.runtime.entropy
    with story.runtime.begin() as uow:
        token = invite(uow, entropy, root, Role.VIEWER, email).token
        accepted = accept(uow, entropy, token, name)
        session = NewSession(uuid4().hex, uow.now, uow.now)
        uow.audit.add(session.entry(accepted.newcomer, entropy.new_id()))
    assert accepted.newcomer.person is not None
    return accepted.newcomer.person


def test_what_is_done_to_a_person_is_shown_by_its_name_of_today(story: SealStory, root: Principal):
    lea = invited(story, root, "Lea", "lea@example.com")
    entropy = story.runtime.entropy
    account = VerifiedIdentity(ISSUER, "lea.l", ("Lea",), "lea@example.com", True)
    with story.runtime.begin() as uow:
        sign_in_identity(uow, entropy, RULES, account, visitor=lea)
        set_member_role(uow, entropy, root, "Lea", Role.SUBMITTER)
        set_disabled(uow, entropy, root, "Lea", disabled=True)
        remove_member(uow, entropy, root, "Lea")
    assert story.seal() == 1
    own = {
        ("invitation.accept", "lea@example.com"),
        ("session.begin", "Lea"),
        ("identity.link", "Lea"),
    }
    done_to = {
        ("invitation.create", "lea@example.com"),
        ("member.role", "Lea"),
        ("person.disable", "Lea"),
        ("member.remove", "Lea"),
    }
    assert shown(story, "lea") == {(action, "Lea", what) for action, what in own}
    assert shown(story, "root") == {(action, "root", what) for action, what in done_to}
    assert "lea" not in stored(story).lower()

    # As on request of the person.
    with story.runtime.begin() as uow:
        gone = anonymise_person(uow, entropy, root, "Lea").name
        assert anonymise_person(uow, entropy, root, gone).name == gone
    assert gone == removed_name(lea.id)
    for table_of_people in (PEOPLE, tables.invitations, tables.sessions, tables.identities):
        assert "lea" not in str(fetch(story.engine, select(table_of_people))).lower()
    rows = listed(story)
    table = "".join(csv_parts(iter([rows])))
    lines = b"".join(json_parts(iter([rows]))).decode()
    assert "lea" not in f"{table}{lines}".lower()
    documents = [json.loads(line) for line in lines.splitlines()]
    names = {one["action"]: one["subject_name"] for one in documents}
    for action in ("session.begin", "identity.link", "member.role", "person.disable"):
        assert names[action] == gone
    [invitation] = {one["subject_id"] for one in documents if "invitation" in one["action"]}
    assert UUID(invitation)
    assert names["invitation.create"] == names["invitation.accept"] == invitation
    cells = [row["subject_name"] for row in csv.DictReader(io.StringIO(table))]
    assert cells == [one["subject_name"] for one in documents]
    assert names["person.anonymise"] == gone
    assert len(shown(story, gone)) == len(own)
    assert shown(story, "lea") == set()
    assert story.kinds() == []


def test_a_row_that_has_a_name_is_shown_by_it(story: SealStory, root: Principal):
    """Of a former release, which stored them, and of a service key, which is no person."""
    lea = invited(story, root, "Lea", "")
    make_key(story.engine, root.project_id, "ci", Role.VIEWER)
    with story.runtime.begin() as uow:
        subject = Subject(SubjectKind.MEMBER, str(lea.id), "Lea of then", root.project_id)
        record_action(uow, story.runtime.entropy, root, AuditAction.MEMBER_ROLE, subject)
        set_member_role(uow, story.runtime.entropy, root, "ci", Role.SUBMITTER)
    names = {name for action, _, name in shown(story) if action == "member.role"}
    assert names == {"Lea of then", "ci"}


def test_a_forged_row_does_not_stop_the_list(story: SealStory, root: Principal):
    with story.runtime.begin() as uow:
        for kind in (SubjectKind.MEMBER, SubjectKind.INVITATION):
            subject = Subject(kind, "no id", "", root.project_id)
            record_action(uow, story.runtime.entropy, root, AuditAction.MEMBER_ROLE, subject)
    assert shown(story) == {("member.role", "root", "no id")}
