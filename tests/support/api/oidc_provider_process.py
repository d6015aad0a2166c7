"""The certified issuer `oidc-provider` in a process of its own (tests/support/oidc_provider).

It checks what Lowtide sends by code that knows nothing of Lowtide: redirect address, secret, PKCE,
codes that are good once. Not here: an issuer that forges tokens (`oidc_issuer_server`), or what
came of a sign-in (`issuer_accounts`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from joserfc.jwk import RSAKey

from tests.support.api.invited_people import Browser
from tests.support.api.oidc_issuer_server import Account
from tests.support.servers.embedded import wait_until
from tests.support.servers.free_port import free_port

_FOLDER = Path(__file__).parents[1] / "oidc_provider"
_INSTALL = "run `make test-full`, or `make oidc-provider`, which installs it"
_STEPS_MAX = 12
_FORM = re.compile(r'<form[^>]* action="([^"]+)" method="post">(.*?)</form>', re.DOTALL)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


class ProviderProcess:
    """Its address is `url`. What accounts say may change at any time, keys with a start."""

    def __init__(self, folder: Path, client_id: str, secret: str, redirect_uri: str) -> None:
        """folder: for its settings and its log."""
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._folder = folder
        self._client = {
            "client_id": client_id,
            "client_secret": secret,
            "redirect_uri": redirect_uri,
        }
        self._accounts = folder / "accounts.json"
        self._log = folder / "provider.log"
        self._keys: list[dict[str, Any]] = []
        # Claims of a person are in no ID token, from the next start on.
        self.keeps_claims_at_userinfo = False
        self._process: subprocess.Popen[bytes] | None = None
        self.add_key()

    def add_key(self) -> str:
        """A new key, with which it signs from its next start on; the older ones stay published."""
        key = RSAKey.generate_key(2048, private=True, auto_kid=True)
        self._keys.insert(0, {**key.as_dict(private=True), "use": "sig"})
        return str(key.kid)

    def know(self, account: Account) -> None:
        """An account that can sign in by its subject, or other claims of one that it knows."""
        known = json.loads(self._accounts.read_text("utf-8")) if self._accounts.exists() else {}
        known[account.subject] = account.claims
        self._accounts.write_text(json.dumps(known), encoding="utf-8")

    def start(self) -> None:
        """It answers when this returns. Sessions and codes of before are forgotten."""
        assert self._process is None
        settings = self._folder / "settings.json"
        document = {
            **self._client, "port": self._port, "keys": self._keys, "accounts": str(self._accounts),
            "userinfo": self.keeps_claims_at_userinfo,
        }  # fmt: skip
        settings.write_text(json.dumps(document), encoding="utf-8")
        began = len(self.events())
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                [_node(), str(_FOLDER / "provider.mjs"), str(settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(
            lambda: process.poll() is not None or len(self.events()) > began,
            "oidc-provider listens",
            timeout_seconds=180,
        )
        assert process.poll() is None, self._log.read_text("utf-8")

    def kill(self) -> None:
        """SIGKILL; nothing listens when this returns. Nothing where it does not run."""
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.kill()

    def events(self) -> list[dict[str, Any]]:
        """What it has granted and refused, in order."""
        if not self._log.exists():
            return []
        lines = self._log.read_text("utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line[-1] == "\n"]


def _node() -> str:
    node = shutil.which("node")
    assert node is not None, f"this test needs Node.js 18 or newer as `node`: {_INSTALL}"
    package = _FOLDER / "node_modules" / "oidc-provider"
    assert package.is_dir(), f"this test needs the npm package oidc-provider: {_INSTALL}"
    return node


@contextmanager
def provider_process(
    folder: Path, client_id: str, secret: str, redirect_uri: str
) -> Iterator[ProviderProcess]:
    """It runs to the end of the block, unless a test kills it."""
    provider = ProviderProcess(folder, client_id, secret, redirect_uri)
    provider.start()
    try:
        yield provider
    finally:
        provider.kill()


def pass_forms(browser: Browser, address: str, login: str, until: str) -> str:
    """Follow redirects, and fill in the provider's forms, as far as an address that begins with
    `until`: that address.
    """
    for _ in range(_STEPS_MAX):
        if address.startswith(until):
            return address
        answer = browser.get(address)
        form = _FORM.search(answer.text)
        if form is not None:
            fields = {name: unescape(value) for name, value in _HIDDEN.findall(form[2])}
            if fields["prompt"] == "login":
                fields |= {"login": login, "password": "any"}
            answer = browser.post(unescape(form[1]), fields)
        assert answer.is_redirect, f"{answer.status_code}: {answer.text}"
        address = urljoin(address, answer.headers["location"])
    raise AssertionError(f"after {_STEPS_MAX} steps the browser is at {address}")
