"""Numbers are left out between attempts after a gap; people read 1, 2, 3 wherever they look."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, insert

from app.domain.deployment.sweep_rules import FENCES_SKIPPED
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import AttemptMember
from app.domain.lifecycle.job import JobState
from app.orchestration.frame.lost_rows import record_listening
from app.storage.schema import tables
from tests.support.api.people_api import settings_for
from tests.support.cli.cli_world import World, small_world
from tests.support.stories import decision_story
from tests.support.stories.money_story import START
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind
from trainer.protocol.checkpoint_manifest import (
    CheckpointManifest,
    dump_manifest,
    manifest_key,
    seal,
)

FENCES = (1, 1002, 1003)
BOTH = [(1, 1), (1002, 2), (1003, 3)]
STREAM = "attempt-{:04d}/node-0.log"
_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


@pytest.fixture
def world(engine: Engine, database_url: str, valkey_url: str, tmp_path: Path) -> Iterator[World]:
    """The job `digits` trains in its third attempt; each has saved a checkpoint and a log."""
    settings = settings_for(database_url, valkey_url, tmp_path / "state")
    with small_world(settings, engine, tmp_path) as made:
        _end_newest(made, AttemptState.INTERRUPTED, end_reason="spot_interrupted")
        made.story.attempt(
            made.job, 1002, state=AttemptState.INTERRUPTED, ended_at=made.story.after(1_200),
            end_reason="spot_interrupted", trained_at=made.story.after(900), parent_step=10,
        )  # fmt: skip
        made.story.attempt(made.job, 1003, trained_at=made.story.after(1_300), parent_step=20)
        for number, fence in enumerate(FENCES, 1):
            _save(made, fence, 10 * number)
            made.log(STREAM.format(fence), f"attempt {number} says\n".encode())
        made.story.set_job(made.job, next_fence=1004, total_steps=100)
        yield made


def _end_newest(world: World, state: AttemptState, **fields: Any) -> None:
    live = tables.attempts.c.state == AttemptState.RUNNING
    with world.story.engine.begin() as connection:
        changed = tables.attempts.update().where(tables.attempts.c.job_id == world.job.id, live)
        connection.execute(changed.values(state=state, ended_at=world.story.after(1_000), **fields))


def _save(world: World, fence: int, step: int) -> None:
    own = {"job_id": world.job.id, "fence": fence, "step": step}
    with world.story.engine.begin() as connection:
        connection.execute(
            insert(tables.checkpoints).values(
                **own, digest="d", size_bytes=10, final=False, committed_at=START,
                instance_id=world.machine.id, metrics={},
            )
        )  # fmt: skip
        connection.execute(
            insert(tables.metric_points).values(**own, at=START, metrics={"loss": 1.0})
        )


def _get(world: World, path: str) -> Any:
    key = world.cli.variables["LOWTIDE_API_KEY"]
    answer = httpx.get(
        f"{world.api.url}/api/v1/jobs/digits{path}",
        headers={"Authorization": f"Bearer {key}"},
        timeout=20,
    )
    return answer.json()


def _both(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["fence"], row["ordinal"]) for row in rows)


def test_the_api_tells_both_numbers(world: World) -> None:
    assert _both(_get(world, "/attempts")["items"]) == BOTH
    assert _both(_get(world, "/checkpoints")["items"]) == BOTH
    assert _both(_get(world, "/metrics")["items"]) == BOTH
    live = _get(world, "")["attempts"]["live"]
    assert (live["fence"], live["ordinal"]) == (1003, 3)
    streams = [(one["stream"], one["ordinal"]) for one in _get(world, "/logs")["items"]]
    assert streams == [(STREAM.format(fence), ordinal) for fence, ordinal in BOTH]
    decided = [decision_story.placed(datetime.now(UTC), fence) for fence in FENCES]
    decision_story.record(world.api.parts.runtime.begin, world.job.id, *decided)
    assert _both(_get(world, "/explanation")["decisions"]) == BOTH


def test_a_checkpoint_of_a_lost_attempt_has_no_ordinal(world: World) -> None:
    """Nobody knows which one it was; the count of another would name the wrong attempt."""
    _save(world, 7, 15)
    found = _get(world, "/checkpoints")["items"]
    assert [one["ordinal"] for one in found if one["fence"] == 7] == [None]
    assert world.cli.ok("checkpoints", "digits").row("15").split()[:2] == ["15", "-"]


def test_the_api_speaks_of_a_checkpoint_by_the_count(world: World) -> None:
    """The path keeps the fence."""
    detail = _get(world, "/checkpoints/1002/99")["detail"]
    assert "no checkpoint of step 99 of attempt 2, or" in detail
    assert "step 99 of the attempt with fence 2, or" in _get(world, "/checkpoints/2/99")["detail"]


def test_the_command_line_shows_the_count(world: World) -> None:
    for command in ("checkpoints", "metrics"):
        shown = world.cli.ok(command, "digits").out.splitlines()[1:]
        assert sorted(line.split()[:2] for line in shown) == [["10", "1"], ["20", "2"], ["30", "3"]]
    decision_story.record(
        world.api.parts.runtime.begin, world.job.id, decision_story.placed(datetime.now(UTC), 1003)
    )
    said = world.cli.ok("explain", "digits").out
    assert "Decision 1, attempt 3:" in said
    assert "100" not in re.sub(r"\S*\.\S*", "", said)


def test_logs_take_the_count_and_a_fence_that_is_no_count(world: World) -> None:
    def said(*options: str) -> str:
        return world.cli.ok("logs", "digits", *options).out

    assert said() == "attempt 3 says\n"
    assert said("--attempt", "2") == "attempt 2 says\n"
    assert said("--attempt", "1002") == "attempt 2 says\n"
    assert json.loads(said("--json"))["attempt"] == 3


def test_an_attempt_that_never_was_is_refused_with_those_that_were(world: World) -> None:
    for options in (["--attempt", "4"], ["--attempt", "4", "-f"]):
        refused = world.cli.fails(2, "logs", "digits", *options).errors
        assert "this job has no attempt 4: it has the attempts 1 to 3" in refused
    world.story.attempt(world.job, 1004, state=AttemptState.FAILED, ended_at=START)
    silent = world.cli.ok("logs", "digits", "--attempt", "4")
    names = "attempt-0001/node-0.log, attempt-0002/node-0.log, attempt-0003"
    # It was, and wrote nothing.
    assert f"No log fits these options; there are: {names}" in silent.errors


def test_a_small_number_is_never_a_fence(world: World) -> None:
    """It will be a count soon."""
    world.story.attempt(world.job, 7, state=AttemptState.FAILED, ended_at=START)
    world.log(STREAM.format(7), b"second\n")
    assert world.cli.ok("logs", "digits", "--attempt", "2").out == "second\n"
    assert world.cli.ok("logs", "digits", "--attempt", "3").out == "attempt 2 says\n"
    world.cli.fails(2, "logs", "digits", "--attempt", "7")


def test_a_log_of_a_lost_attempt_does_not_pass_for_another(world: World) -> None:
    """Its machine goes on writing after a restore that has lost its row."""
    world.log(STREAM.format(2), b"lost\n")
    assert world.cli.ok("logs", "digits", "--attempt", "2").out == "attempt 2 says\n"
    assert "fence-0002/node-0.log" in world.cli.fails(2, "logs", "digits", "--attempt", "9").errors
    assert "fence-0002/node-0.log" in _page(world, "/log-tail")
    world.log(STREAM.format(8), b"lost, too\n")
    assert world.cli.ok("logs", "digits", "--attempt", "8").out == "lost, too\n"


def _page(world: World, path: str) -> str:
    """The text of a page, without markup; titles of what it draws are in it."""
    with httpx.Client(base_url=world.api.url, timeout=30) as client:
        found = _TOKEN.search(client.get("/sign-in").text)
        assert found is not None
        key = world.cli.variables["LOWTIDE_API_KEY"]
        form = {"form_token": found[1], "key": key, "next": "/jobs"}
        assert client.post("/sign-in", data=form).status_code == 303
        answer = client.get(f"/jobs/digits{path}")
    assert answer.status_code == 200, answer.text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def test_the_page_shows_the_count(world: World) -> None:
    whole = _page(world, "")
    assert "Attempt 2 resumed at step 10" in whole
    assert "Attempt 3 resumed at step 20" in whole
    saved = _page(world, "/saved")
    assert "last of attempt 1 (the cloud interrupted a machine)" in saved
    assert "last of attempt 2 (the cloud interrupted a machine)" in saved
    logs = _page(world, "/log-tail")
    assert all(STREAM.format(ordinal) in logs for _, ordinal in BOTH)
    assert "100" not in saved + logs


def test_a_log_of_a_machine_whose_start_is_not_known_is_shown_without_a_name(world: World) -> None:
    world.log(STREAM.format(2), b"early\n")
    with world.story.engine.begin() as connection:
        connection.execute(tables.instances.update().values(launched_at=None))
    assert "early" in _page(world, "/log-tail?stream=" + STREAM.format(2))


def test_the_page_of_a_failed_job_names_its_attempt_by_the_count(world: World) -> None:
    _end_newest(world, AttemptState.FAILED, end_reason="user_error")
    newest = [row["id"] for row in _get(world, "/attempts")["items"]][-1]
    world.story.add(AttemptMember(newest, world.machine.id, 0, outcome="failed", exit_code=1))
    world.story.set_job(
        world.job, state=JobState.FAILED, ended_at=world.story.after(1_500), end_message="No luck."
    )
    whole = _page(world, "")
    assert "attempt 3, exit code 1." in whole
    assert "Whole log of attempt-0003/node-0.log" in whole


def test_the_page_of_a_checkpoint_names_its_attempt_by_the_count(world: World) -> None:
    manifest = CheckpointManifest(
        fence=1002, step=20, parent=None, final=False, world_size=1, files=(), metrics={}
    )
    store = world.api.parts.runtime.store_at(
        f"{world.api.parts.runtime.checkpoint_root_uri}/{world.job.id}"
    )
    store.put_new(manifest_key(1002, 20), dump_manifest(seal(manifest)))
    assert "attempt 2, 0 B" in _page(world, "/checkpoints/1002/20")


# --- events ---------------------------------------------------------------------------------------


def test_events_call_attempts_by_their_count(engine: Engine, tmp_path: Path) -> None:
    """They are stored as text: the count is written with them."""
    story = Story(engine, tmp_path / "store")
    _listen(story)
    story.sweep()
    job_id = story.submit()
    story.train(job_id)
    [machine] = story.members(job_id)
    _fail(story, machine, 1)
    story.sleep(60)
    _listen(story)
    story.sweep()
    _go_on(story)
    second = FENCES_SKIPPED + 2
    story.train(job_id, second)
    [machine] = story.members(job_id, second)
    _fail(story, machine, second)
    story.tell(machine, FactKind.STALLED, second, step=3)
    _go_on(story)
    third = second + 1
    story.train(job_id, third)
    [machine] = story.members(job_id, third)
    story.tell(machine, FactKind.FENCED_OFF, third, by_fence=5_000)
    found = story.rows(tables.events, tables.events.c.job_id == job_id)
    rows = sorted(found, key=lambda row: row.seq)
    said = [row.message for row in rows if "ttempt " in row.message]
    assert [text.partition(":")[0] for text in said if "machine" in text] == [
        "Attempt 1", "Attempt 2", "Attempt 3",
    ]  # fmt: skip
    ends = [text.partition(" with")[0] for text in said if text.startswith("Retry ")]
    assert [text.partition(": ")[2] for text in ends] == ["attempt 1 ended", "attempt 2 ended"]
    [late] = [text for text in said if "Nothing changes" in text]
    assert late.startswith("Attempt 2 had ended before this report arrived")
    told = "Attempt 3 found the attempt with fence 5000 in the checkpoint store and stopped."
    assert told in said
    assert not [text for text in said if "left out" in text or "100" in text]
    claims = [row.data["fence"] for row in rows if row.kind == "claimed"]
    assert claims[:3] == [1, second, third]


def _listen(story: Story) -> None:
    with story.runtime.begin() as uow:
        record_listening(uow, story.runtime.limits.listening_gap_seconds)


def _go_on(story: Story) -> None:
    for _ in range(12):
        story.pass_time(10)
        _listen(story)


def _fail(story: Story, machine: Any, fence: int) -> None:
    error = {"type": None, "message": "NameError: lrate"}
    story.tell(machine, FactKind.TRAINER_ENDED, fence, outcome="failed", exit_code=1, error=error)
