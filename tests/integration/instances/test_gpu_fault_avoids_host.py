"""After a GPU fault: who is kept, where the next machine comes from, and what it costs in retries.

Not here: how a fault is found (tests/unit/agent/test_gpu_nvml.py), or its way here from the
machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.retry_policy import pool_cool_down_seconds
from app.domain.market.offer import Pool
from app.orchestration.instances.record_host import RETURNED
from app.ports.cloud_provider import CloudMachine, LaunchOrder
from app.storage.schema.money_tables import pools
from tests.support.stories.orchestration_story import FAR, ZONE_A, ZONE_B, PaperCloud, Story
from trainer.protocol.agent_report import FactKind


class TellingCloud(PaperCloud):
    """Says of each machine on which computer it runs, as Compute Engine does of some."""

    hosts: Iterator[str]

    def start(
        self, pool: Pool, order: LaunchOrder | None = None, tags: dict[str, str] | None = None
    ) -> CloudMachine:
        machine = replace(super().start(pool, order, tags), host=next(self.hosts))
        self.machines[machine.provider_instance_id] = machine
        return machine


FAULT = "GPU 0000:2b:00: Xid 79, the GPU has fallen off the bus"


def fail_gpu(story: Story, job_id: UUID, rank: int = 0) -> list[UUID]:
    """Train, lose a GPU, and let the attempt end; its members."""
    story.train(job_id)
    members = story.members(job_id)
    story.tell(members[rank], FactKind.GPU_FAULT, 1, message=FAULT)
    for other in members:
        if other != members[rank]:
            story.tell(
                other, FactKind.TRAINER_ENDED, 1, outcome="failed", exit_code=1,
                error={"message": "NCCL: a peer is gone", "peer_communication": True},
            )  # fmt: skip
    story.pass_time(10, every=5)
    first = story.attempt(job_id)
    assert (first.state, first.end_reason) == ("failed", "gpu_fault")
    return members


def rest_of(story: Story, pool: Pool) -> Any:
    (row,) = story.rows(pools, pools.c.pool == pool)
    return row


def test_the_pool_rests_the_next_machine_is_elsewhere_and_no_retry_is_spent(story: Story) -> None:
    job_id = story.submit(retries=0)
    (faulty,) = fail_gpu(story, job_id)
    assert story.instance(faulty).pool == ZONE_A, "the cheapest came first"
    rests = rest_of(story, ZONE_A)
    seconds = pool_cool_down_seconds(EndReason.GPU_FAULT)
    assert rests.cool_reason == "gpu_fault"
    assert rests.cool_until_at >= story.time + timedelta(seconds=seconds - 30)
    (replacement,) = story.living(job_id)
    assert replacement.pool == ZONE_B
    assert story.instance(faulty).state == "terminated"
    job = story.job(job_id)
    assert (job.retries_used, job.state) == (0, "starting")


def test_the_broken_place_is_last_choice_also_after_its_rest(story: Story) -> None:
    job_id = story.submit()
    fail_gpu(story, job_id)
    (second,) = story.living(job_id)
    story.pass_time(pool_cool_down_seconds(EndReason.GPU_FAULT) + 10, every=60)
    story.cloud.end(second.provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    (third,) = story.living(job_id)
    assert third.pool == FAR, "dearer than both pools that have failed this job"


def test_where_nothing_else_fits_the_same_pool_serves_after_its_rest(story: Story) -> None:
    job_id = story.submit(infra=["local/us-west-2/us-west-2a"])
    fail_gpu(story, job_id)
    assert story.living(job_id) == []
    story.pass_time(pool_cool_down_seconds(EndReason.GPU_FAULT) + 60, every=30)
    (again,) = story.living(job_id)
    assert again.pool == ZONE_A


def test_the_survivors_of_a_gang_are_kept_and_their_pool_stays_open(story: Story) -> None:
    job_id = story.submit(nodes=3, retries=0)
    members = fail_gpu(story, job_id, rank=1)
    story.run()
    second = story.members(job_id, 2)
    assert {members[0], members[2]} < set(second), "both survivors"
    assert members[1] not in second
    assert story.instance(members[1]).state == "terminated"
    assert {story.instance(one).pool for one in second} == {ZONE_A}, "a gang stays together"
    assert rest_of(story, ZONE_A).cool_until_at is None
    assert story.job(job_id).retries_used == 0


def telling(engine: Engine, folder: Path, *hosts: str) -> Story:
    story = Story(engine, folder, make_cloud=TellingCloud)
    assert isinstance(story.cloud, TellingCloud)
    story.cloud.hosts = iter(hosts)
    return story


def test_a_replacement_on_the_broken_computer_goes_back_once(
    engine: Engine, tmp_path: Path
) -> None:
    """Three of a gang are on one computer; it gets two replacements there, then would get more."""
    story = telling(engine, tmp_path, "rack-1", "rack-1", "rack-2", "rack-1", "rack-1")
    job_id = story.submit(nodes=3)
    story.run()
    story.pass_time(10)
    members = fail_gpu(story, job_id)
    survivors = set(members[1:])
    story.pass_time(30)
    machines = story.instances(job_id)
    assert [one.host for one in machines] == ["rack-1", "rack-1", "rack-2", "rack-1", "rack-1"]
    returned, kept = machines[3:]
    assert (returned.state, returned.release_reason) == ("terminated", RETURNED)
    assert (kept.state, kept.release_reason) == ("launched", None), "there is no other place"
    assert set(story.members(job_id, 2)) == survivors | {kept.id}
    story.train(job_id, 2)
    assert story.job(job_id).retries_used == 0


def test_a_replacement_elsewhere_is_kept(engine: Engine, tmp_path: Path) -> None:
    story = telling(engine, tmp_path, "rack-1", "rack-2", "rack-3")
    job_id = story.submit(nodes=2)
    fail_gpu(story, job_id)
    story.pass_time(30)
    assert [one.release_reason for one in story.instances(job_id)].count(RETURNED) == 0
    (newest,) = [one for one in story.living(job_id) if one.host == "rack-3"]
    assert newest.id in story.members(job_id, 2)
