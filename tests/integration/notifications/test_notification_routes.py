"""Channels and rules over REST, the command line and the page; where they lead is never shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import text

from app.domain.access.roles import Role
from app.domain.notifications.channel_targets import channel_context
from app.storage.schema import tables
from tests.support.api.agent_api import wait_until
from tests.support.api.people_api import PeopleApi, bearer, browser_of, make_key
from tests.support.cli.command_line import CommandLine
from tests.support.servers.table_rows import add_row, change_row, rows_of

URL = "https://hooks.example.com/services/T0/B0/hunter2"
CHANNELS = tables.notification_channels
DELIVERIES = tables.notification_deliveries
MAIL = {
    "kind": "smtp",
    "host": "smtp.example.com",
    "from": "lowtide@example.com",
    "to": ["ops@example.com"],
    "username": "lowtide",
    "password": "hunter2",
}


def put(api: PeopleApi, name: str, **body: Any) -> httpx.Response:
    sent = body or {"kind": "slack", "url": URL}
    return api.client.put(f"/api/v1/notifications/channels/{name}", json=sent)


def post(api: PeopleApi, path: str, **body: Any) -> httpx.Response:
    return api.client.post(f"/api/v1/notifications/{path}", json=body)


def stored(api: PeopleApi, name: str) -> Any:
    [row] = rows_of(api.engine, CHANNELS, name=name, removed_at=None)
    return row


def opened(api: PeopleApi, name: str) -> bytes:
    """Where a channel leads, as the sender reads it."""
    runtime, row = api.parts.runtime, stored(api, name)
    assert runtime.encryption is not None
    with runtime.begin() as uow:
        found = uow.channels.stored(row.id)
    assert found is not None
    context = channel_context(row.project_id, row.id, row.version)
    return runtime.encryption.open(found.sealed, context)


def delivery(api: PeopleApi, channel: str, state: str = "failed", **more: Any) -> UUID:
    """A row, as the sender leaves it."""
    row, delivery_id, now = stored(api, channel), uuid4(), datetime.now(UTC)
    message = {"kind": "failed", "title": "Job <bert> has failed", "text": "Out of memory."}
    add_row(
        api.engine, DELIVERIES, id=delivery_id, project_id=row.project_id, channel_id=row.id,
        source_id=row.id, kind="failed", occasion=str(delivery_id), message=message, state=state,
        created_at=now, tries=8, last_answer="answers 410 (channel_is_archived).", ended_at=now,
        **more,
    )  # fmt: skip
    return delivery_id


def test_where_a_channel_leads_is_encrypted_and_in_no_answer(api: PeopleApi):
    first = put(api, "team").json()
    assert (first["kind"], first["version"], first["signing_key"]) == ("slack", 1, None)
    assert first["destination"] == "https://hooks.example.com/…"
    signed = put(api, "program", kind="webhook", url=URL).json()
    assert len(signed["signing_key"]) >= 43
    assert (
        put(api, "program", kind="webhook", url=URL).json()["signing_key"]
        != (signed["signing_key"])
    )
    mail = put(api, "mail", **MAIL)
    assert mail.json()["destination"] == "ops@example.com by smtp.example.com"
    listed = api.client.get("/api/v1/notifications/channels").text
    assert {one["name"] for one in api.items("/notifications/channels")} >= {"team", "mail"}
    assert "signing_key" not in listed
    for answer in (listed, mail.text):
        assert "hunter2" not in answer
    with api.engine.connect() as connection:
        for table in tables.metadata.tables.values():
            rows = connection.execute(text(f"SELECT t::text FROM {table.name} t")).scalars()
            assert not [row for row in rows if "hunter2" in row or b"hunter2".hex() in row]
    assert b"hunter2" in opened(api, "team")
    change_row(api.engine, CHANNELS, stored(api, "team").id, version=9)
    with pytest.raises(Exception, match="not what was encrypted here"):
        opened(api, "team")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "pigeon", "url": URL}, "kind"),
        ({"kind": "slack"}, "url"),
        ({"kind": "slack", "url": URL.replace("https", "http")}, "encryption"),
        ({"kind": "slack", "url": URL.replace("hooks.example.com", "10.0.0.7")}, "is private"),
        ({"kind": "slack", "url": URL.replace("hooks.example.com", "169.254.169.254")}, "metadata"),
        ({"kind": "slack", "url": URL, "password": "hunter2"}, "password"),
        ({"kind": "slack", "url": f"{URL}\r\nX: y"}, "url"),
        ({"kind": "slack", "url": {"nested": URL}}, "url"),
        ({**MAIL, "url": URL}, "url"),
        ({**MAIL, "host": None}, "host"),
        ({**MAIL, "from": "a@example.com\r\nBcc: hunter2@example.com"}, "from"),
        ({**MAIL, "to": ["ops@example.com"] * 21}, "to"),
        ({**MAIL, "security": "none"}, "encryption"),
        ({**MAIL, "port": 70_000}, "port"),
        ({**MAIL, "username": None}, "username"),
    ],
)
def test_a_channel_that_cannot_be_is_refused(api: PeopleApi, body: dict[str, Any], field: str):
    answer = put(api, "never", **body)
    assert answer.status_code == 422, answer.text
    assert field in answer.text
    assert "T0/B0/hunter2" not in answer.text
    assert not rows_of(api.engine, CHANNELS, name="never")


def test_names_and_numbers_of_channels_have_bounds(api: PeopleApi):
    assert put(api, "Not-a-name").status_code == 422
    key = make_key(api.engine, api.project_id, "no-admin", Role.MAINTAINER)
    put(api, "bounds")
    leaked = {"channel": "bounds", "trigger": "machine_leaked"}
    path = "/api/v1/notifications/rules"
    assert api.client.post(path, json=leaked, headers=bearer(key)).status_code == 403
    assert post(api, "rules", channel="bounds", trigger="waiting").status_code == 422
    assert post(api, "rules", channel="bounds", trigger="failed", after="1h").status_code == 422
    assert post(api, "rules", channel="nowhere", trigger="failed").status_code == 404
    made = post(api, "rules", channel="bounds", trigger="waiting", after="90m").json()
    assert made["after_seconds"] == 5_400
    again = post(api, "rules", channel="bounds", trigger="waiting", after="1h 30m")
    assert again.status_code == 409
    assert post(api, f"rules/{made['id']}/remove").json() == {"id": made["id"]}
    assert post(api, f"rules/{made['id']}/remove").status_code == 404


def test_a_job_names_channels_of_its_project(api: PeopleApi):
    put(api, "named")
    spec = {"trainer": {"model": "mlp", "data": "digits", "steps": 9}}
    refused = api.submit({**spec, "notify": ["named", "nowhere"]})
    assert refused.status_code == 422
    assert "has no channel 'nowhere'" in refused.text
    taken = api.submit({**spec, "notify": "named"})
    assert taken.status_code == 201
    assert api.get(f"/jobs/{taken.json()['id']}")["spec"]["notify"] == ["named"]
    assert post(api, "channels/named/remove").status_code == 200
    copy = api.submit({**spec, "notify": ["named"]})
    assert (copy.status_code, "has no channel 'named'" in copy.text) == (422, True)
    assert api.get(f"/jobs/{taken.json()['id']}")["spec"]["notify"] == ["named"]


def test_deliveries_are_listed_in_parts_and_sent_again(api: PeopleApi):
    put(api, "listed")
    ids = [str(delivery(api, "listed")) for _ in range(3)]
    first = api.get("/notifications/deliveries", limit=2, state="failed")
    second = api.get("/notifications/deliveries", limit=200, after=first["next"], state="failed")
    found = [one["id"] for one in (*first["items"], *second["items"])]
    assert set(ids) <= set(found)
    assert found == sorted(found, reverse=True)
    assert post(api, f"deliveries/{ids[0]}/resend").json() == {"id": ids[0]}
    one = api.get(f"/notifications/deliveries/{ids[0]}")
    assert (one["state"], one["tries"], one["title"]) == ("waiting", 0, "Job <bert> has failed")
    assert post(api, f"deliveries/{ids[0]}/resend").status_code == 409
    assert post(api, f"deliveries/{uuid4()}/resend").status_code == 404
    assert api.client.get(f"/api/v1/notifications/deliveries/{uuid4()}").status_code == 404


def test_the_page_shows_channels_to_all_and_deliveries_to_maintainers(api: PeopleApi):
    put(api, "shown")
    post(api, "rules", channel="shown", trigger="waiting", after="1h")
    sent = delivery(api, "shown")
    form = f"/projects/admin/notifications/{sent}/resend"
    for role, manages in ((Role.VIEWER, False), (Role.MAINTAINER, True)):
        key = make_key(api.engine, api.project_id, f"page-{role}", role)
        with browser_of(api, key) as browser:
            assert 'href="/projects/admin/notifications"' in browser.get("/projects/admin").text
            page = browser.get("/projects/admin/notifications").text
        assert "waiting over 1h" in page
        assert "https://hooks.example.com/…" in page
        assert "hunter2" not in page
        assert (form in page, "channel_is_archived" in page) == (manages, manages)
        assert "<bert>" not in page
    assert api.client.get("/projects/admin/notifications?before=x").status_code in (303, 422)


@pytest.fixture
def cli(api: PeopleApi, tmp_path: Path) -> CommandLine:
    variables = {"LOWTIDE_SERVER_URL": api.url, "LOWTIDE_API_KEY": api.key}
    return CommandLine(tmp_path, variables)


@contextmanager
def sent_as(api: PeopleApi, channel: str, **outcome: Any) -> Iterator[None]:
    """What a sender would do with the next test of a channel."""
    channel_id = stored(api, channel).id

    def act() -> None:
        def fresh() -> list[Any]:
            return rows_of(api.engine, DELIVERIES, channel_id=channel_id, state="new")

        wait_until(lambda: bool(fresh()))
        change_row(api.engine, DELIVERIES, fresh()[0].id, tries=1, **outcome)

    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join(60)


def test_the_command_line_sets_tests_and_resends(api: PeopleApi, cli: CommandLine):
    set_it = ("notification", "set", "by-line", "--kind")
    assert cli.ok(*set_it, "slack", stdin=f"{URL}\n").out == (
        "Channel by-line leads to https://hooks.example.com/….\n"
    )
    assert "one line" in cli.fails(2, *set_it, "slack", stdin="a\nb\n").errors
    key = cli.ok(*set_it, "webhook", "-q", stdin=URL).out.strip()
    assert key.encode() in opened(api, "by-line")
    mail = ("--host", "smtp.example.com", "--from", "a@example.com", "--to", "b@example.com")
    cli.ok(*set_it, "smtp", *mail, "--username", "lowtide", stdin="hunter2\n")
    assert b'"password":"hunter2"' in opened(api, "by-line")
    assert (
        "waiting over 2h"
        in cli.ok("notification", "subscribe", "by-line", "waiting", "--after", "2h").out
    )
    assert "waiting over 2h" in cli.ok("notification").row("by-line", "b@example.com by smtp")
    [rule] = [one for one in cli.ok("notification", "rules", "--json").json
              if one["channel"] == "by-line"]  # fmt: skip
    cli.ok("notification", "unsubscribe", rule["id"])
    now = datetime.now(UTC)
    with sent_as(api, "by-line", state="delivered", last_answer="accepted", ended_at=now):
        assert "took it (accepted)" in cli.ok("notification", "test", "by-line").out
    failed = {"state": "waiting", "next_try_at": now, "last_answer": "smtp.example.com refuses."}
    with sent_as(api, "by-line", **failed):
        told = cli.fails(2, "notification", "test", "by-line").errors
        assert "It did not arrive: smtp.example.com refuses." in told
    sent = str(delivery(api, "by-line"))
    assert "410" in cli.ok("notification", "deliveries", "--state", "failed").row(sent)
    cli.ok("notification", "resend", sent)
    assert cli.ok("notification", "remove", "by-line").out == "Channel by-line is removed.\n"
    assert "no channel" in cli.fails(2, "notification", "remove", "by-line").errors
