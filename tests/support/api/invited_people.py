"""People who sign in by the pages, as a browser does: an invitation, its form, a key and a session,
and the login of a command that they confirm.

Not here: the served api (`people_api`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from app.domain.access.login_challenge import challenge_of, check_letters
from app.domain.access.roles import Role
from tests.support.api.people_api import PeopleApi, bearer, hidden_field, make_key

_KEY = re.compile(r'id="key" class="secret">(lt_[\w-]{43})<')
_CODE = re.compile(r'id="code" class="letters">([A-Z2-9]{4}-[A-Z2-9]{4})<')

USER_AGENT = 'Mozilla/5.0 (X11; Linux x86_64) Firefox/128.0 "><b>'
"""Anybody can send any name."""


class Browser:
    """Keeps cookies as a browser does, and no connection between requests."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.cookies = httpx.Cookies()

    def get(self, path: str) -> httpx.Response:
        """A page."""
        return self._send("GET", path)

    def post(self, path: str, data: dict[str, str]) -> httpx.Response:
        """A form that is sent."""
        return self._send("POST", path, data=data)

    def _send(self, method: str, path: str, **sent: Any) -> httpx.Response:
        agent = {"User-Agent": USER_AGENT}
        with httpx.Client(
            base_url=self._url, cookies=self.cookies, timeout=60, headers=agent
        ) as client:
            answer = client.request(method, path, **sent)
            self.cookies = client.cookies
        return answer


@dataclass
class Invited:
    """A person who has joined: its browser, and its key ("" where none was shown)."""

    name: str
    browser: Browser
    key: str
    page: str

    @property
    def headers(self) -> dict[str, str]:
        """Of a request with the key."""
        return bearer(self.key)


def admin_headers(api: PeopleApi, name: str) -> dict[str, str]:
    """Of a request with a new admin's service key."""
    return bearer(make_key(api.engine, api.project_id, name, Role.ADMIN))


def invitation(
    api: PeopleApi, headers: dict[str, str] | None = None, role: str = "submitter"
) -> str:
    """The token of a new invitation."""
    answer = api.client.post("/api/v1/invitations", json={"role": role}, headers=headers)
    assert answer.status_code == 201, answer.text
    path, _, token = answer.json()["link"].partition("#")
    assert path == "/invitation"
    return str(token)


def accept_with(browser: Browser, token: str, name: str) -> httpx.Response:
    """Fill in the form of an invitation."""
    form_token = hidden_field(browser.get("/invitation").text, "form_token")
    form = {"form_token": form_token, "token": token, "name": name}
    return browser.post("/invitation", data=form)


def invited(
    api: PeopleApi, name: str, role: str = "submitter", headers: dict[str, str] | None = None
) -> Invited:
    """A new person with this role in the project of the headers, by default the api's own."""
    browser = Browser(api.url)
    answer = accept_with(browser, invitation(api, headers, role), name)
    assert answer.status_code == 200, answer.text
    found = _KEY.search(answer.text)
    assert found is not None, answer.text
    return Invited(name, browser, found[1], answer.text)


def confirm_login(browser: Browser | httpx.Client, path: str) -> str:
    """The code that the page of a login shows once the browser's person has confirmed it there."""
    page = browser.get(path).text
    form = {name: hidden_field(page, name) for name in ("form_token", "challenge", "machine")}
    assert check_letters(form["challenge"]) in page
    found = _CODE.search(browser.post("/login", data=form).text)
    assert found is not None
    return found[1]


def confirmed(person: Invited, verifier: str, machine: str = "laptop") -> str:
    """The code of a login that the person has confirmed."""
    path = f"/login?challenge={challenge_of(verifier)}&machine={quote(machine)}"
    return confirm_login(person.browser, path)


def redeem(api: PeopleApi, verifier: str, code: str) -> httpx.Response:
    """What a machine gets for the code of its login."""
    return api.client.post("/api/v1/login", json={"verifier": verifier, "code": code})
