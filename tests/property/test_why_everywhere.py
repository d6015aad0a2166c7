"""One stored job has one reason: the list, the page, the API and the command line read alike.

Every state, with every state of its attempt, and reasons, ends and machines as they come. Not here:
single sentences (tests/unit/wording/test_why_words.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, insert, update

from app.api.jobs.job_document import job_document
from app.api.serving.json_answers import dumps
from app.cli.client.job_view import listed_reason, summary
from app.cli.client.terminal import Terminal
from app.domain.deployment.disk_full import DISK_FULL_KEY
from app.domain.lifecycle.attempt import LIVE_ATTEMPT_STATES, AttemptState, DrainCause
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState, StopCause
from app.domain.wording.why_words import why
from app.storage.reports.job_facts import JobFilter
from app.storage.reports.job_read_models import JobReports
from app.storage.reports.page_read_models import PageReports
from app.storage.schema import tables
from app.web.job_sentences import head_sentence
from app.web.jobs.job_list import JobRow, job_list
from app.web.jobs.job_query import JobQuery
from app.web.page_frame import PageParts
from tests.support.api.people_api import make_key, people_api, settings_for
from tests.support.cli.command_line import CommandLine
from tests.support.stories.money_story import POOL, START, MoneyStory
from tests.support.stories.presence import present

# Each example is read twenty-odd times by five readers. `make test-full` looks at a hundred.
EXAMPLES: Final = 5 if settings.get_current_profile_name() == "repeatable" else None
NOW = START + timedelta(hours=2)
_TRYING: Final = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
_STANDINGS: Final = [
    *((state, None) for state in JobState),
    *((state, attempt) for state in _TRYING for attempt in sorted(LIVE_ATTEMPT_STATES)),
]
_PLACES: Final = (POOL, None, POOL)
_TEXTS: Final = st.one_of(
    st.none(),
    st.sampled_from(["every pool is too dear", "No pool has 4 machines.", " ", "is it? Yes!"]),
)
_MOMENTS: Final = st.one_of(
    st.none(),
    st.sampled_from([-90, -1, 0, 1, 2, 59, 90, 5_400]).map(
        lambda seconds: NOW + timedelta(seconds=seconds)
    ),
)
ROWS: Final = st.fixed_dictionaries(
    {
        "jobs": st.fixed_dictionaries(
            {
                "wait_reason": _TEXTS,
                "end_message": _TEXTS,
                "stop_cause": st.one_of(st.none(), st.sampled_from(StopCause)),
                "stop_ordered_at": _MOMENTS,
                "committed_step": st.sampled_from([0, 341, 12_000]),
                "node_count": st.integers(1, 3),
                "elastic": st.booleans(),
            }
        ),
        "last": st.fixed_dictionaries(
            {
                "end_reason": st.one_of(st.none(), st.sampled_from(EndReason)),
                "end_message": _TEXTS,
                "committed_step": st.sampled_from([0, 341]),
            }
        ),
        "live": st.fixed_dictionaries(
            {
                "drain_cause": st.one_of(st.none(), st.sampled_from(DrainCause)),
                "drain_until_at": _MOMENTS,
                "node_count": st.integers(1, 3),
            }
        ),
        "machines": st.lists(
            st.one_of(st.just(InstanceState.INTERRUPTING), st.sampled_from(InstanceState)),
            min_size=3,
            max_size=3,
        ),
        "registered": st.lists(st.booleans(), min_size=3, max_size=3),
        "disk_full": st.booleans(),
        "has_files": st.booleans(),
    }
)


TWO_INTERRUPTED: Final = {
    "jobs": {
        "wait_reason": None, "end_message": None, "stop_cause": None, "stop_ordered_at": None,
        "committed_step": 341, "node_count": 3, "elastic": True,
    },
    "last": {"end_reason": EndReason.USER_ERROR, "end_message": "Retry 1.", "committed_step": 341},
    "live": {
        "drain_cause": DrainCause.INTERRUPTION, "node_count": 3,
        "drain_until_at": NOW + timedelta(seconds=90),
    },
    "machines": [InstanceState.INTERRUPTING, InstanceState.INTERRUPTING, InstanceState.REGISTERED],
    "registered": [True, True, True],
    "disk_full": True,
    "has_files": True,
}  # fmt: skip


class ManyStandings:
    """A project with one job for each state and each state of its attempt."""

    def __init__(self, engine: Engine) -> None:
        self.story = MoneyStory(engine)
        self.story.time = NOW
        self.project_id = self.story.project()
        self.ids: dict[UUID, tuple[JobState, AttemptState | None]] = {}
        self.machines: list[list[UUID]] = [[], [], []]
        for state, attempt in _STANDINGS:
            self._job(state, attempt)

    def _job(self, state: JobState, attempt: AttemptState | None) -> None:
        story = self.story
        job = story.job(self.project_id, f"{state}-{attempt}")
        self.ids[job.id] = (state, attempt)
        ended_at = NOW if state in TERMINAL_JOB_STATES else None
        story.set_job(job, state=state, ended_at=ended_at)
        story.attempt(job, 1, state=AttemptState.FAILED)
        if attempt is not None:
            story.attempt(job, 2, state=attempt)
        for place, machines in zip(_PLACES, self.machines, strict=True):
            machines.append(story.machine(job, pool=place).id)
        with story.engine.begin() as connection:
            connection.execute(
                insert(tables.contacts),
                [
                    {
                        "instance_id": machines[-1], "session_id": "s", "seq": 1, "fact_no": 0,
                        "answered_at": NOW, "phase": "train", "metrics": {},
                    }
                    for machines in self.machines
                ],
            )  # fmt: skip
            connection.execute(
                insert(tables.checkpoints).values(
                    job_id=job.id, fence=1, step=1, digest="d", size_bytes=0, final=True,
                    committed_at=NOW, instance_id=UUID(int=1), metrics={},
                )
            )  # fmt: skip

    def write(self, rows: Mapping[str, Any]) -> None:
        """The same reasons, ends and machines for every job."""
        jobs = dict(rows["jobs"])
        nodes = "1..3" if jobs.pop("elastic") else jobs["node_count"]
        spec = {"run": "python train.py", "resources": {"gpu": "V100:1"}, "nodes": nodes}
        attempts, instances = tables.attempts, tables.instances
        with self.story.engine.begin() as connection:
            connection.execute(update(tables.jobs).values(**jobs, spec=spec))
            connection.execute(update(attempts).where(attempts.c.fence == 1).values(rows["last"]))
            connection.execute(update(attempts).where(attempts.c.fence == 2).values(rows["live"]))
            for ids, state, here in zip(
                self.machines, rows["machines"], rows["registered"], strict=True
            ):
                gone = state in (InstanceState.TERMINATED, InstanceState.LAUNCH_FAILED)
                connection.execute(
                    update(instances)
                    .where(instances.c.id.in_(ids))
                    .values(
                        state=state,
                        registered_at=NOW if here else None,
                        ended_at=NOW if gone else None,
                    )
                )
            metrics = {DISK_FULL_KEY: 1.0} if rows["disk_full"] else {}
            connection.execute(update(tables.contacts).values(metrics=metrics))
            connection.execute(
                update(tables.checkpoints).values(size_bytes=9 if rows["has_files"] else 0)
            )


@pytest.fixture
def standings(engine: Engine) -> ManyStandings:
    return ManyStandings(engine)


def test_every_reader_reads_the_same_reason(standings: ManyStandings, engine: Engine):
    reports, pages = JobReports(engine), PageReports(engine)
    runtime = SimpleNamespace(clock=standings.story)
    parts = cast(PageParts, SimpleNamespace(runtime=runtime, reports=pages))

    @settings(max_examples=EXAMPLES or present(settings.default).max_examples)
    @example(rows=TWO_INTERRUPTED)
    @given(rows=ROWS)
    def agree(rows: Mapping[str, Any]) -> None:
        standings.write(rows)
        listed = pages.list_jobs(JobFilter(standings.project_id, 50), NOW)["items"]
        by_id = {UUID(item["id"]): item for item in listed}
        shown = {
            UUID(row.facts["id"]): row
            for row in job_list(parts, standings.project_id, JobQuery(grouped=False)).rows
            if isinstance(row, JobRow)
        }
        assert by_id.keys() == shown.keys() == standings.ids.keys()
        for job_id, (state, attempt) in standings.ids.items():
            facts = reports.job(job_id)
            reason = why(facts.standing, NOW)
            document = json.loads(dumps(job_document(facts, NOW)))
            assert document["why"] == by_id[job_id]["why"] == reason
            line = dict(summary(document, NOW, Terminal()))["state"]
            assert line == (f"{state}: {reason}" if reason else state)
            told = "" if state is JobState.SUCCEEDED else reason or ""
            assert shown[job_id].why == listed_reason(by_id[job_id]) == told
            head = head_sentence(facts, NOW)
            if (state, attempt) == (JobState.RUNNING, AttemptState.RUNNING):
                assert head.endswith(reason or ".")
            else:
                assert head == (reason or "")
            if reason is not None:
                assert reason[0] == reason[0].upper()
                assert reason[-1] in ".!?…"

    agree()


@pytest.fixture
def command_line(
    standings: ManyStandings, engine: Engine, database_url: str, valkey_url: str, tmp_path: Path
) -> Iterator[CommandLine]:
    with people_api(settings_for(database_url, valkey_url, tmp_path / "state")) as api:
        (tmp_path / "home").mkdir()
        variables = {
            "LOWTIDE_SERVER_URL": api.url,
            "LOWTIDE_API_KEY": make_key(engine, standings.project_id),
            "LOWTIDE_STATE_DIR": str(tmp_path / "none"),
        }
        yield CommandLine(tmp_path / "home", variables)


def test_the_commands_print_that_reason(
    standings: ManyStandings, engine: Engine, command_line: CommandLine
):
    names = [f"{state}-{attempt}" for state, attempt in standings.ids.values()]
    listed = command_line.ok("jobs", "--limit", str(len(names)))
    for job_id, name in zip(standings.ids, names, strict=True):
        facts = JobReports(engine).job(job_id)
        reason = why(facts.standing, NOW)
        document = command_line.ok("show", name, "--json").json
        assert document["why"] == reason
        explained = " ".join(command_line.ok("explain", name).out.split())
        if reason is None:
            continue
        assert f"{facts.job.state}: {reason}" in command_line.ok("show", name).out
        assert f": {reason}" in explained
        if facts.job.state is not JobState.SUCCEEDED:
            assert listed.row(name).endswith(reason)
