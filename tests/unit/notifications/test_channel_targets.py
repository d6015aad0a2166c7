"""Where a channel leads: what is read, what is refused without being repeated, what is shown."""

from __future__ import annotations

import json

import pytest

from app.domain.notifications.channel_targets import (
    ChannelKind,
    MailSecurity,
    MailTarget,
    WebTarget,
    mail_target,
    read_target,
    read_web_address,
    shown_destination,
    target_document,
)
from app.domain.units.errors import InvalidValue

URL = "https://hooks.example.com/services/T0/B0/hunter2"


def mail(**fields: object) -> MailTarget:
    given = {
        "host": "smtp.example.com",
        "port": None,
        "security": MailSecurity.STARTTLS,
        "sender": "lowtide@example.com",
        "recipients": ["ops@example.com"],
        "username": None,
        "password": None,
        **fields,
    }
    return mail_target(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "host", "port", "encrypted", "target"),
    [
        (URL, "hooks.example.com", 443, True, "/services/T0/B0/hunter2"),
        ("https://A.Example.com.:8443?key=1", "a.example.com", 8443, True, "/?key=1"),
        ("https://[2606:4700::1111]/x", "2606:4700::1111", 443, True, "/x"),
        ("http://127.0.0.1:8080", "127.0.0.1", 8080, False, "/"),
    ],
)
def test_an_address_has_parts(written: str, host: str, port: int, encrypted: bool, target: str):
    address = read_web_address(written)
    assert (address.host, address.port) == (host, port)
    assert (address.encrypted, address.target) == (encrypted, target)


@pytest.mark.parametrize(
    "written",
    [
        "hooks.example.com/hunter2",
        "ftp://hooks.example.com/hunter2",
        "https://user:hunter2@hooks.example.com/",
        "https://hooks.example.com\\@127.0.0.1/hunter2",
        "https://hooks.example.com/hunter2\r\nX: y",
        "https://hooks.example.com/hunter2 x",
        "https://bücher.example/hunter2",
        "https:///hunter2",
        "https://hooks.example.com:99999/hunter2",
        f"https://hooks.example.com/hunter2{'x' * 2_000}",
    ],
)
def test_another_address_is_refused_and_not_repeated(written: str):
    with pytest.raises(InvalidValue) as refused:
        read_web_address(written)
    assert refused.value.field == "url"
    assert "hunter2" not in refused.value.message


def test_lists_show_where_a_channel_leads_and_nothing_that_opens_it():
    assert shown_destination(WebTarget(URL)) == "https://hooks.example.com/…"
    with_port = WebTarget("http://[::1]:8080/hunter2?x=hunter2")
    assert shown_destination(with_port) == "http://[::1]:8080/…"
    target = mail(username="lowtide", password="hunter2")
    assert shown_destination(target) == "ops@example.com by smtp.example.com"
    assert "hunter2" not in repr([WebTarget(URL, "hunter2"), target, read_web_address(URL)])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"host": "smtp.example.com/x"}, "host"),
        ({"host": ""}, "host"),
        ({"port": 0}, "port"),
        ({"sender": "Lowtide <lowtide@example.com>"}, "from"),
        ({"sender": "a@example.com\r\nBcc: b@example.com"}, "from"),
        ({"recipients": []}, "to"),
        ({"recipients": ["ops@example.com"] * 21}, "to"),
        ({"recipients": ["ops@example.com, eve@example.com"]}, "to"),
        ({"username": "lowtide"}, "username"),
        ({"username": "low\r\ntide", "password": "x"}, "username"),
        ({"username": "lowtide", "password": ""}, "password"),
    ],
)
def test_a_mail_target_that_cannot_be_is_refused(fields: dict[str, object], field: str):
    with pytest.raises(InvalidValue) as refused:
        mail(**fields)
    assert refused.value.field == field


def test_the_port_is_that_of_the_encryption():
    assert [mail(security=one).port for one in MailSecurity] == [465, 587, 25]
    assert mail(port=2525).port == 2525


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (ChannelKind.SLACK, WebTarget(URL)),
        (ChannelKind.WEBHOOK, WebTarget(URL, "key")),
        (ChannelKind.SMTP, mail(username="lowtide", password="hunter2")),
        (ChannelKind.SMTP, mail()),
    ],
)
def test_a_target_is_read_as_it_was_written(kind: ChannelKind, target: WebTarget | MailTarget):
    assert read_target(kind, json.loads(json.dumps(target_document(target)))) == target
