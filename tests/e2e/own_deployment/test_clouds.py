"""The whole product on fake AWS and Google Cloud, whose machines boot by the real script."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from app.adapters.agent_package import agent_package
from tests.support.deployment.cloud_deployment import CloudDeployment, running_on_fake_clouds
from tests.support.deployment.control_plane import Document
from tests.support.deployment.followed_job import (
    SAVES_AT_NOTICES,
    FollowedJob,
    submit,
    submit_endless,
    submit_small,
)
from tests.support.servers.postgres import fast_folder

NOTICE_SECONDS = 10


@pytest.fixture(scope="module")
def clouds() -> Iterator[CloudDeployment]:
    """Both clouds, the product on them, and prices of both."""
    with fast_folder() as folder, running_on_fake_clouds(folder) as found:
        plane, both = found.plane, [("aws",), ("gcp",)]
        # They are read one after the other: a job of the first second would see one cloud alone.
        known = "SELECT DISTINCT provider FROM pools ORDER BY 1"
        plane.wait(lambda: [tuple(row.values()) for row in plane.sql(known)] == both, "prices")
        yield found


def _live_machine(job: FollowedJob, step: int, fence: int) -> Document:
    """The machine that trains now, once it has come so far."""
    job.until_step(step, fence=fence)
    [machine] = job.machines()
    return machine


def _assert_nothing_was_lost(job: FollowedJob, steps: int) -> None:
    """Each attempt began where the one before had committed last, and every loss is the same."""
    found = job.attempts()
    assert [one["state"] for one in found][-1] == "succeeded", job.story()
    assert {one["end_reason"] for one in found[:-1]} == {"spot_interrupted"}, job.story()
    for before, after in pairwise(found):
        assert after["parent_fence"] == before["fence"], job.story()
        # A machine that died may have committed one more than it could tell of.
        assert after["parent_step"] >= before["committed_step"] > 0, job.story()
    job.assert_exact(steps)


@pytest.mark.full
def test_training_survives_two_interruptions_and_moves_to_the_other_cloud(
    clouds: CloudDeployment,
) -> None:
    plane = clouds.plane
    wish = {"resources": {"gpu": "L4"}, "infra": ["aws", "gcp"], "STEP_SECONDS": 0.05}
    job = submit_endless(plane, SAVE_EVERY=40, **wish)
    short = submit_small(plane, 40, **{**wish, "infra": ["aws"]})
    try:
        noticed = _live_machine(job, 10, fence=1)
        assert noticed["provider"] == "aws"
        script = clouds.script(noticed)
        assert f"export LOWTIDE_WHEEL_SHA256={agent_package().sha256}\n" in script
        assert "export AWS_REGION=us-east-1\n" in script
        assert "export LOWTIDE_AGENT_EXTRAS" not in script
        machine_id = noticed["provider_instance_id"]
        clouds.on_aws.notice(machine_id, clouds.machine(noticed), NOTICE_SECONDS)
        killed = _live_machine(job, 100, fence=2)
        assert killed["provider"] == "aws"
        short.finish()
        clouds.aws.world.spot_room = 0
        clouds.machine(killed).cut_power()
        clouds.aws.take(killed["provider_instance_id"])
        job.go_on_in(3)
        steps = job.end_here()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{clouds.hall.consoles()}") from error
    _assert_nothing_was_lost(job, steps)
    drained, resumed, _ = job.attempts()
    assert resumed["parent_step"] == drained["committed_step"], job.story()
    assert_only_own_folders(clouds, job, short)
    last = job.machines_of_attempt(3)
    assert [one["provider"] for one in last] == ["gcp"]
    _assert_all_is_paid_and_gone(clouds, [job, short])


@pytest.mark.full
def test_the_bundled_trainer_survives_a_preemption_on_google_cloud(clouds: CloudDeployment) -> None:
    """Its checkpoints lie in Google's store, which its machines open by their service account."""
    job = submit(
        clouds.plane,
        trainer=SAVES_AT_NOTICES,
        resources={"gpu": "L4"},
        infra=["gcp"],
        checkpoint={"uri": f"{clouds.google_store_uri}/mine"},
    )
    try:
        preempted = _live_machine(job, 20, fence=1)
        assert "export LOWTIDE_AGENT_EXTRAS=trainer\n" in clouds.script(preempted)
        clouds.on_gce.preempt(preempted["provider_instance_id"], clouds.machine(preempted))
        job.finish()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{clouds.hall.consoles()}") from error
    first, second = job.attempts()
    assert first["end_reason"] == "spot_interrupted", job.story()
    assert second["parent_step"] == first["committed_step"] >= 20, job.story()
    seen = [one for one in clouds.gcs.decided if one[0].startswith("job ")]
    verbs = {permission for _, permission, _, _ in seen}
    assert verbs >= {"storage.objects.get", "storage.objects.list", "storage.objects.create"}
    assert "storage.objects.delete" not in verbs
    assert all(job.id in key and allowed for _, _, key, allowed in seen)
    _assert_all_is_paid_and_gone(clouds, [job])


