"""A whole `lowtide up` on this machine, started and stopped as a person would, and questions to it.

Its folder lies on the disk, with the product's own settings. Not here: what is measured on it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from app.adapters.embedded.processes.run_record import describe_running
from app.cli.client.api_client import ApiClient
from app.cli.client.server_address import Server
from app.cli.demo.demo_control_plane import DemoControlPlane

T = TypeVar("T")
Document = dict[str, Any]


class LiveSystem:
    """One that is up. ready_seconds: from its command to its `ready` line."""

    def __init__(self, folder: Path, api: ApiClient, ready_seconds: float) -> None:
        self.folder = folder
        self.api = api
        self.ready_seconds = ready_seconds

    def pids(self) -> dict[str, int]:
        """Its programs."""
        return {one.name: one.pid for one in describe_running(self.folder) if one.alive}

    def job(self, name: str) -> Document:
        """A job's page."""
        found: Document = self.api.get(f"/jobs/{name}")
        return found

    def events(self, name: str, kind: str) -> list[Document]:
        """A job's events of a kind, oldest first."""
        every = self.api.pages(f"/jobs/{name}/events", limit=2000, turn="after")
        return [dict(event) for event in every if event["kind"] == kind]

    def machines(self, name: str) -> list[Document]:
        """All machines that a job has had, oldest first."""
        found = self.api.get("/instances", {"job": name, "live": False})["items"]
        return sorted(found, key=lambda one: (one["requested_at"], one["id"]))


@contextmanager
def up(folder: Path) -> Iterator[LiveSystem]:
    """`lowtide up` on a state folder, stopped at the end."""
    # The programs get this process's environment; a setting of this shell must not count.
    for name in [name for name in os.environ if name.startswith("LOWTIDE_")]:
        del os.environ[name]
    began = time.perf_counter()
    with DemoControlPlane(folder, 0, {}) as control_plane:
        ready = time.perf_counter() - began
        key = (folder / "admin.key").read_text("utf-8").strip()
        with ApiClient(Server(control_plane.url, key)) as api:
            yield LiveSystem(folder, api, ready)


def wait_for(look: Callable[[], T | None], what: str, seconds: float) -> T:
    """The first answer that is something; RuntimeError naming what never came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise RuntimeError(f"waited {seconds:g} s in vain for {what}")


def instant(text: str) -> datetime:
    """An instant of the api."""
    return datetime.fromisoformat(text)
