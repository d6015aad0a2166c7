"""What each route and form that changes something needs first, made for one request.

Not here: what the request leaves in the audit (tests/integration/audit).
"""

from __future__ import annotations

import hashlib
import io
import itertools
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import httpx

from app.domain.access.roles import Role
from app.storage.schema import tables
from tests.support.api.notification_paths import CHANNEL, notified
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    browser_of,
    hidden_field,
    make_person_key,
)
from tests.support.servers.table_rows import add_row, fetch

OF_PEOPLE: Final = ("/api/v1/me/", "/account/", "/login")
_numbers = itertools.count(1)

Send = Callable[[], httpx.Response]


@dataclass
class PaperLocalCloud:
    """Interrupts on paper."""

    interrupted: list[str]

    def interrupt_as_usual(self, provider_instance_id: str) -> datetime:
        return self.interrupt(provider_instance_id, None)

    def interrupt(self, provider_instance_id: str, notice_seconds: float | None) -> datetime:
        self.interrupted.append(provider_instance_id)
        return datetime.now(UTC) + timedelta(seconds=notice_seconds or 0)

    def invoice(self, until: datetime | None = None) -> dict[str, dict[str, int]]:
        return {}


class Scene:
    """What each route needs is made first; then `send` is the one request that is looked at."""

    def __init__(self, api: PeopleApi, key: str, cloud: PaperLocalCloud) -> None:
        self.api, self.key, self.cloud = api, key, cloud
        self.stack = ExitStack()
        self.number = next(_numbers)
        # A copy of a job counts its name on, which must not be the next scene's.
        self.name = f"scene-{self.number}-job"

    def send(self, method: str, path: str) -> Send:
        """The request; what it needs is there when this returns."""
        if path.startswith(OF_PEOPLE):
            engine, project_id = self.api.engine, self.api.project_id
            self.key = make_person_key(engine, project_id, f"person {self.number}", Role.ADMIN)
        if path.startswith("/api/v1/"):
            return self._rest(method, path)
        return self._form(path)

    def _rest(self, method: str, path: str) -> Send:
        sent: dict[str, Any] = {"json": {}}
        filled = notified(self.api, self.key, self.name, path)
        filled = filled.replace("{job}", self.name).replace("{secret}", self.secret(path))
        if "{job}" in path or path.endswith("/batch"):
            self.submit()
        if path.endswith("/resume"):
            self.post(f"/api/v1/jobs/{self.name}/pause")
        if "{member}" in path or "{person}" in path:
            member = f"member {self.number}"
            make_person_key(self.api.engine, self.api.project_id, member, Role.VIEWER)
            filled = filled.replace("{member}", member).replace("{person}", member)
            filled = filled.replace("{key}", "laptop")
        if "{key}" in path or "{project}" in path or path.endswith("/apply"):
            self.post("/api/v1/keys", name=self.name)
            self.post("/api/v1/projects", name=self.name)
            filled = filled.replace("{key}", self.name).replace("{project}", self.name)
        if "/me/keys/" in path:
            self.post("/api/v1/me/keys", name=self.name)
        if path.endswith("/enable"):
            self.post(f"/api/v1/people/member {self.number}/disable")
        if "{invitation}" in path:
            made = self.post("/api/v1/invitations", role="viewer")
            filled = filled.replace("{invitation}", made["id"])
        if "{session}" in path:
            self.stack.enter_context(browser_of(self.api, self.key))
            filled = filled.replace("{session}", self.session())
        self.begin_what_ends(path)
        if "{digest}" in path:
            body = packed(self.name)
            filled = filled.replace("{digest}", f"sha256:{hashlib.sha256(body).hexdigest()}")
            sent = {"content": body}
        if "{instance_id}" in path:
            filled = filled.replace("{instance_id}", self.machine())
        bodies: dict[str, dict[str, Any]] = {
            "/api/v1/jobs": {**SPEC, "name": self.name},
            "/api/v1/jobs/batch": {"action": "cancel", "ids": [self.name]},
            "/api/v1/keys": {"name": self.name},
            "/api/v1/projects": {"name": self.name},
            "/api/v1/me/keys": {"name": self.name},
            "/api/v1/members/{member}/role": {"role": "submitter"},
            "/api/v1/projects/{project}/rules": {"rules": {"ceilings": {"nodes": 2}}},
            "/api/v1/projects/apply": {
                "projects": {self.name: {"rules": {"ceilings": {"nodes": 2}}}}
            },
            "/api/v1/secrets/{secret}": {"value": "first"},
            "/api/v1/secrets/{secret}/rotate": {"value": "second"},
            "/api/v1/notifications/channels/{channel}": CHANNEL,
            "/api/v1/notifications/rules": {"channel": self.name, "trigger": "failed"},
            "/api/v1/destroy": {"deployment_id": self.deployment_id()},
            "/api/v1/limits": {"limits": {"machines": self.number}},
            "/api/v1/projects/{project}/budget": {"monthly_usd": 25},
            "/api/v1/budget": {"monthly_usd": 1_000_000 + self.number},
            "/api/v1/freezes": {"cloud": "aws"},
            "/api/v1/freezes/thaw": {"cloud": "gcp"},
        }
        sent = {"json": bodies[path]} if path in bodies else sent
        headers = bearer(self.key)
        return lambda: httpx.request(
            method, f"{self.api.url}{filled}", headers=headers, timeout=30, **sent
        )

    def _form(self, path: str) -> Send:
        if path == "/sign-in":
            browser = self.stack.enter_context(httpx.Client(base_url=self.api.url, timeout=30))
            page = browser.get("/sign-in").text
            form = {"key": self.key, "form_token": hidden_field(page, "form_token")}
            return lambda: browser.post("/sign-in", data=form)
        job = str(self.submit()["id"])
        if path.startswith("/account/keys"):
            self.post("/api/v1/me/keys", name=self.name)
        browser = self.stack.enter_context(browser_of(self.api, self.key))
        if path.endswith("/resume"):
            self.post(f"/api/v1/jobs/{self.name}/pause")
        form = {
            "form_token": hidden_field(browser.get("/jobs").text, "form_token"),
            "once": f"once-{self.number}",
            "action": "submit" if path.endswith("/clone") else "cancel",
            "job": job,
            "challenge": f"{self.number:043d}",
            "machine": "laptop",
            "spec": f"{{name: {self.name}-copy, trainer: {{model: mlp, data: digits, steps: 9}}}}",
        }
        filled = notified(self.api, self.key, self.name, path)
        filled = filled.replace("{job}", self.name).replace("{key}", self.name)
        if "{session}" in path:
            filled = filled.replace("{session}", self.session())
        return lambda: browser.post(filled, data=form)

    def secret(self, path: str) -> str:
        """The name of this scene's secret, which is there where the route asks for one that is."""
        name = f"SCENE_{self.number}"
        if "{secret}/" in path:
            where, sent = f"/api/v1/secrets/{name}", {"value": "before"}
            assert self.api.client.put(where, json=sent, headers=bearer(self.key)).is_success
        return name

    def begin_what_ends(self, path: str) -> None:
        """What such a route is to end."""
        if path.endswith("/restore"):
            self.post(f"/api/v1/projects/{self.name}/archive")
        if path.endswith("{project}/thaw"):
            self.post(f"/api/v1/projects/{self.name}/freeze")
        if path == "/api/v1/freezes/thaw":
            self.post("/api/v1/freezes", cloud="gcp")
        if path == "/api/v1/freezes":
            self.post("/api/v1/freezes/thaw", cloud="aws")

    def session(self) -> str:
        """The id of the key's newest session."""
        found = self.api.client.get("/api/v1/me/sessions", headers=bearer(self.key)).json()
        return str(found["items"][0]["id"])

    def submit(self) -> dict[str, Any]:
        """A job of this scene's name, which the key owns."""
        return self.post("/api/v1/jobs", **SPEC, name=self.name)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """One more change, before the one that is looked at."""
        answer = self.api.client.post(path, json=body, headers=bearer(self.key))
        assert answer.is_success, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def machine(self) -> str:
        """A machine of the local cloud."""
        job, machine, now = self.submit(), uuid4(), datetime.now(UTC)
        add_row(
            self.api.engine, tables.instances, id=machine, job_id=UUID(job["id"]),
            provider="local", provider_instance_id=f"i-{self.number}", market="spot",
            state="requested", origin="launched", requested_at=now, updated_at=now,
            billing_speed=1, suspect=False, terminate_calls=0,
        )  # fmt: skip
        return str(machine)

    def deployment_id(self) -> str:
        """As `GET /sweep` has it."""
        return str(fetch(self.api.engine, "SELECT deployment_id FROM deployment")[0][0])


def packed(content: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content.encode()))
    return file.getvalue()
