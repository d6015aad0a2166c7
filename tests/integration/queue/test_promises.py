"""Deadlines and budgets that are refused, or wanted in earnest, when a job is submitted."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, update

from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.spec.job_spec import parse_spec
from app.orchestration.estimates.estimate_job import JobEstimate, estimate_job
from app.storage.schema import money_tables
from tests.support.api.agent_api import wait_until
from tests.support.cli.cli_world import World
from tests.support.stories.orchestration_story import ON_DEMAND_A, Story

SPEC = {
    "run": "true",
    "resources": {"gpu": "V100"},
    "estimate": {"hours": 10, "gpu": "V100"},
    "deadline": "20h",
}
A100 = Hardware("A100", 1, 40, 12, 85)
FAST = Pool("local", "us-west-2", "us-west-2a", "a2-highgpu-1g", Market.ON_DEMAND)


def post(
    world: World, query: str = "", key: str = "", **changes: Any
) -> tuple[int, dict[str, Any]]:
    """(status, document) of a submission over the api."""
    headers = {"Idempotency-Key": key} if key else {}
    spec = {**SPEC, **changes}
    answer = world.api.client.post(f"/api/v1/jobs{query}", json=spec, headers=headers)
    return answer.status_code, answer.json()


def test_an_impossible_deadline_is_refused_by_the_api_however_much_one_insists(world: World):
    told = "would end in 10h 36m, for about $109.08"
    for query in ("", "?accept_risk=true"):
        status, found = post(world, query, deadline="10h 20m")
        assert status == 422
        assert told in found["detail"]
        assert (found["errors"][0]["field"], found["errors"][0]["kind"]) == (
            "deadline",
            "impossible",
        )
    file = world.folder / "job.json"
    file.write_text(json.dumps({**SPEC, "deadline": "10h 20m"}))
    assert told in world.cli.fails(2, "submit", str(file), "-y", "-d", "--accept-risk").errors
    assert post(world, deadline="11h", name="just")[0] == 201


def test_a_promise_that_will_probably_break_is_made_only_when_one_insists(world: World):
    status, found = post(world, budget_usd=3)
    assert status == 422
    assert "budget 0 % (0 % both) of the simulated runs" in found["detail"]
    assert found["detail"].endswith("; change it, or submit with accept_risk=true")
    assert "--accept-risk" not in found["detail"], "the command line's own name for it"
    [told] = found["errors"]
    assert (told["kind"], told["advice"]) == ("risky", "accept_risk")
    assert "accept" not in told["message"]
    assert post(world, "?accept_risk=true", budget_usd=3)[0] == 201
    assert post(world, "?accept_risk=perhaps")[0] == 422
    assert post(world)[0] == 201


def test_spot_alone_promises_nothing_and_says_when_it_could_end_at_best(world: World):
    status, found = post(world, market="spot", deadline="5h")
    assert status == 422
    assert "deadline 0 %" in found["detail"]
    assert "without an interruption, it would end in 10h 6m at the earliest" in found["detail"]
    assert post(world, "?accept_risk=true", market="spot", deadline="5h")[0] == 201


def test_a_job_that_is_stopped_before_its_work_is_done_is_told_so(world: World):
    status, found = post(world, max_duration="5h")
    assert status == 422
    told = "stopped after 5h, and even without an interruption it needs 10h"
    assert told in found["detail"]
    assert found["errors"][0]["field"] == "max_duration"
    assert post(world, max_duration="12h")[0] == 201


def test_what_was_submitted_before_stays_submitted(world: World, engine: Engine):
    assert post(world, key="once", budget_usd=120)[0] == 201
    dear = {"price_microusd_per_hour": 50_000_000, "on_demand_microusd_per_hour": 60_000_000}
    with engine.begin() as connection:
        connection.execute(update(money_tables.pools).values(dear))
    # What was accepted a moment ago is simulated anew after two seconds.
    wait_until(lambda: post(world, budget_usd=120)[0] == 422, 30)
    status, found = post(world, key="once", budget_usd=120)
    assert (status, found["created"]) == (200, False)


def test_a_risk_is_told_also_where_it_is_accepted(world: World):
    file = world.folder / "job.json"
    file.write_text(json.dumps({**SPEC, "deadline": None, "max_duration": "5h"}))
    told = "it needs 10h"
    ran = world.cli.ok("submit", str(file), "--dry-run")
    assert told in ran.out + ran.errors
    assert "will hold" not in ran.out
    assert told in world.cli.ok("estimate", str(file)).out
    assert told in world.cli.fails(2, "submit", str(file), "--yes", "-d").errors
    status, found = post(world, "?accept_risk=True", deadline=None, max_duration="5h")
    assert status == 201, found
    status, found = post(world, "?accept_risk=perhaps")
    assert (status, found["errors"][0]["field"]) == (422, "accept_risk")


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": "2..4", "deadline": "8h"},
        {"resources": {"gpu": "H100"}, "deadline": "8h"},
    ],
)
def test_more_or_quicker_machines_are_not_told_to_miss_the_deadline(
    world: World, changes: dict[str, object]
):
    file = world.folder / "job.json"
    file.write_text(json.dumps({**SPEC, **changes}))
    ran = world.cli.run("submit", str(file), "--dry-run")
    assert "it will be missed" not in ran.out + ran.errors


def test_a_job_that_nothing_fits_is_told_of_a_deadline_out_of_reach(world: World):
    file = world.folder / "job.json"
    spec = {**SPEC, "resources": {"gpu": "V100:8"}, "estimate": {"hours": 10, "gpu": "V100:8"}}
    file.write_text(json.dumps({**spec, "deadline": "5h"}))
    assert "10h: it will be missed" in world.cli.fails(2, "submit", str(file), "--dry-run").out


# --- work that only the trainer's formula tells ---------------------------------------------------

FORMULA: dict[str, Any] = {
    "run": None,
    "estimate": None,
    "trainer": {"model": "resnet50", "data": "digits", "steps": 2_000_000},
}
"""Some six hours on a V100."""


def test_a_trainers_job_is_weighed_by_its_formula(world: World):
    status, found = post(world, **FORMULA, market="spot", deadline="5h")
    assert status == 422
    assert found["errors"][0]["kind"] == "risky"
    assert "the work is by the trainer's formula: " in found["detail"]
    assert "`estimate` in the spec replaces it" in found["detail"]
    assert post(world, **FORMULA, deadline="40h", name="easy")[0] == 201
    own = {**FORMULA, "estimate": {"hours": 1, "gpu": "V100"}}
    assert post(world, **own, deadline="5h", name="measured")[0] == 201


def test_what_the_formula_calls_impossible_is_a_risk_that_one_may_take(world: World):
    status, found = post(world, **FORMULA, deadline="1h")
    assert status == 422
    assert (found["errors"][0]["field"], found["errors"][0]["kind"]) == ("deadline", "risky")
    assert "would end in " in found["detail"]
    file = world.folder / "job.json"
    file.write_text(json.dumps({**SPEC, **FORMULA, "deadline": "1h"}))
    refused = world.cli.fails(2, "submit", str(file), "-y", "-d").errors
    assert "the work is by the trainer's formula" in refused
    assert "; change it, or submit with --accept-risk" in refused
    assert "accept_risk" not in refused, "the api's own name for it"
    told = world.cli.ok("submit", str(file), "-y", "-d", "--accept-risk", "--name", "bold")
    assert "Risk: deadline: it cannot be met" in told.errors
    assert "by the trainer's formula" in told.errors
    assert "accept_risk" not in told.errors, "it was accepted"
    assert post(world, "?accept_risk=true", **FORMULA, deadline="1h", name="bolder")[0] == 201


def test_work_that_nobody_can_tell_is_not_weighed(world: World):
    unknown = {**FORMULA, "trainer": {"model": "resnet50", "data": "digits", "epochs": 3}}
    unknown["trainer"]["model_options"] = {"dropout": 0.1}
    assert post(world, **unknown, deadline="1h")[0] == 201


# --- several kinds --------------------------------------------------------------------------------


def two_kinds(engine: Engine, folder: Path, deadline: str) -> JobEstimate:
    """Ten hours on a V100, which costs less on demand for its work than an A100."""
    story = Story(engine, folder / "store")
    story.quote({ON_DEMAND_A: 1_000_000})
    quick = Offer(FAST, A100, 9_000_000, 9_000_000, "ec2", story.time, "trace", 4)
    with story.runtime.begin() as uow:
        uow.offers.record([quick], [], story.time)
    kinds = {"gpu": ["V100:1", "A100:1"]}
    told = {"hours": 10, "gpu": "V100:1"}
    spec = {**SPEC, "resources": kinds, "estimate": told, "deadline": deadline}
    spec["market"] = "on_demand"
    return estimate_job(story.runtime, story.project_id, parse_spec(spec), seed=0, paths=20)


def test_on_demand_is_the_cheapest_kind_in_time(engine: Engine, tmp_path: Path):
    hurried = two_kinds(engine, tmp_path, "9h")
    assert hurried.on_demand is not None
    assert hurried.on_demand.key == FAST.key
    assert hurried.estimates[-1].deadline_chance == 1.0


def test_on_demand_is_the_cheapest_kind_where_all_are_in_time(engine: Engine, tmp_path: Path):
    leisurely = two_kinds(engine, tmp_path, "20h")
    assert leisurely.on_demand is not None
    assert leisurely.on_demand.key == ON_DEMAND_A.key
    assert leisurely.earliest_seconds is not None
    assert leisurely.earliest_seconds < timedelta(hours=9).total_seconds(), "by the quickest kind"


def test_the_pools_of_a_gang_count_the_hazard_of_all_its_machines(world: World):
    taken = []
    for nodes in (1, 4):
        asked = {**SPEC, "nodes": nodes, "estimate": {"hours": 10, "gpu": "V100", "nodes": nodes}}
        found = world.api.client.post("/api/v1/estimates", json=asked).json()
        taken.append((found["pools"][0], found["estimates"][0]))
    (alone, own), (together, gang) = taken
    assert together["interruptions_per_hour"] > 2 * alone["interruptions_per_hour"]
    assert gang["interruptions_mean"] > own["interruptions_mean"]
