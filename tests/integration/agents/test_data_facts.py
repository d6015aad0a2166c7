"""What agents tell of images and outputs, in the job's history; and how long they may prepare."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from app.orchestration.frame.runtime import Limits
from app.storage.schema import tables
from tests.support.api.agent_api import (
    Gang,
    ServedApi,
    SpeakingAgent,
    make_gang,
    make_runtime,
    served,
)
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind

IMAGE = "acme/train@sha256:" + "a" * 64


@pytest.fixture
def gang(engine: Engine, tmp_path: Path) -> Gang:
    return make_gang(
        engine,
        make_runtime(engine, tmp_path / "store"),
        image="acme/train:1",
        inputs={"/data": "s3://acme/corpus"},
        outputs={"out": "s3://acme/results"},
        resources={"shm_size": "8GB", "disk": "300GB"},
    )


@pytest.fixture
def api(engine: Engine, tmp_path: Path) -> Iterator[ServedApi]:
    with served(make_runtime(engine, tmp_path / "store")) as running:
        yield running


def events(engine: Engine, gang: Gang, *kinds: str) -> list[str]:
    with engine.connect() as connection:
        own = (tables.events.c.job_id == gang.job_id, tables.events.c.kind.in_(kinds))
        asked = select(tables.events.c.message).where(*own).order_by(tables.events.c.seq)
        return list(connection.execute(asked).scalars())


def only(engine: Engine, table: Any, gang: Gang) -> Any:
    with engine.connect() as connection:
        return connection.execute(select(table).where(table.c.job_id == gang.job_id)).one()


def test_image_and_outputs_are_in_the_history(engine: Engine, api: ServedApi, gang: Gang) -> None:
    agent = SpeakingAgent(api, gang)
    config = agent.register().json()["run_config"]
    assert (config["image"], config["shm_mb"]) == ("acme/train:1", 8_000)
    assert config["inputs"] == {"/data": "s3://acme/corpus"}
    assert config["outputs"] == {"out": "s3://acme/results"}
    attempt = only(engine, tables.attempts, gang)
    limits = Limits()
    longest = limits.preparing_seconds + limits.image_seconds + limits.inputs_seconds
    assert attempt.form_until_at - attempt.preparing_at == timedelta(seconds=longest)
    parent: dict[str, Any] = {"parent": None, "final": False}
    prepared = agent.fact(FactKind.PREPARED, master_port=29_501, image=IMAGE, **parent)
    agent.report(phase="idle", fence=1, facts=[prepared])
    agent.report(phase="train", fence=1, facts=[agent.fact(FactKind.TRAINER_STARTED)])
    told = {"files": 1_200, "size_bytes": 5_000_000, "addresses": ["s3://acme/results/j"]}
    failed = "the outputs may not be written to s3://acme/results/j"
    facts = [agent.fact(FactKind.OUTPUTS, **told), agent.fact(FactKind.OUTPUTS, error=failed)]
    assert agent.report(phase="checkpoint", fence=1, facts=facts).status_code == 200
    assert events(engine, gang, "image_pinned", "outputs_saved", "outputs_not_saved") == [
        f"This attempt runs in {IMAGE}.",
        "Outputs are saved: 1,200 files, 5,000,000 bytes at s3://acme/results/j.",
        "The outputs may not be written to s3://acme/results/j.",
    ]


def test_a_launch_asks_for_what_the_machine_must_be(engine: Engine, tmp_path: Path) -> None:
    story = Story(engine, tmp_path / "store")
    story.quote()
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


def test_a_type_that_nobody_rents_out_is_waited_for_with_a_reason(
    engine: Engine, tmp_path: Path
) -> None:
    story = Story(engine, tmp_path / "store")
    story.quote()
    job_id = story.submit(instance_types=["g5.xlarge"])
    story.run()
    assert "no pool there has machines of type g5.xlarge" in story.job(job_id).wait_reason
    assert story.cloud.orders == []


def test_outputs_of_which_nobody_tells_are_told(engine: Engine, api: ServedApi, gang: Gang) -> None:
    agent = SpeakingAgent(api, gang)
    agent.register()
    prepared = agent.fact(FactKind.PREPARED, master_port=29_501, parent=None, final=False)
    agent.report(phase="idle", fence=1, facts=[prepared])
    final = {"step": 9, "digest": "d" * 64, "size_bytes": 10, "final": True}
    facts = [
        agent.fact(FactKind.TRAINER_STARTED),
        agent.fact(FactKind.CHECKPOINT, **final),
        agent.fact(FactKind.COMPLETION, step=9, digest="d" * 64),
    ]
    assert agent.report(phase="checkpoint", fence=1, facts=facts).status_code == 200
    restarted = agent.fact(FactKind.TRAINER_ENDED, outcome="failed", error={"type": "x"})
    agent.report(phase="idle", fence=1, facts=[restarted])
    assert only(engine, tables.attempts, gang).state == "succeeded"
    (told,) = events(engine, gang, "outputs_not_saved")
    assert "node 0 ended before it could tell whether its outputs are saved" in told
