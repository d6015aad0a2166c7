"""What agents tell of images, outputs and ends that they have typed, in history and rows; and how
long they may prepare.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from app.orchestration.frame.runtime import Limits
from app.storage.schema import tables
from tests.support.api.agent_api import (
    Gang,
    ServedApi,
    SpeakingAgent,
)
from tests.support.servers.table_rows import row_of, rows_of
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import AGENT_FAILED, DISK_FULL, FactKind

IMAGE = "acme/train@sha256:" + "a" * 64


@pytest.fixture
def gang(api: ServedApi) -> Gang:
    return api.gang(
        image="acme/train:1",
        inputs={"/data": "s3://acme/corpus"},
        outputs={"out": "s3://acme/results"},
        resources={"shm_size": "8GB", "disk": "300GB"},
    )


def events(engine: Engine, gang: Gang, *kinds: str) -> list[str]:
    told = rows_of(engine, tables.events, job_id=gang.job_id)
    return [event.message for event in told if event.kind in kinds]


def test_image_and_outputs_are_in_the_history(engine: Engine, api: ServedApi, gang: Gang) -> None:
    agent = SpeakingAgent(api, gang)
    config = agent.register().json()["run_config"]
    assert (config["image"], config["shm_mb"]) == ("acme/train:1", 8_000)
    assert config["inputs"] == {"/data": "s3://acme/corpus"}
    assert config["outputs"] == {"out": "s3://acme/results"}
    attempt = row_of(engine, tables.attempts, job_id=gang.job_id)
    limits = Limits()
    longest = limits.preparing_seconds + limits.image_seconds + limits.inputs_seconds
    assert attempt.form_until_at - attempt.preparing_at == timedelta(seconds=longest)
    parent: dict[str, Any] = {"parent": None, "final": False}
    prepared = agent.fact(FactKind.PREPARED, master_port=29_501, image=IMAGE, **parent)
    agent.report(phase="idle", fence=1, facts=[prepared])
    agent.report(phase="train", fence=1, facts=[agent.fact(FactKind.TRAINER_STARTED)])
    told: dict[str, Any] = {
        "files": 1_200,
        "size_bytes": 5_000_000,
        "addresses": ["s3://acme/results/j"],
    }
    failed = "the outputs may not be written to s3://acme/results/j"
    facts = [agent.fact(FactKind.OUTPUTS, **told), agent.fact(FactKind.OUTPUTS, error=failed)]
    assert agent.report(phase="checkpoint", fence=1, facts=facts).status_code == 200
    assert events(engine, gang, "image_pinned", "outputs_saved", "outputs_not_saved") == [
        f"This attempt runs in {IMAGE}.",
        "Outputs are saved: 1,200 files, 5,000,000 bytes at s3://acme/results/j.",
        "The outputs may not be written to s3://acme/results/j.",
    ]


def test_a_launch_asks_for_what_the_machine_must_be(story: Story) -> None:
    plain = story.submit()
    told = {"disk": "300GB", "shm_size": "8GB", "gpu": "V100:1"}
    asked = story.submit(resources=told, instance_types=["p3.2xlarge"])
    boxed = story.submit(run="true", trainer=None, image="acme/train:1", resources=told)
    story.run()
    orders = {order.tags["lowtide:job"]: order for order in story.cloud.orders}
    shown = [
        (order.disk_gb, order.user_data.get("LOWTIDE_SHM_MB"))
        for order in (orders[str(job_id)] for job_id in (plain, asked, boxed))
    ]
    # In a container /dev/shm is the container's own.
    assert shown == [(None, None), (300, "8000"), (300, None)]
    assert orders[str(boxed)].user_data["LOWTIDE_CONTAINERS"] == "1"
    assert "LOWTIDE_CONTAINERS" not in orders[str(asked)].user_data
    digests = {story.launches(job_id)[0].params_digest for job_id in (plain, asked)}
    assert len(digests) == 2


def test_a_type_that_nobody_rents_out_is_waited_for_with_a_reason(story: Story) -> None:
    job_id = story.submit(instance_types=["g5.xlarge"])
    story.run()
    assert "no pool there has machines of type g5.xlarge" in story.job(job_id).wait_reason
    assert story.cloud.orders == []


def test_outputs_of_which_nobody_tells_are_told(engine: Engine, api: ServedApi, gang: Gang) -> None:
    agent = SpeakingAgent(api, gang)
    agent.register()
    prepared = agent.fact(FactKind.PREPARED, master_port=29_501, parent=None, final=False)
    agent.report(phase="idle", fence=1, facts=[prepared])
    final: dict[str, Any] = {"step": 9, "digest": "d" * 64, "size_bytes": 10, "final": True}
    facts = [
        agent.fact(FactKind.TRAINER_STARTED),
        agent.fact(FactKind.CHECKPOINT, **final),
        agent.fact(FactKind.COMPLETION, step=9, digest="d" * 64),
    ]
    assert agent.report(phase="checkpoint", fence=1, facts=facts).status_code == 200
    restarted = agent.fact(FactKind.TRAINER_ENDED, outcome="failed", error={"type": "x"})
    agent.report(phase="idle", fence=1, facts=[restarted])
    assert row_of(engine, tables.attempts, job_id=gang.job_id).state == "succeeded"
    (told,) = events(engine, gang, "outputs_not_saved")
    assert "node 0 ended before it could tell whether its outputs are saved" in told


@pytest.mark.parametrize(
    ("kind", "data", "reason", "retries"),
    [
        ("ended", {"outcome": "failed", "type": DISK_FULL}, "disk_full", 1),
        ("ended", {"outcome": "killed", "type": AGENT_FAILED}, "agent_failed", 0),
        ("preparation", {"disk_full": True}, "disk_full", 1),
        ("preparation", {"disk_full": False}, "preparation_failed", 1),
        ("preparation", {}, "preparation_failed", 1),
    ],
)
def test_an_end_keeps_the_name_that_its_agent_gave_it(
    api: ServedApi, engine: Engine, kind: str, data: dict[str, Any], reason: str, retries: int
) -> None:
    [agent] = api.agents(retries=3)
    if kind == "preparation":
        told = {"stage": "setup", "message": "it failed", "store_unavailable": False, **data}
        last = agent.fact(FactKind.PREPARATION_FAILED, **told)
    else:
        agent.begin_training()
        ended = {"outcome": data["outcome"], "exit_code": 1, "step": 4}
        error = {"message": "no room", "type": data["type"]}
        last = agent.fact(FactKind.TRAINER_ENDED, error=error, **ended)
    assert agent.report(phase="idle", fence=1, facts=[last]).status_code == 200
    assert row_of(engine, tables.attempts, job_id=agent.gang.job_id).end_reason == reason
    assert row_of(engine, tables.jobs, id=agent.gang.job_id).retries_used == retries
    if reason in ("disk_full", "agent_failed"):
        machine = row_of(engine, tables.instances, job_id=agent.gang.job_id)
        assert machine.suspect, "the next attempt gets another machine"
