"""An api with an issuer, and what came of a sign-in there: the account's person, roles and page.

Not here: the issuers (`oidc_issuer_server`, `oidc_provider_process`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from pydantic import SecretStr
from sqlalchemy import select

from app.storage.schema import tables
from tests.support.api.invited_people import Invited, invited
from tests.support.api.oidc_issuer_server import SECRET, Account
from tests.support.api.people_api import (
    PeopleApi,
    make_project,
    people_api_with_sessions,
    settings_for,
)
from tests.support.servers.table_rows import change_rows, fetch, rows_of

PEOPLE, MEMBERS = tables.people, tables.memberships


@contextmanager
def api_with_issuer(
    database_url: str, valkey_url: str, folder: Path, issuers: str, **settings: Any
) -> Iterator[PeopleApi]:
    """The whole api with two projects, `admin` and `vision`. issuers: the file with `corp`, which
    knows the client by SECRET.
    """
    file = folder / "oidc.yaml"
    file.write_text(issuers, encoding="utf-8")
    secrets = {"corp": SecretStr(SECRET)}
    made = settings_for(
        database_url, valkey_url, folder, oidc_file=file, oidc_client_secrets=secrets, **settings
    )
    with people_api_with_sessions(made) as served:
        make_project(served.engine, "vision")
        yield served


def account(*groups: str, **claims: Any) -> Account:
    """A new account in these groups."""
    subject = uuid4().hex
    named = {"preferred_username": f"person {subject[:8]}", "groups": list(groups)}
    return Account(subject, {**named, **claims})


def invited_with_address(api: PeopleApi, domain: str = "example.com") -> Invited:
    """Somebody who joined by an invitation, with an address of the domain."""
    name = f"known {uuid4().hex[:6]}"
    person = invited(api, name)
    change_rows(api.engine, PEOPLE, PEOPLE.c.name == name, email=f"{name[6:]}@{domain}")
    return person


def of_known(known: Invited, *groups: str, **claims: Any) -> Account:
    """A new account with that person's address at example.com, verified, but for other claims."""
    address = f"{known.name[6:].upper()}@Example.com"
    return account(*groups, **{"email": address, "email_verified": True, **claims})


def person_of(api: PeopleApi, one: Account) -> Any:
    """The person of an account; None for none."""
    found = rows_of(api.engine, tables.identities, subject=one.subject)
    return rows_of(api.engine, PEOPLE, id=found[0].person_id)[0] if found else None


def roles_of(api: PeopleApi, one: Account) -> dict[str, str]:
    """The role in each project."""
    statement = (
        select(tables.projects.c.name, MEMBERS.c.role)
        .join(tables.projects, tables.projects.c.id == MEMBERS.c.project_id)
        .where(MEMBERS.c.person_id == person_of(api, one).id)
    )
    return {row.name: row.role for row in fetch(api.engine, statement)}


def assert_in(answer: httpx.Response, path: str = "/jobs") -> None:
    """Signed in, and led to the path."""
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"] == path


def assert_out(answer: httpx.Response, reason: str, status: int = 403) -> None:
    """Refused by a page that says why, with nobody signed in."""
    assert answer.status_code == status, answer.text
    assert reason in answer.text
    assert 'href="/sign-in"' in answer.text
    assert "lowtide_session" not in answer.headers.get("set-cookie", "")
