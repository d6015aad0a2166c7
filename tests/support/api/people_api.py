"""The whole api program, served for real, with a project and its key in a real database.

Here: the served app, the keys, and a client. Not here: agents (`agent_api`), clouds, workers.
"""

from __future__ import annotations

import contextlib
import html
import re
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine, insert, select, update

from app.adapters.providers.local.server.cloud_stop import stop_cloud
from app.adapters.system_entropy import SystemEntropy
from app.api.main import create_app
from app.api.serving.api_parts import ApiParts
from app.api.serving.connection_limits import LimitedHttp
from app.bootstrap import local_cloud_folder
from app.domain.access.person_rules import folded
from app.domain.access.roles import Role
from app.domain.deployment.credentials import digest
from app.domain.market.offer import Hardware
from app.settings import Settings
from app.storage.schema import money_tables, tables
from app.storage.session.engine import make_engine
from tests.support.api.agent_api import POOL, Gang, make_gang, wait_until
from tests.support.api.described_answers import client_hooks
from tests.support.servers.table_rows import add_row, change_rows, fetch

SPEC = {"trainer": {"model": "mlp", "data": "digits", "steps": 100}}


@dataclass
class PeopleApi:
    """A served api. `client` carries the key of the project `admin`, and fails the test at any
    answer that is otherwise than /openapi.json says.
    """

    url: str
    app: FastAPI
    engine: Engine
    client: httpx.Client
    key: str
    project_id: UUID

    @property
    def parts(self) -> ApiParts:
        """What the routes work with."""
        parts: ApiParts = self.app.state.parts
        return parts

    def submit(self, spec: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        """POST a spec as JSON; header names are written with _ for -."""
        return post(self, "/jobs", spec or SPEC, **headers)

    def get(self, path: str, **query: Any) -> Any:
        """The document at a path below /api/v1; fails the test for anything but 200."""
        answer = self.client.get(f"/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """What a list at a path below /api/v1 holds."""
        found: list[dict[str, Any]] = self.get(path, **query)["items"]
        return found

    def as_stranger(self, project: str) -> dict[str, str]:
        """The headers of a request with a key of another project, which is made for it."""
        return bearer(make_key(self.engine, make_project(self.engine, project)))

    def submitted(self, **fields: Any) -> dict[str, Any]:
        """A job that was taken."""
        answer = self.submit({**SPEC, **fields})
        assert answer.status_code == 201, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def figures(self) -> str:
        """What Prometheus is told, by an auditor's key that is made for it."""
        key = make_key(self.engine, self.project_id, f"prometheus-{uuid4()}", Role.AUDITOR)
        return httpx.get(f"{self.url}/metrics", headers=bearer(key), timeout=60).text

    def count(self, table: Any) -> int:
        """Rows of a table."""
        return len(fetch(self.engine, select(table)))


def post(api: PeopleApi, path: str, body: Any = None, **headers: str) -> httpx.Response:
    """POST a body, by default an empty one, to a path below /api/v1; header names are written with
    _ for -.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.client.post(f"/api/v1{path}", json={} if body is None else body, headers=named)


def bearer(key: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"Authorization": f"Bearer {key}"}


def make_project(engine: Engine, name: str) -> UUID:
    """A project's row."""
    project_id = uuid4()
    add_row(engine, tables.projects, id=project_id, name=name, created_at=datetime.now(UTC))
    return project_id


def make_key(
    engine: Engine,
    project_id: UUID,
    name: str = "ada",
    role: Role = Role.MAINTAINER,
    *,
    is_admin: bool = False,
) -> str:
    """A key of a project, stored as its digest. is_admin: of an admin, whatever `role` says."""
    role = Role.ADMIN if is_admin else role
    key = f"lt_{SystemEntropy().new_token()}"
    add_row(
        engine,
        tables.api_keys,
        id=uuid4(),
        project_id=project_id,
        name=name,
        key_hash=digest(key),
        role=role,
        is_admin=role is Role.ADMIN,
        created_at=datetime.now(UTC),
    )
    return key


def make_person_key(engine: Engine, project_id: UUID, name: str, role: Role) -> str:
    """A personal key of a new person, who has this role in a project."""
    person_id, now = uuid4(), datetime.now(UTC)
    add_row(
        engine, tables.people, id=person_id, name=name, name_folded=folded(name), created_at=now
    )
    add_row(
        engine, tables.memberships, person_id=person_id, project_id=project_id, role=role,
        created_at=now,
    )  # fmt: skip
    return key_of_person(engine, project_id, person_id)


def key_of_person(engine: Engine, project_id: UUID, person_id: UUID) -> str:
    """A personal key without a limit."""
    key = make_key(engine, project_id, f"{person_id}/laptop", Role.VIEWER)
    keys = tables.api_keys
    change_rows(
        engine, keys, keys.c.key_hash == digest(key),
        person_id=person_id, own_name="laptop", limit_role=Role.ADMIN,
    )  # fmt: skip
    return key


@contextlib.contextmanager
def browser_of(api: PeopleApi, key: str) -> Iterator[httpx.Client]:
    """A client that has signed in with the key, as a browser does."""
    with httpx.Client(base_url=api.url, timeout=60) as client:
        form = {"key": key, "form_token": hidden_field(client.get("/sign-in").text, "form_token")}
        assert client.post("/sign-in", data=form).status_code == 303
        yield client


def hidden_field(page: str, name: str) -> str:
    """The value of a hidden field of a page."""
    found = re.search(rf'name="{name}" value="([^"]+)"', page)
    assert found is not None, page[:2_000]
    return html.unescape(found[1])


def revoke_key(engine: Engine, key: str) -> None:
    """End a key."""
    keys = tables.api_keys
    change_rows(engine, keys, keys.c.key_hash == digest(key), revoked_at=datetime.now(UTC))


def settings_for(database_url: str, redis_url: str, folder: Path, **other: Any) -> Settings:
    """Settings of an api with everything in one folder; checkpoints may lie anywhere."""
    other = {"checkpoint_roots": frozenset({Path("/")}), "port": 0, **other}
    return Settings(state_dir=folder, database_url=database_url, redis_url=redis_url, **other)


@contextlib.contextmanager
def people_api(settings: Settings) -> Iterator[PeopleApi]:
    """Serve the whole app by uvicorn in a thread, on the settings' port of this machine; where that
    is 0, on a free one.
    """
    assert settings.database_url is not None
    engine = make_engine(settings.database_url)
    project_id = make_project(engine, "admin")
    key = make_key(engine, project_id)
    app = create_app(settings)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=settings.port, http=LimitedHttp, log_level="warning",
        lifespan="on", proxy_headers=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(
            base_url=url, timeout=60, headers=bearer(key), event_hooks=client_hooks()
        ) as client:
            yield PeopleApi(url, app, engine, client, key, project_id)
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        engine.dispose()
        assert not thread.is_alive()
        # Asking for the local cloud's bill starts it; nobody else would end it.
        assert stop_cloud(local_cloud_folder(settings.state_dir), timeout_seconds=60) == 0


@contextlib.contextmanager
def people_api_with_sessions(settings: Settings) -> Iterator[PeopleApi]:
    """The same with the deployment's row, as a first start writes it: browsers can sign in."""
    with people_api(settings) as api:
        add_row(api.engine, tables.deployment, id=1, deployment_id=uuid4(), secret="s" * 43)
        yield api


def price_pool(api: PeopleApi, microusd_per_hour: int) -> None:
    """The one pool that is quoted, with this price."""
    pools = money_tables.pools
    with api.engine.begin() as connection:
        connection.execute(pools.delete())
        connection.execute(
            insert(pools).values(
                pool=POOL, provider="local", cloud="ec2",
                hardware=asdict(Hardware("V100", 1, 16, 8, 61)),
                price_microusd_per_hour=microusd_per_hour,
                on_demand_microusd_per_hour=3_060_000, quoted_at=datetime.now(UTC),
                price_source="test", billing_speed=1, refusals=0,
            )
        )  # fmt: skip


def make_own_gang(api: PeopleApi, nodes: int = 1, *, name: str, **spec: Any) -> Gang:
    """A job of the api's own project whose machines the cloud has started."""
    gang = make_gang(api.engine, api.parts.runtime, nodes, name=name, **spec)
    jobs, budgets = tables.jobs, tables.budgets
    with api.engine.begin() as connection:
        own = {"project_id": api.project_id}
        connection.execute(update(jobs).where(jobs.c.id == gang.job_id).values(own))
        connection.execute(update(budgets).where(budgets.c.job_id == gang.job_id).values(own))
    return gang
