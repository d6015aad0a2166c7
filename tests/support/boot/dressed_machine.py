"""A machine that boots on a dressed root, for a job behind a real api, and what was told of it.

Not here: the root (`image_root`), or what images have (`image_notes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from app.api.agents.package_routes import router as wheel_router
from app.storage.schema import tables
from tests.support.api.agent_api import Gang, ServedApi, make_gang, make_runtime, served
from tests.support.boot.image_root import ImageBoot, ImageRoot, booting_image, image_root
from tests.support.servers.table_rows import row_of, rows_of


class DressedMachine:
    """A dressed root, the api and the job behind it."""

    def __init__(self, engine: Engine, api: ServedApi, gang: Gang, root: ImageRoot) -> None:
        self.engine, self.api, self.gang, self.root = engine, api, gang, root

    @contextmanager
    def boot(self, cloud: str = "ec2", stage: str = "", **more: str) -> Iterator[ImageBoot]:
        variables = {
            "LOWTIDE_CONTROL_URL": self.api.url,
            "LOWTIDE_LAUNCH_TOKEN": self.gang.token,
            **more,
        }
        machine = Gang.machine(self.gang.instance_ids[0])
        with booting_image(self.root, variables, machine, cloud, stage) as booted:
            yield booted

    def boots(self, cloud: str = "ec2", **more: str) -> str:
        """What it printed on the way to an agent that systemd starts."""
        with self.boot(cloud, **more) as booted:
            assert booted.wait() == 0, booted.output()
            assert "the agent starts" in booted.output()
            return booted.output()

    def reaches_the_agent(self, cloud: str = "ec2", **more: str) -> str:
        """What it printed until it asked for the agent, which is the last thing before pip."""
        with self.boot(cloud, LOWTIDE_WHEEL_SHA256="0" * 64, **more) as booted:
            assert "has the SHA-256" in booted.failure()
            return booted.output()

    def fails(self, cloud: str = "ec2", **more: str) -> str:
        """Why the boot gave up; the job's history says the same where anything could tell it."""
        with self.boot(cloud, **more) as booted:
            line = booted.failure()
        for told in self.history("boot_failed"):
            assert line.partition("boot failed: ")[2] in told
        return line

    def history(self, kind: str) -> list[str]:
        told = rows_of(self.engine, tables.events, job_id=self.gang.job_id, kind=kind)
        return [event.message for event in told]

    @property
    def registered(self) -> bool:
        found = row_of(self.engine, tables.instances, id=self.gang.instance_ids[0])
        return found.registered_at is not None


@contextmanager
def dressed_machine(engine: Engine, folder: Path) -> Iterator[DressedMachine]:
    """A machine with nothing on it, the api and its job."""
    runtime = make_runtime(engine, folder / "store")
    with served(engine, runtime) as api, image_root(folder / "machine") as root:
        api.app.include_router(wheel_router)
        yield DressedMachine(engine, api, make_gang(engine, runtime), root)
