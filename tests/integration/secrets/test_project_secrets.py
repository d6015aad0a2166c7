"""Secrets over REST, the command line and the page: set, rotated, removed, and never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select

from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction
from app.domain.deployment.secret_rules import SECRET_BYTES_MAX, SECRETS_OF_PROJECT_MAX
from app.storage.schema import tables
from tests.support.api.people_api import PeopleApi, bearer, browser_of, make_key, make_project
from tests.support.cli.command_line import CommandLine
from tests.support.servers.table_rows import add_rows, change_rows, fetch, rows_of

VALUE = "hunter2-of-wandb"
SECRETS = tables.secrets


@pytest.fixture(scope="module")
def keys(api: PeopleApi) -> dict[Role, dict[str, str]]:
    return {role: bearer(make_key(api.engine, api.project_id, f"of-{role}", role)) for role in Role}


def put(api: PeopleApi, name: str, value: str = VALUE, **more: Any) -> httpx.Response:
    return api.client.put(f"/api/v1/secrets/{name}", json={"value": value, **more})


def stored(api: PeopleApi, name: str) -> Any:
    [row] = rows_of(api.engine, SECRETS, name=name)
    return row


def test_a_secret_is_set_rotated_and_removed_and_no_answer_or_row_has_its_value(api: PeopleApi):
    made = put(api, "WANDB_API_KEY").json()
    assert (made["version"], made["for_maintainers"], made["readable"]) == (1, False, True)
    assert (made["created_by"], made["changed_by"]) == ("person:ada", "person:ada")
    path = "/api/v1/secrets/WANDB_API_KEY"
    rotated = api.client.post(f"{path}/rotate", json={"value": "another-of-wandb"}).json()
    assert (rotated["version"], rotated["created_at"]) == (2, made["created_at"])
    assert rotated in api.items("/secrets")
    kept = put(api, "WANDB_API_KEY", for_maintainers=True).json()
    assert (kept["version"], kept["for_maintainers"]) == (3, True)
    assert put(api, "WANDB_API_KEY").json()["for_maintainers"] is True
    row = stored(api, "WANDB_API_KEY")
    assert VALUE.encode() not in row.content + row.wrapped_key
    removed = api.client.post(f"{path}/remove").json()
    assert removed["removed_at"] is not None
    assert (stored(api, "WANDB_API_KEY").content, stored(api, "WANDB_API_KEY").key_id) == (
        None,
        None,
    )
    assert "WANDB_API_KEY" not in {one["name"] for one in api.items("/secrets")}
    for gone in (f"{path}/remove", f"{path}/rotate"):
        assert (
            api.client.post(gone, json={"value": "x"} if "rotate" in gone else {}).status_code
            == 404
        )
    assert put(api, "WANDB_API_KEY").json()["version"] == 5, "a version is never used twice"
    told = [row.action for row in rows_of(api.engine, tables.audit_entries)
            if row.subject_name == "WANDB_API_KEY"]  # fmt: skip
    assert sorted(told) == [AuditAction.SECRET_REMOVE, *[AuditAction.SECRET_SET] * 5]


def test_who_sees_which_names(api: PeopleApi, keys: dict[Role, dict[str, str]]):
    put(api, "FOR_ALL")
    put(api, "FOR_FEW", for_maintainers=True)
    seen = {Role.SUBMITTER: {"FOR_ALL"}, Role.MAINTAINER: {"FOR_ALL", "FOR_FEW"}}
    for role, names in seen.items():
        answer = api.client.get("/api/v1/secrets", headers=keys[role]).json()
        assert {"FOR_ALL", "FOR_FEW"} & {one["name"] for one in answer["items"]} == names
    for role in (Role.VIEWER, Role.AUDITOR):
        assert api.client.get("/api/v1/secrets", headers=keys[role]).status_code == 403
    for role, shown in ((Role.VIEWER, False), (Role.SUBMITTER, True)):
        with browser_of(api, keys[role]["Authorization"].split()[1]) as browser:
            page = browser.get("/projects/admin").text
        assert ("FOR_ALL" in page, "FOR_FEW" in page) == (shown, False)
    stranger = api.as_stranger("elsewhere")
    assert api.client.get("/api/v1/secrets", headers=stranger).json()["items"] == []
    path = "/api/v1/secrets/FOR_ALL/remove"
    assert api.client.post(path, headers=stranger).status_code == 404


def test_a_key_file_of_no_use_is_told_in_the_list_and_keeps_nobody_from_removing(
    api: PeopleApi, cli: CommandLine
):
    put(api, "OPEN_TO_ALL")
    key_file = api.parts.settings.state_dir / "secrets.key"
    in_order = cli.run("doctor", "-q").out
    key_file.chmod(0o644)
    try:
        found = cli.run("doctor", "--json").json["findings"]
        refused = put(api, "OPEN_TO_ALL")
        listed = {one["name"]: one["readable"] for one in api.items("/secrets")}
        removed = api.client.post("/api/v1/secrets/OPEN_TO_ALL/remove")
    finally:
        key_file.chmod(0o600)
    assert refused.status_code == 409
    assert "chmod 600" in refused.json()["detail"]
    assert listed["OPEN_TO_ALL"] is False
    assert removed.status_code == 200, "what is done is not told as refused"
    assert "secrets" not in in_order
    [told] = [one for one in found if one["name"] == "secrets"]
    assert (told["ok"], f"chmod 600 {key_file}" in told["sentence"]) == (False, True)


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("1A", {"value": VALUE}, "cannot name a secret"),
        ("A-B", {"value": VALUE}, "cannot name a secret"),
        ("lowtide_x", {"value": VALUE}, "are set by Lowtide"),
        ("A", {"value": ""}, "is empty"),
        ("A", {"value": f"{VALUE}\0"}, "without NUL"),
        ("A", {"value": VALUE * SECRET_BYTES_MAX}, "value"),
        ("A", {"value": VALUE * (SECRET_BYTES_MAX // 8)}, "at most 65,536"),
        ("A", {"value": {"nested": VALUE}}, "value"),
        ("A", {"valu": VALUE}, "valu"),
    ],
)
def test_what_is_refused_repeats_no_value(
    api: PeopleApi, name: str, body: dict[str, Any], told: str
):
    answer = api.client.put(f"/api/v1/secrets/{name}", json=body)
    assert answer.status_code in (413, 422), answer.text
    assert told in answer.text or answer.status_code == 413
    assert VALUE not in answer.text


def test_a_project_has_at_most_200(api: PeopleApi):
    project_id = make_project(api.engine, "many")
    headers = bearer(make_key(api.engine, project_id))
    path = "/api/v1/secrets/FIRST"
    assert api.client.put(path, json={"value": VALUE}, headers=headers).is_success
    [first] = fetch(api.engine, select(SECRETS).where(SECRETS.c.project_id == project_id))
    rows = [
        {**first._mapping, "id": UUID(int=number), "name": f"N{number}"}
        for number in range(1, SECRETS_OF_PROJECT_MAX)
    ]
    add_rows(api.engine, SECRETS, rows)

    def one_more() -> httpx.Response:
        return api.client.put("/api/v1/secrets/MORE", json={"value": VALUE}, headers=headers)

    refused = one_more()
    assert refused.status_code == 409
    assert "has 200 secrets" in refused.json()["detail"]
    assert api.client.put(path, json={"value": VALUE}, headers=headers).is_success
    assert api.client.post(f"{path}/remove", headers=headers).is_success
    assert one_more().is_success
    change_rows(
        api.engine, SECRETS, SECRETS.c.project_id == project_id,
        removed_at=first.changed_at, key_id=None, wrapped_key=None, content=None,
    )  # fmt: skip


@pytest.fixture
def cli(api: PeopleApi, tmp_path: Path) -> CommandLine:
    settings = api.parts.settings
    return CommandLine(
        tmp_path,
        {
            "LOWTIDE_SERVER_URL": api.url,
            "LOWTIDE_API_KEY": api.key,
            "LOWTIDE_DATABASE_URL": settings.database_url or "",
            "LOWTIDE_STATE_DIR": str(settings.state_dir),
        },
    )


def opened(api: PeopleApi, name: str) -> bytes:
    """The value of a secret of the api's own project, as a machine would be given it."""
    runtime = api.parts.runtime
    assert runtime.encryption is not None
    with runtime.begin() as uow:
        own = (one for one in uow.secrets.stored(1_000) if one.row.project_id == api.project_id)
        [found] = [one for one in own if one.row.name == name]
    context = ("secret", str(api.project_id), name, str(found.row.version))
    return runtime.encryption.open(found.sealed, context)


