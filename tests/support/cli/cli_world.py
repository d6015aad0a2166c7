"""A small deployment seen from the command line: a job that runs, one that failed, their money.

Here: its rows, a served api over them, and a command line with a key of their project. Not here:
how rows of money come about (`money_story`), or running a command (`command_line`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine, insert, select

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Instance, Job
from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.job import JobState
from app.settings import Settings
from app.storage.schema import tables
from tests.support.api.people_api import PeopleApi, make_key, people_api
from tests.support.cli.command_line import CommandLine
from tests.support.stories.money_story import START, MoneyStory

TRAINER = "trainer: {model: mlp, data: digits, epochs: 2}\n"


@dataclass
class World:
    """A deployment with one job that runs, and one that has ended."""

    api: PeopleApi
    story: MoneyStory
    cli: CommandLine
    job: Job
    machine: Instance
    folder: Path

    def spec(self, text: str = TRAINER, name: str = "job.yaml") -> str:
        """The path of a spec with this text."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def event(self, kind: str, message: str, **data: object) -> None:
        """One more line in the job's history."""
        events = tables.events
        with self.story.engine.begin() as connection:
            seqs = connection.scalars(select(events.c.seq).where(events.c.job_id == self.job.id))
            connection.execute(
                insert(events).values(
                    job_id=self.job.id,
                    seq=max(seqs, default=0) + 1,
                    at=START,
                    actor="controller:claim_jobs",
                    kind=kind,
                    noun="job",
                    message=message,
                    data=data,
                )
            )

    def log(self, stream: str, content: bytes, offset: int = 0) -> None:
        """Bytes in a stream, stored as the agents' route stores them."""
        key = f"logs/{self.job.id}/{stream}/{offset:012d}"
        self.api.parts.runtime.object_store.put_new(key, content)
        where = {"job_id": self.job.id, "stream": stream}
        with self.story.engine.begin() as connection:
            if offset == 0:
                connection.execute(
                    insert(tables.log_streams).values(
                        **where,
                        instance_id=self.machine.id,
                        size_bytes=len(content),
                        updated_at=datetime.now(UTC),
                    )
                )
            connection.execute(
                insert(tables.log_chunks).values(
                    **where, byte_offset=offset, size_bytes=len(content), object_key=key
                )
            )

    def succeed(self, **fields: object) -> None:
        """The running job ends well."""
        ended_at = self.story.after(3_600)
        with self.story.engine.begin() as connection:
            connection.execute(
                tables.attempts.update()
                .where(tables.attempts.c.job_id == self.job.id)
                .values(state=AttemptState.SUCCEEDED, ended_at=ended_at, end_reason="finished")
            )
            connection.execute(
                tables.jobs.update()
                .where(tables.jobs.c.id == self.job.id)
                .values(state=JobState.SUCCEEDED, ended_at=ended_at, **fields)
            )

    def stored_spec(self, name: str) -> dict[str, object]:
        """The spec of a job as it is stored."""
        with self.story.engine.connect() as connection:
            spec: dict[str, object] = connection.execute(
                select(tables.jobs.c.spec).where(tables.jobs.c.name == name)
            ).scalar_one()
            return spec


@contextmanager
def small_world(settings: Settings, engine: Engine, folder: Path) -> Iterator[World]:
    """A served api over such a deployment, and a command line that may use it."""
    story = MoneyStory(engine)
    story.quote((datetime.now(UTC) - START).total_seconds(), [(-60, 3_600_000)])
    project_id = story.project()
    job = story.job(project_id, "digits", cap=25_000_000, labels={"team": "nlp"})
    attempt = story.attempt(job)
    machine = story.machine(job, attempt=attempt)
    story.phases(machine, job, (600, "train", 1, 0))
    hour = datetime.now(UTC) + timedelta(minutes=59, seconds=50)
    story.set_job(job, eta_at=hour, eta_from="estimate")
    ended = story.job(project_id, "older")
    gone = story.machine(ended)
    story.end(gone, 1_800, EndedBy.CLOUD_INTERRUPTION)
    story.set_job(ended, state=JobState.FAILED, ended_at=story.after(1_800), end_message="No luck.")
    story.accrue(3_600)
    with people_api(settings) as api:
        variables = {
            "LOWTIDE_SERVER_URL": api.url,
            "LOWTIDE_API_KEY": make_key(engine, project_id),
            "LOWTIDE_STATE_DIR": str(folder / "none"),
        }
        (folder / "home").mkdir()
        cli = CommandLine(folder / "home", variables)
        yield World(api, story, cli, job, machine, folder)