def assert_only_own_folders(clouds: CloudDeployment, *jobs: FollowedJob) -> None:
    """Machines used what they were given and no more, and it was kept nowhere."""
    given = {name: one for name, one in clouds.s3.sessions.items() if one.narrowed is not None}
    names = {f"lowtide-{job.id}": str(job.id) for job in jobs}
    assert {one.name for one in given.values()} >= set(names)
    seen = [one for one in clouds.s3.decided if one[0] in names]
    assert {one[1] for one in seen} >= {"s3:GetObject", "s3:PutObject", "s3:ListBucket"}
    assert all(names[who] in key and allowed for who, _, key, allowed in seen)
    assert not [one for one in clouds.s3.decided if one[0] == "machine role"]
    assert not [one for one in clouds.gcs.decided if one[0] == "machine role"]
    secrets = [str(one.token) for one in given.values()] + list(given)
    secrets += [name for name, one in clouds.gcs.tokens.items() if one.rules is not None]
    assert secrets
    plane = clouds.plane
    tables = plane.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for table in (row["tablename"] for row in tables):
        for row in plane.sql(f"SELECT to_jsonb(t)::text AS all FROM {table} t"):
            assert not [one for one in secrets if one in row["all"]], table
    stored = list(clouds.gcs.objects.values())
    files = [path for path in plane.state_dir.rglob("*") if path.is_file()]
    files += [path for one in clouds.hall.machines.values() for path in one.root.rglob("*")
              if path.is_file() and not path.is_symlink()]  # fmt: skip
    for content in [*stored, *(path.read_bytes() for path in files)]:
        assert not [one for one in secrets if one.encode() in content]


def _assert_all_is_paid_and_gone(clouds: CloudDeployment, jobs: list[FollowedJob]) -> None:
    plane = clouds.plane
    for job in jobs:
        job.released()
    # A bill is final once prices of after the end are known; Google's are read by the hour.
    unbilled = ("SELECT 1 FROM instances WHERE launched_at IS NOT NULL "
                "AND (billed_until_at IS NULL OR billed_until_at < ended_at)")  # fmt: skip
    plane.wait(lambda: not plane.sql(unbilled), "every machine billed to its end")
    rows = plane.sql("SELECT provider_instance_id, id FROM instances "
                     "WHERE provider_instance_id IS NOT NULL")  # fmt: skip
    booked = plane.sql("SELECT i.provider_instance_id AS machine, sum(l.amount_microusd) AS sum "
                       "FROM instances i JOIN ledger_entries l ON l.instance_id = i.id "
                       "WHERE l.component <> 'egress' GROUP BY 1")  # fmt: skip
    bills = clouds.bills()
    assert {row["provider_instance_id"] for row in rows} == set(bills)
    ledger = dict.fromkeys(bills, 0) | {row["machine"]: int(row["sum"]) for row in booked}
    assert ledger == bills
    assert sum(bills.values()) > 0
    assert set(clouds.launches_per_token().values()) == {1}
    assert clouds.living() == []
    assert clouds.volumes() == []
    watched = " ".join(clouds.traffic.programs())
    assert "uvicorn" in watched
    assert "trainer.agent.main" in watched
    assert clouds.traffic.outside() == []