def test_the_command_line_takes_a_value_by_stdin_or_file_alone(
    api: PeopleApi, cli: CommandLine, tmp_path: Path
):
    assert cli.ok("secret", "set", "BY_LINE", stdin="one line\n").out == (
        "Secret BY_LINE has a value: version 1.\n"
    )
    assert opened(api, "BY_LINE") == b"one line"
    cli.ok("secret", "set", "BY_LINES", "--for-maintainers", stdin="two\nlines\n")
    assert opened(api, "BY_LINES") == b"two\nlines\n", "a key file keeps its last newline"
    file = tmp_path / "key.json"
    file.write_text('{"a": 1}\n')
    cli.ok("secret", "rotate", "BY_LINE", "--file", str(file))
    assert opened(api, "BY_LINE") == b'{"a": 1}\n'
    assert "maintainers" in cli.ok("secret").row("BY_LINES")
    assert "1" in cli.ok("secret", "list").row("BY_LINES")
    assert "no secret 'BY_LIME'" in cli.fails(2, "secret", "rotate", "BY_LIME", stdin="x").errors
    assert "not UTF-8" in cli.fails(2, "secret", "set", "BY_LINE", stdin=b"\xff\n").errors
    too_much = b"x" * (SECRET_BYTES_MAX + 1)
    assert "65,536" in cli.fails(2, "secret", "set", "BY_LINE", stdin=too_much).errors
    assert cli.ok("secret", "remove", "BY_LINE").out == "Secret BY_LINE is removed.\n"
    assert cli.fails(2, "secret", "set", "BY_LINE", "value").exit_code == 2


