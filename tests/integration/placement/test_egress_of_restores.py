"""The bucket's region in placement and in the bill: located once, weighed, booked, and said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, select

from app.domain.billing.billing import BYTES_PER_GB, Component
from app.domain.billing.egress import Region, Restore
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.attachments import Attachments
from app.domain.market.offer import Market, Pool
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.aggregate import open_job
from app.orchestration.gang.reserve_budget import read_headroom
from app.orchestration.placement.locate_buckets import LocateBuckets
from app.orchestration.placement.read_offers import offers_for
from app.ports.bucket_places import DEFAULT_BUCKET
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.storage.money.cost_read_models import CostReports
from app.storage.schema.money_tables import bucket_places, ledger_entries, transfers
from tests.support.api.agent_api import BY_PERSON
from tests.support.stories.orchestration_story import PaperCloud, Story
from trainer.protocol.agent_report import FactKind

NEAR = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge", Market.SPOT)
FAR = Pool("aws", "us-west-2", "us-west-2a", "p3.2xlarge", Market.SPOT)
SIZE = 8 * BYTES_PER_GB
PRICE_OF_IT = 8 * 20_000
TOO_DEAR = {FAR: 9_900_000, NEAR: 9_900_000}
IN_S3 = {"uri": "s3://acme/ckpt"}


class BucketCloud(PaperCloud):
    """Machines on paper, and buckets whose places are known, or why they are not."""

    name = "aws"
    bucket_scheme = "s3"

    def __init__(self, story: Story) -> None:
        super().__init__(story, name="aws")
        self.asked: list[str] = []
        self.place: str | ProviderError = "us-east-1"

    def locate_bucket(self, bucket: str) -> str:
        self._begin("locate_bucket")
        self.asked.append(bucket)
        if isinstance(self.place, ProviderError):
            raise self.place
        return self.place


class Moving(Story):
    """A deployment on that cloud."""

    cloud: BucketCloud

    def __init__(self, engine: Engine, folder: Path) -> None:
        super().__init__(engine, folder, make_cloud=BucketCloud)
        self.runtime = replace(self.runtime, providers={"aws": self.cloud})
        wanted = {"claim_jobs", "launch_instances", "reconcile_instances", "release_instances",
                  "expire_deadlines", "locate_buckets", "accrue_costs"}  # fmt: skip
        every = all_controllers(self.runtime)
        self.controllers = tuple(one for one in every if one.name in wanted)

    def trained(self, near: int, far: int, **spec: Any) -> UUID:
        """A job that has saved a checkpoint in the far pool, and lost its machine there."""
        self.quote({FAR: far, NEAR: 9_000_000})
        job_id = self.submit(checkpoint=IN_S3, infra=["aws"], **spec)
        self.train(job_id)
        (only,) = self.members(job_id)
        self.checkpoint(only, 1, 100, size_bytes=SIZE)
        self.run()
        self.quote(TOO_DEAR)
        self.cloud.end(str(self.instance(only).provider_instance_id), EndedBy.CLOUD_FAILURE)
        self.pass_time(31 * 60, every=120)  # until the pool where it was lost is as good as any
        self.quote({FAR: far, NEAR: near})
        self.pass_time(40)
        return job_id

    def chosen(self, job_id: UUID) -> Pool:
        (only,) = self.members(job_id, 2)
        pool: Pool = self.instance(only).pool
        return pool

    def considered(self, job_id: UUID) -> dict[str, str]:
        """What is thought of each pool for one more machine."""
        runtime = self.runtime
        with runtime.begin() as uow, open_job(uow, runtime.entropy, job_id, BY_PERSON) as aggregate:
            assert aggregate is not None
            found = offers_for(aggregate, aggregate.gang_need, 1, runtime.limits, anywhere=True)
        return {item.offer.pool.key: item.why for item in found}

    def restore(self, job_id: UUID, **data: Any) -> UUID:
        (only,) = self.members(job_id, 2)
        if only not in self._credentials:
            self.register(only)
        self.run()
        parent = {"fence": 1, "step": 100, "digest": "1-100"}
        self.tell(only, FactKind.PREPARED, 2, parent=parent, master_port=20_001, **data)
        return only

    def restore_in_vain(self, job_id: UUID, machine: UUID, **data: Any) -> None:
        """It brought so much, and then could not reach its peers."""
        told: dict[str, Any] = {
            "stage": "peers",
            "message": "no answer",
            "store_unavailable": False,
        }
        self.tell(machine, FactKind.PREPARATION_FAILED, 2, **told, **data)

    def egress(self) -> Sequence[Any]:
        return self.rows(ledger_entries, ledger_entries.c.component == "egress")


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Moving:
    return Moving(engine, tmp_path / "store")


def test_a_bucket_is_looked_for_once_when_the_first_checkpoint_is_in_it(story: Moving) -> None:
    story.trained(near=1_000_000, far=900_000)
    story.pass_time(120)
    assert story.cloud.asked == ["acme"]
    rows = {row.bucket: row for row in story.rows(bucket_places)}
    assert rows["s3://acme"].region == "us-east-1"
    assert rows["s3://acme"].looked_up_at is not None
    assert rows[DEFAULT_BUCKET].named == "", "the deployment's own store is a folder here"


@pytest.mark.parametrize("is_late", [False, True])
def test_what_was_brought_in_vain_is_booked_too(story: Moving, is_late: bool) -> None:
    job_id = story.trained(near=2_000_000, far=900_000)
    assert story.chosen(job_id) == FAR
    (machine,) = story.members(job_id, 2)
    story.register(machine)
    story.run()
    if is_late:
        # The attempt is over before the machine's word of what it read arrives.
        story.tell(machine, FactKind.TRAINER_ENDED, 2, outcome="failed", exit_code=1)
        story.run()
        assert story.attempt(job_id, 2).ended_at is not None
    story.restore_in_vain(job_id, machine, restored_bytes=SIZE)
    story.quote({FAR: 900_000})
    story.pass_time(90)
    (entry,) = story.egress()
    assert (entry.instance_id, entry.amount_microusd) == (machine, PRICE_OF_IT)


def test_a_slightly_cheaper_pool_far_from_the_checkpoint_is_left_aside(story: Moving) -> None:
    job_id = story.trained(near=1_000_000, far=900_000)
    assert story.chosen(job_id) == NEAR
    why = story.considered(job_id)[FAR.key]
    assert why.endswith("$0.16 more for bringing the checkpoint of 8.0 GiB from aws us-east-1")
    assert story.considered(job_id)[NEAR.key] == "fits, has capacity for 1"
    story.restore(job_id, restored_bytes=SIZE)
    assert story.rows(transfers) == [], "within its region it costs nothing"


def test_what_a_far_machine_brings_is_booked_once_and_verified(story: Moving) -> None:
    job_id = story.trained(near=2_000_000, far=900_000)
    assert story.chosen(job_id) == FAR
    machine = story.restore(job_id, restored_bytes=SIZE + BYTES_PER_GB)
    story.restore(job_id, restored_bytes=SIZE)
    story.quote({FAR: 900_000})
    story.pass_time(90)
    (entry,) = story.egress()
    assert (entry.instance_id, entry.amount_microusd) == (machine, PRICE_OF_IT + 20_000)
    assert (entry.kind, entry.estimated) == ("accrual", False)
    assert entry.price_source.startswith("shipped egress list of ")
    reports = CostReports(story.engine)
    found = reports.job_cost(job_id)
    assert found is not None
    assert "egress" not in found.not_metered
    assert found.statement.by_component[Component.EGRESS] == PRICE_OF_IT + 20_000
    assert reports.verify(job_id=job_id).differences == ()


def test_a_size_the_agent_does_not_say_is_the_manifests_and_estimated(story: Moving) -> None:
    job_id = story.trained(near=2_000_000, far=900_000)
    story.restore(job_id)
    story.quote({FAR: 900_000})
    story.pass_time(90)
    (entry,) = story.egress()
    assert (entry.amount_microusd, entry.estimated) == (PRICE_OF_IT, True)


def test_a_restore_told_after_the_bill_was_closed_opens_it_again(story: Moving) -> None:
    job_id = story.trained(near=2_000_000, far=900_000)
    (only,) = story.members(job_id, 2)
    story.register(only)
    story.run()
    with story.runtime.begin() as uow:
        instance = uow.instances.get(only)
        assert instance is not None
        added = uow.traffic.add_transfer(
            only, 2, story.time, SIZE, estimated=False, microusd_per_gb=20_000,
            source="list", captured_at=story.time,
        )  # fmt: skip
        again = uow.traffic.add_transfer(
            only, 2, story.time, 1, estimated=True, microusd_per_gb=1,
            source="list", captured_at=story.time,
        )  # fmt: skip
    assert (added, again) == (True, False)
    story.cloud.end(str(story.instance(only).provider_instance_id), EndedBy.US)
    story.quote({FAR: 900_000})
    story.pass_time(60)
    assert [entry.amount_microusd for entry in story.egress()] == [PRICE_OF_IT]


def test_a_bucket_nobody_can_place_is_asked_for_again_and_said(story: Moving) -> None:
    denied = ProviderError(RefusalKind.DENIED, "s3:GetBucketLocation is denied")
    story.cloud.place = denied
    job_id = story.trained(near=1_000_000, far=900_000)
    assert story.chosen(job_id) == FAR
    why = story.considered(job_id)[FAR.key]
    assert why.endswith("is not priced: where its bucket is, is unknown")
    story.restore(job_id, restored_bytes=SIZE)
    story.pass_time(60)
    assert story.egress() == []
    found = CostReports(story.engine).job_cost(job_id)
    assert found is not None
    assert "egress" in found.not_metered
    (row,) = story.rows(bucket_places, bucket_places.c.bucket == "s3://acme")
    assert (row.region, row.note) == (None, "s3:GetBucketLocation is denied")
    assert story.cloud.asked == ["acme"]
    story.cloud.place = "us-west-2"
    story.time += timedelta(hours=1, minutes=1)
    story.run()
    assert story.cloud.asked == ["acme", "acme"]
    (row,) = story.rows(bucket_places, bucket_places.c.bucket == "s3://acme")
    assert (row.region, row.note) == ("us-west-2", "")


def test_the_deployments_own_bucket_is_where_it_is_set_to_be(story: Moving) -> None:
    runtime = replace(
        story.runtime, checkpoint_root_uri="s3://own/x", checkpoint_region="eu-west-1"
    )
    story.controllers = (LocateBuckets(runtime),)
    story.run()
    with story.engine.connect() as connection:
        row = connection.execute(select(bucket_places)).one()
    assert (row.bucket, row.named, row.region) == (DEFAULT_BUCKET, "s3://own", "eu-west-1")
    assert story.cloud.asked == []
    moved = replace(runtime, checkpoint_root_uri="gs://other", checkpoint_region=None)
    story.controllers = (LocateBuckets(moved),)
    story.run()
    with story.engine.connect() as connection:
        row = connection.execute(select(bucket_places)).one()
    assert (row.named, row.region) == ("gs://other", None)
    assert row.note == "no configured cloud can tell where gs://other is"


def test_a_budget_must_bear_what_a_restore_costs(story: Moving) -> None:
    """Nothing but the far pool is left, and what a restore there costs is more than the cap."""
    job_id = story.trained(
        near=1_000_000, far=900_000, budget_usd=2, estimate={"hours": 1, "gpu": "V100:1"}
    )
    assert story.chosen(job_id) == NEAR
    restore = Restore(200 * BYTES_PER_GB, Region("aws", "us-east-1"))
    runtime = story.runtime
    with (
        runtime.begin() as uow,
        open_job(uow, runtime.entropy, job_id, BY_PERSON, looking=True) as aggregate,
    ):
        assert aggregate is not None
        headroom = replace(read_headroom(aggregate, runtime.limits), held_microusd=0)
        quoted = [offer for offer, _ in uow.offers.of([NEAR, FAR])]

        def affordable(brought: Restore | None) -> list[Pool]:
            covered = replace(headroom, restore=brought).bids_covered(quoted, 1)
            return [one.pool for one in covered.bids]

        assert affordable(None) == [NEAR, FAR]
        assert affordable(restore) == [NEAR]


def test_a_disk_that_the_job_asked_for_is_on_its_bill(story: Moving) -> None:
    attached = Attachments(100, 73_000, 5_000, "list", story.time)
    story.quote({NEAR: 1_000_000}, attachments=attached)
    job_id = story.submit(resources={"gpu": "V100:1", "disk": "500GB"}, infra=["aws"])
    story.train(job_id)
    story.sleep(3600)
    story.quote({NEAR: 1_000_000}, attachments=attached)
    story.run()
    found = CostReports(story.engine).job_cost(job_id)
    assert found is not None
    by_component = found.statement.by_component
    hours = by_component[Component.COMPUTE] / 1_000_000
    assert by_component[Component.DISK] == pytest.approx(50_000 * hours, abs=1)
    assert by_component[Component.PUBLIC_IP] == pytest.approx(5_000 * hours, abs=1)
    assert found.not_metered == ("object_storage", "cross_zone")
