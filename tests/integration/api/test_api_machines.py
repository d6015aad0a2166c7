"""Instances, offers and rehearsed interruptions over REST; costs in their documented places."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Hardware, HardwareDocument, Market, Pool
from app.ports.cloud_provider import MachineState
from app.storage.schema import money_tables, tables
from tests.support.api.agent_api import POOL
from tests.support.api.people_api import (
    PeopleApi,
    make_own_gang,
    people_api,
    settings_for,
)
from tests.support.cli.command_line import CommandLine
from tests.support.deployment.scripted_local_cloud import (
    GCP_POOL,
    LocalCloudForTests,
    an_order,
    open_local_cloud,
)
from tests.support.servers.postgres import PostgresForTests
from tests.support.servers.table_rows import add_row, change_row


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloudForTests]:
    with open_local_cloud() as opened:
        yield opened


@pytest.fixture(scope="module")
def api(
    postgres: PostgresForTests,
    valkey_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    cloud: LocalCloudForTests,
) -> Iterator[PeopleApi]:
    folder: Path = tmp_path_factory.mktemp("s")
    (folder / "cloud").symlink_to(cloud.folder)
    with people_api(settings_for(postgres.clone(), valkey_url, folder)) as up:
        yield up


def machine_of(api: PeopleApi, name: str, **values: object) -> str:
    """The id of the one instance of a new job."""
    [instance_id] = make_own_gang(api, name=name).instance_ids
    change_row(api.engine, tables.instances, instance_id, **{"suspect": False, **values})
    return str(instance_id)


def carrying(gpu: str) -> HardwareDocument:
    return Hardware(gpu, 1, 80, 12, 85).to_json()


def quote(api: PeopleApi, pool: Pool, gpu: str, price: int, on_demand: int, **more: Any) -> None:
    """A pool and its price."""
    add_row(
        api.engine, money_tables.pools, pool=pool, provider=pool.provider,
        hardware=carrying(gpu), price_microusd_per_hour=price,
        on_demand_microusd_per_hour=on_demand, price_source="test", billing_speed=1, refusals=0,
        **{"cloud": "ec2", "quoted_at": datetime.now(UTC), **more},
    )  # fmt: skip


def interrupt(
    api: PeopleApi, instance_id: str, notice_seconds: object
) -> tuple[int, dict[str, Any]]:
    answer = api.client.post(
        f"/api/v1/instances/{instance_id}/interrupt", json={"notice_seconds": notice_seconds}
    )
    return answer.status_code, answer.json()


def test_a_local_machine_is_taken_with_notice(api: PeopleApi, cloud: LocalCloudForTests):
    machine = cloud.launch()
    instance_id = machine_of(api, "noticed", provider_instance_id=machine)
    began = datetime.now(UTC)
    status, document = interrupt(api, instance_id, 0.5)
    assert (status, document["id"]) == (200, instance_id)
    ends_at = datetime.fromisoformat(document["ends_at"])
    assert 0.5 <= (ends_at - began).total_seconds() < 60
    ended = cloud.await_end(machine)
    assert (ended.state, ended.ended_by) == (MachineState.TERMINATED, EndedBy.CLOUD_INTERRUPTION)
    status, document = interrupt(api, instance_id, 0.5)
    assert status == 409
    assert len(document["detail"]) > 10


def test_a_local_machine_is_taken_without_notice(api: PeopleApi, cloud: LocalCloudForTests):
    machine = cloud.launch(an_order(token="killed"))
    status, _ = interrupt(api, machine_of(api, "killed", provider_instance_id=machine), None)
    assert status == 200
    assert cloud.await_end(machine).ended_by is EndedBy.CLOUD_INTERRUPTION


def test_the_notice_is_that_of_the_imitated_cloud(
    api: PeopleApi, cloud: LocalCloudForTests, tmp_path: Path
):
    """What the command prints is what the cloud does, not what was asked for."""
    machine = cloud.launch(an_order(GCP_POOL, token="google"))
    instance_id = machine_of(api, "google", provider_instance_id=machine)
    status, document = interrupt(api, instance_id, 10)
    assert status == 409
    assert "this one has 30s" in document["detail"]
    cli = CommandLine(tmp_path, {"LOWTIDE_SERVER_URL": api.url, "LOWTIDE_API_KEY": api.key})
    for _ in range(2):
        assert re.search(
            r"has its notice; it is killed in (2\d|30)s\.",
            cli.ok("instances", "interrupt", instance_id).out,
        )
    assert cloud.machine(machine).state is MachineState.RUNNING


def test_only_the_local_cloud_is_told_to_take_machines(api: PeopleApi):
    elsewhere = machine_of(api, "on-aws", provider="aws", provider_instance_id="i-1")
    status, document = interrupt(api, elsewhere, 5)
    assert status == 409
    assert "aws" in document["detail"]
    status, document = interrupt(api, machine_of(api, "early", provider_instance_id=None), 5)
    assert (status, "not started" in document["detail"]) == (409, True)
    assert interrupt(api, str(uuid4()), 5)[0] == 404


@pytest.mark.parametrize("seconds", [-1, 10**9, "soon", True, {"x": 1}])
def test_a_bad_notice_is_refused(api: PeopleApi, seconds: object):
    status, document = interrupt(api, str(uuid4()), seconds)
    assert status == 422
    assert document["errors"][0]["field"] == "notice_seconds"


def test_another_projects_machine_cannot_be_taken(api: PeopleApi, cloud: LocalCloudForTests):
    machine = cloud.launch(an_order(token="guarded"))
    instance_id = machine_of(api, "guarded", provider_instance_id=machine)
    path, headers = f"/api/v1/instances/{instance_id}/interrupt", api.as_stranger("other")
    answer = api.client.post(path, json={"notice_seconds": None}, headers=headers)
    assert answer.status_code == 404
    assert cloud.machine(machine).state is MachineState.RUNNING


def test_instances_are_listed_with_their_job_and_place(api: PeopleApi):
    live = machine_of(api, "listed")
    ended = machine_of(api, "gone", state="terminated", ended_at=datetime.now(UTC), ended_by="us")
    found = {row["id"]: row for row in api.items("/instances")}
    assert live in found
    assert ended not in found
    row = found[live]
    assert (row["job_name"], row["zone"], row["state"]) == ("listed", "us-west-2a", "launched")
    [row] = api.items("/instances", live=False, job="gone")
    assert (row["id"], row["ended_by"]) == (ended, "us")


def test_offers_come_cheapest_first(api: PeopleApi):
    cheap = Pool("local", "us-central1", "us-central1-a", "a3", Market.SPOT)
    quote(api, POOL, "V100", 918_000, 3_060_000)
    quote(api, cheap, "H100", 500, 1_000)
    found = api.items("/offers")
    assert [one["hardware"]["gpu_name"] for one in found] == ["H100", "V100"]
    assert (found[1]["pool"], found[1]["on_demand_ratio"]) == (POOL.key, pytest.approx(0.3))
    [only] = api.items("/offers", gpu="v100")
    assert (only["region"], only["market"]) == ("us-west-2", "spot")


def test_what_clouds_tell_of_pools_is_shown_with_its_age(api: PeopleApi):
    told_at, start = datetime.now(UTC), datetime.now(UTC) - timedelta(days=10)
    pool = Pool("gcp", "us-central1", "us-central1-b", "a2", Market.SPOT)
    quote(api, pool, "A100", 700, 1_000, cloud="gce", quoted_at=told_at - timedelta(hours=9))
    add_row(
        api.engine, money_tables.pool_pasts, pool=pool, asked_at=told_at, score=7,
        scored_at=told_at, source="test", preemptions=[
            {"from_at": None, "to_at": None, "rate": rate} for rate in (0.5, 0.25)
        ],
        steps=[[start.timestamp(), 600], [start.timestamp() + 86_400, 700]],
    )  # fmt: skip
    [row] = api.items("/offers", gpu="a100")
    assert (row["placement_score"], row["preemption_rate"]) == (7, 0.25)
    assert row["placement_scored_at"] == row["preemption_rate_at"] is not None
    assert row["is_stale"] is True
    assert row["quote_age_seconds"] // 3600 == 9
    [history] = api.items("/offers/history", pool=pool.key, days=20)
    assert history["summary"] == {"least": 600, "median": 700, "most": 700}
    assert [step["microusd_per_hour"] for step in history["steps"]] == [600, 700]
    assert [one["rate"] for one in history["preemptions"]] == [0.5, 0.25]
    [lately] = api.items("/offers/history", pool=pool.key, days=5)
    assert [step["microusd_per_hour"] for step in lately["steps"]] == [700]
    for wrong, status in (("nonsense", 422), ("a/b/c/d/spot", 404)):
        answer = api.client.get("/api/v1/offers/history", params={"pool": wrong})
        assert answer.status_code == status
        assert "lowtide offers -q" in answer.text
    assert api.items("/offers/history", gpu="none") == []


def test_costs_close_over_any_period(api: PeopleApi):
    costs = api.get("/costs")
    books = costs["books"]
    assert books["verdict"] == "nothing_booked"
    assert "nothing to check" in books["sentence"]
    told = [costs[name] for name in ("difference_microusd", "checked_at")]
    assert told == [books["difference_microusd"], books["checked_at"]] == [0, None]
    assert costs["rows"][-1]["key"] == "unallocated"
    table = api.client.get("/api/v1/costs", params={"format": "csv", "by": "gpu"})
    assert table.headers["content-type"].startswith("text/csv")
    assert table.text.startswith("day,job,project,labels,")
    assert len(table.text.splitlines()) == 1, "nothing was booked, and the header is there"
    name = api.submitted()["name"]
    cost = api.get(f"/jobs/{name}/cost", reconcile=True)
    assert (cost["name"], cost["statement"]["total_microusd"]) == (name, 0)
    assert cost.keys() >= {"budget", "project_budget"}
    assert cost["statement"].keys() >= {"net_saved_ratio", "rate_saved_ratio", "useful_seconds"}
    assert cost["books"]["verdict"] == "nothing_booked"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "2026-03-02", "to": "2026-03-01"}, "from"),
        ({"from": "2099-01-01"}, "from"),
        ({"from": "0001-01-01"}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"by": "colour"}, "by"),
        ({"by": "label"}, None),
        ({"label": "team"}, "label"),
        ({"by": "job", "label": "team"}, "label"),
        ({"label": "team", "format": "csv"}, "label"),
        ({"format": "xml"}, "format"),
    ],
)
def test_a_bad_period_is_refused(api: PeopleApi, query: dict[str, Any], field: str | None):
    answer = api.client.get("/api/v1/costs", params=query)
    assert answer.status_code == 422
    if field is not None:
        assert answer.json()["errors"][0]["field"] == field


def test_a_period_without_a_day_says_which_end_is_wrong(api: PeopleApi):
    def told(**query: str) -> str:
        return str(api.client.get("/api/v1/costs", params=query).json()["detail"])

    turned = told(**{"from": "2026-03-02", "to": "2026-03-01", "format": "csv"})
    assert turned == "from: 2026-03-02 is after to, 2026-03-01; give the earlier day first"
    assert told(**{"from": "2099-01-01"}).startswith("from: 2099-01-01 lies in the future: today")


def test_the_books_are_verified(api: PeopleApi):
    name = api.submitted()["name"]
    found = api.get("/costs/verify", job=name)
    assert (found["closed"], found["machines"], found["differences"]) == (True, 0, [])
    assert datetime.fromisoformat(found["verified_at"]).tzinfo is not None