def keys_in(text: str) -> set[str]:
    return {line for line in text.splitlines() if not line.startswith("#")}


def test_on_the_server_every_secret_is_checked_and_put_under_another_key(
    api: PeopleApi, cli: CommandLine
):
    put(api, "KEPT")
    key_file = api.parts.settings.state_dir / "secrets.key"
    before = key_file.read_text()
    assert "can be read." in cli.ok("secret", "verify").out
    assert "of them under another key than before" in cli.ok("secret", "rekey").out
    assert keys_in(before).isdisjoint(keys_in(key_file.read_text()))
    assert opened(api, "KEPT") == VALUE.encode()
    assert stored(api, "KEPT").version == 1
    assert cli.ok("secret", "rekey", "--keep-key", "--json").json["rewrapped"] == 0
    change_rows(api.engine, SECRETS, SECRETS.c.name == "KEPT", content=b"changed")
    ran = cli.run("secret", "verify")
    assert ran.exit_code == 1
    assert "admin: KEPT cannot be read: its row was changed in the database" in ran.out
    told = cli.run("secret", "rekey", "--json")
    assert told.exit_code == 1
    assert told.json["unreadable"] == [{"project": "admin", "name": "KEPT", "key_id": None}]
    put(api, "KEPT")
    assert cli.ok("secret", "verify").exit_code == 0
