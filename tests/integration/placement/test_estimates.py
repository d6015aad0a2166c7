"""Estimates over REST and from the command line; experience counted from real rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, event, select, update

from app.domain.availability.hazard_by_age import Experience
from app.domain.availability.hazard_models import posterior
from app.domain.lifecycle.instance import EndedBy, InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.lifecycle.launch import LaunchOutcome
from app.domain.spec.job_spec import parse_spec
from app.domain.throughput.gang_scaling import EXPECTED_SCALING
from app.orchestration.estimates.estimate_job import ask as question_of
from app.orchestration.estimates.estimate_job import with_pauses
from app.orchestration.estimates.keep_estimates import KeepEstimates
from app.orchestration.frame.controller_frame import run_controller
from app.storage.jobs.kept_estimate_rows import KeptEstimate
from app.storage.schema import money_tables, tables
from tests.support.cli.cli_world import World
from tests.support.stories.money_story import ON_DEMAND_PRICE, POOL, START, MoneyStory
from tests.support.stories.presence import present

SPEC = {
    "run": "true",
    "resources": {"gpu": "V100"},
    "estimate": {"hours": 10, "gpu": "V100"},
    "deadline": "20h",
    "budget_usd": 120,
}
YAML = """
run: "true"
resources: {gpu: V100}
estimate: {hours: 10, gpu: V100}
deadline: 20h
budget_usd: 120
"""


def ask(world: World, spec: dict[str, object], seed: int = 0) -> tuple[int, dict[str, Any]]:
    """(status, document) of POST /estimates."""
    answer = world.api.client.post(f"/api/v1/estimates?seed={seed}", json=spec)
    return answer.status_code, answer.json()


def test_the_api_answers_for_each_way_to_rent(world: World):
    status, found = ask(world, SPEC)
    assert status == 200
    assert [one["market"] for one in found["estimates"]] == ["auto", "spot", "on_demand"]
    auto, _, on_demand = found["estimates"]
    assert auto["deadline_chance"] == 1.0
    # One pool of which nothing is known may turn out to be of no use at all.
    assert auto["cost_p50_microusd"] < on_demand["cost_p50_microusd"] / 2
    assert auto["cost_p90_microusd"] < 1.05 * on_demand["cost_p50_microusd"]
    boot_hours = 360 / 3_600
    assert on_demand["cost_p50_microusd"] == round(ON_DEMAND_PRICE * (10 + boot_hours))
    spot, dear = found["pools"][0], found["on_demand"]
    assert spot["pool"] == POOL.key
    assert spot["interruptions_per_hour"] > 0.2
    assert 36_360 < spot["expected_seconds"] < 2 * 36_000
    assert (dear["expected_microusd"], dear["expected_seconds"]) == (109_080_000, 36_360)
    assert found["work_seconds"] == 36_000
    assert len(found["curve"]) == 7
    assert ask(world, SPEC) == (200, found)
    assert ask(world, SPEC, seed=1)[1]["estimates"] != found["estimates"]


def test_a_bill_that_runs_faster_is_in_every_cost_of_an_estimate(world: World, engine: Engine):
    usual = ask(world, SPEC)[1]
    with engine.begin() as connection:
        connection.execute(update(money_tables.pools).values(billing_speed=60))
    found = ask(world, {**SPEC, "budget_usd": 100_000})[1]
    dear, before = found["on_demand"], usual["on_demand"]
    assert dear["billing_speed"] == 60
    # The price is that of a billed hour, of which sixty pass in one.
    assert dear["microusd_per_hour"] == before["microusd_per_hour"]
    assert dear["expected_microusd"] == 60 * before["expected_microusd"]
    assert dear["expected_seconds"] == before["expected_seconds"]
    costs = [one["estimates"][-1]["cost_p50_microusd"] for one in (usual, found)]
    assert costs[1] == 60 * costs[0] == dear["expected_microusd"]
    assert found["estimates"][-1]["finish_p50_seconds"] == dear["expected_seconds"]


def test_estimates_rent_nothing_and_submit_nothing(world: World, engine: Engine):
    def rows() -> list[int]:
        with engine.connect() as connection:
            counted = (tables.jobs, tables.launches, tables.instances)
            return [len(connection.execute(table.select()).all()) for table in counted]

    before = rows()
    ask(world, SPEC)
    assert rows() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimate": None, "deadline": None, "budget_usd": None}, "Cannot estimate: the work"),
        (
            {"deadline": "9h"},
            "30m reserved to get the machines, the job would end in 10h 36m, for about $109.08",
        ),
        (
            {"deadline": "36m", "estimate": {"hours": 0.02}},
            "in 38m, for about $1.30",
        ),
        ({"deadline": "2020-01-01T00:00:00Z"}, "has passed already"),
        ({"bogus": 1}, "bogus"),
    ],
)
def test_what_cannot_be_estimated_says_why(world: World, change: dict[str, object], words: str):
    spec = {name: value for name, value in {**SPEC, **change}.items() if value is not None}
    status, found = ask(world, spec)
    assert status == 422
    assert words in str(found)


TRAINED = {"model": "resnet50", "data": "/data/photos", "batch_size": 256, "precision": "bf16"}


def test_a_trainers_work_is_told_by_its_formula_where_the_spec_gives_no_estimate(world: World):
    spec = {"trainer": {**TRAINED, "steps": 450_411}, "resources": {"gpu": "V100"}}
    status, found = ask(world, spec)
    assert status == 200
    # 115 million samples; the V100 of 16 GB has 900 GB/s where the measured A100 has 2,039.
    assert found["work_seconds"] == pytest.approx(13.094 * 3_600 * 2_039 / 900, rel=0.02)
    assert "115,305,216 samples of resnet50 (450,411 steps of 256) in bf16" in found["work_source"]
    assert "1 × V100 16 GB" in found["work_source"]
    status, found = ask(world, {"trainer": {**TRAINED, "epochs": 90}})
    assert status == 422
    assert "`steps` in place of `epochs`" in str(found)


def test_the_command_shows_figures_and_what_the_deadline_costs(world: World, tmp_path: Path):
    file = tmp_path / "job.yaml"
    file.write_text(YAML)
    ran = world.cli.ok("estimate", str(file))
    assert "work: 10h, by the spec's estimate" in ran.out
    assert "100 %" in ran.row("spot, on-demand in time")
    assert "never" not in ran.out
    assert "%" in ran.row("us-west-2a", "spot")
    assert "shortest deadline that on-demand machines keep: 10h 36m" in ran.out
    assert "what a deadline costs" in ran.out
    assert ran.out.count("▓") > 30
    found = world.cli.ok("estimate", str(file), "--deadline", "40h", "--json").json
    assert found["estimates"][0]["deadline_chance"] == 1.0
    said = world.cli.fails(2, "estimate", str(file), "--deadline", "2h").errors
    assert "cannot be met" in said


def test_the_job_of_the_readme_is_estimated_and_its_plan_says_how_long_it_takes(
    world: World, tmp_path: Path
):
    file = tmp_path / "tour.yaml"
    file.write_text(
        "name: tour\ntrainer: {model: cnn, data: digits, steps: 4000, step_delay_seconds: 0.2}\n"
        "resources: {gpu: V100}\nnodes: 2\ndeadline: 2h\nbudget_usd: 90\n"
    )
    shown = world.cli.ok("estimate", str(file)).out
    assert "samples of cnn (4,000 steps of 64) in" in shown
    assert "with 0.2s of pause after each step" in shown
    plan = world.cli.ok("submit", str(file), "--dry-run").out
    assert "By the trainer's formula it takes about 14m on one machine with 1 × V100 16 GB" in plan


def test_pauses_do_not_get_shorter_on_more_machines_or_on_faster_ones(world: World):
    """2,000 steps with a pause of 0.2 s take 400 s, however many machines compute them."""
    trainer = {"model": "cnn", "data": "digits", "steps": 2_000, "step_delay_seconds": 0.2}
    asked = {"trainer": trainer, "resources": {"gpu": "V100"}, "nodes": 4}
    status, found = ask(world, asked)
    assert status == 200
    assert 400 <= found["work_seconds"] < 405
    [pool] = [one for one in found["pools"] if one["pool"] == POOL.key]
    assert 1.0 <= pool["speed"] < 1.02
    assert found["scaling"].endswith("; 6m 40s of pauses stay as long")
    # A command may pause as well, and nothing tells how long.
    estimate = {"hours": 1, "gpu": "V100"}
    _, command = ask(world, {"run": "true", **asked, "trainer": None, "estimate": estimate})
    [pool] = [one for one in command["pools"] if one["pool"] == POOL.key]
    assert pool["speed"] == pytest.approx(EXPECTED_SCALING.speed_up(4))
    assert command["scaling"].endswith("; that counts all of the command's time, its pauses, too")


def test_what_is_measured_has_the_pauses_in_it_already():
    assert with_pauses(100.0, 0.0, 3.0) == pytest.approx(3.0)
    assert with_pauses(100.0, 50.0, 2.0) == pytest.approx(100 / 75)
    assert with_pauses(100.0, 500.0, 4.0) == pytest.approx(1.0)
    assert with_pauses(100.0, 50.0, 0.5) == pytest.approx(100 / 150)


def test_a_hazard_is_one_figure_wherever_it_is_told(world: World, tmp_path: Path):
    """HAZARD/H is one machine's, as in `explain`, and of several its head says so."""
    _, alone = ask(world, SPEC)
    gang_estimate = {"hours": 10, "gpu": "V100", "nodes": 4}
    _, gang = ask(world, {**SPEC, "nodes": 4, "estimate": gang_estimate})
    [one] = [row for row in alone["pools"] if row["pool"] == POOL.key]
    [of_four] = [row for row in gang["pools"] if row["pool"] == POOL.key]
    assert one["hazard_per_hour"] == one["interruptions_per_hour"] == of_four["hazard_per_hour"]
    assert of_four["interruptions_per_hour"] > 2 * of_four["hazard_per_hour"]
    file = tmp_path / "job.yaml"
    file.write_text(YAML)
    told = world.cli.ok("estimate", str(file)).out
    assert "HAZARD/H" in told
    assert "INTERRUPTED/H" not in told
    of_gang = world.cli.ok("estimate", str(file), "--nodes", "4").out
    [head] = [line for line in of_gang.splitlines() if line.startswith("POOL ALONE")]
    assert "EACH  HAZARD/H EACH  JOB INTERRUPTED/H" in head
    plan = world.cli.ok("submit", str(file), "--nodes", "4", "--dry-run").out
    assert "HAZARD/H EACH" in plan
    assert "INTERRUPTED/H is that of the job, which any of its 4 machines interrupts." in of_gang


def test_a_job_that_nothing_fits_would_wait(world: World, tmp_path: Path):
    status, found = ask(world, {**SPEC, "resources": {"gpu": "H200:8"}})
    assert (status, found["estimates"], found["earliest_seconds"]) == (200, [], None)
    file = tmp_path / "job.yaml"
    file.write_text(YAML)
    assert "it would wait" in world.cli.ok("estimate", str(file), "--gpu", "H200:8").out


def test_a_risky_job_is_submitted_only_when_the_risk_is_accepted(world: World, tmp_path: Path):
    file = tmp_path / "job.yaml"
    file.write_text(YAML.replace("budget_usd: 120", "budget_usd: 3"))
    said = world.cli.fails(2, "submit", str(file), "-y", "-d").errors
    assert "budget 0 %" in said
    assert "--accept-risk" in said
    world.cli.ok("submit", str(file), "-y", "-d", "--accept-risk", "-n", "risky")
    assert "risky" in world.cli.ok("jobs").out


# --- experience -----------------------------------------------------------------------------------


def test_lives_and_interruptions_are_counted_by_age(engine: Engine):
    story = MoneyStory(engine)
    story.quote()
    job = story.job(story.project(), "digits")
    for lived, ended_by in (
        (300, EndedBy.CLOUD_INTERRUPTION),
        (3_600, EndedBy.CLOUD_INTERRUPTION),
        (10_000, EndedBy.US),
    ):
        machine = story.machine(job)
        with engine.begin() as connection:
            row = tables.instances
            connection.execute(
                update(row)
                .where(row.c.id == machine.id)
                .values(
                    state=InstanceState.TERMINATED,
                    ended_at=START + timedelta(seconds=lived),
                    ended_by=ended_by,
                )
            )
    for _ in range(2):
        launch = story.launch(job)
        with engine.begin() as connection:
            connection.execute(
                update(tables.launches)
                .where(tables.launches.c.id == launch.id)
                .values(outcome=LaunchOutcome.REFUSED)
            )
    with story.begin() as uow:
        found = uow.pool_experience.of([POOL], START - timedelta(days=1), START)[POOL]
        none = uow.pool_experience.of([POOL], START + timedelta(days=1), datetime.now(UTC))
    assert found.taken == (1, 0, 1, 0, 0)
    assert found.lived_seconds == (300 + 600 + 600, 1_200 * 2, 1_800 + 5_400, 2_800, 0)
    assert (found.launches, found.refusals) == (5, 2)
    expected = 0.8333 + 0.8 + 1.1 + 0.1556
    counted = Experience((0, 0, expected * 3_600 / 0.55, 0, 0), (0, 0, 2, 0, 0), 5, 2)
    assert posterior(found).hazard_factor == pytest.approx(posterior(counted).hazard_factor, 1e-3)
    assert none == {}


def test_lives_add_up_to_the_same_in_whatever_order_they_are_found(engine: Engine):
    """0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1 in floats, and rows lie in any order."""
    story = MoneyStory(engine)
    job = story.job(story.project(), "digits")
    rising, falling = POOL, replace(POOL, zone="us-west-2b")
    for pool, lives in ((rising, (0.1, 0.2, 0.3)), (falling, (0.3, 0.2, 0.1))):
        for lived in lives:
            story.machine(job, pool=pool, ended_at=START + timedelta(seconds=lived))
    with story.begin() as uow:
        found = uow.pool_experience.of([rising, falling], START - timedelta(days=1), START)
    assert found[rising].lived_seconds == found[falling].lived_seconds == (0.6, 0, 0, 0, 0)


def test_an_evaluation_sends_texts_that_are_built_once(engine: Engine):
    """Building a statement takes longer than PostgreSQL's answer, and many projects evaluate."""
    story = MoneyStory(engine)
    project_id, spec = story.project(), parse_spec(SPEC)
    is_built: list[bool] = []

    def note(connection: object, *_: object) -> None:
        is_built.append(connection is not None)

    def evaluated() -> int:
        """How many statements."""
        is_built.clear()
        event.listen(engine, "before_cursor_execute", note)
        question_of(story.runtime, project_id, spec)
        event.remove(engine, "before_cursor_execute", note)
        assert not any(is_built)
        return len(is_built)

    assert evaluated() == 3, "without pools nothing is asked about them"
    story.quote(0, [(-60, 3_600_000)])
    assert evaluated() == 5


# --- estimate against actual ----------------------------------------------------------------------


def test_every_queued_job_gets_one_estimate_and_is_held_against_it(world: World, tmp_path: Path):
    file = tmp_path / "job.yaml"
    file.write_text(YAML)
    world.cli.ok("submit", str(file), "-y", "-d", "-n", "promised")
    file.write_text('run: "true"\n')
    world.cli.ok("submit", str(file), "-y", "-d", "-n", "vague")
    story = world.story
    controller = KeepEstimates(world.api.parts.runtime)
    assert run_controller(world.api.parts.runtime, controller) == 2
    assert run_controller(world.api.parts.runtime, controller) == 0
    ids = {one["name"]: UUID(one["id"]) for one in world.cli.ok("jobs", "--json").json}
    with story.begin() as uow:
        kept = {name: uow.kept_estimates.of(ids[name]) for name in ("promised", "vague")}
    assert kept["vague"] is not None
    assert kept["vague"].cost_p50_microusd is None
    assert kept["promised"] is not None
    assert kept["promised"].deadline_chance == 1.0
    assert "No job with an estimate" in world.cli.ok("estimate", "--calibration").out

    job_id, now = kept["promised"].job_id, datetime.now(UTC)
    with story.engine.begin() as connection:
        connection.execute(
            update(tables.jobs)
            .where(tables.jobs.c.id == job_id)
            .values(
                state=JobState.SUCCEEDED,
                ended_at=tables.jobs.c.submitted_at + timedelta(hours=11),
                cost_final_at=now,
            )
        )
        connection.execute(
            update(tables.budgets)
            .where(tables.budgets.c.job_id == job_id)
            .values(spent_microusd=present(kept["promised"].cost_p90_microusd) + 1)
        )
    found = world.cli.ok("estimate", "--calibration", "--json").json
    assert found["jobs"] == 1
    assert (found["cost_under_p90"], found["finish_under_p90"]) == (0.0, 1.0)
    assert found["items"][0]["seconds"] == 11 * 3_600
    said = world.cli.ok("estimate", "--calibration")
    assert "promised" in said.out
    assert "0 % of 1 job stayed under P90" in said.out


def test_a_job_that_was_claimed_at_once_is_estimated_as_of_its_submission(
    world: World, tmp_path: Path
):
    file = tmp_path / "job.yaml"
    file.write_text(YAML)
    for name in ("claimed", "old", "over"):
        world.cli.ok("submit", str(file), "-y", "-d", "-n", name)
    row, now = tables.jobs, datetime.now(UTC)
    claimed = {"state": JobState.RUNNING, "started_at": now}
    over = {"state": JobState.FAILED, "started_at": now, "ended_at": now}
    # What a machine cost hours ago is not known from the prices of now.
    old = {**claimed, "submitted_at": now - timedelta(hours=2)}
    with world.story.engine.begin() as connection:
        for name, values in (("claimed", claimed), ("old", old), ("over", over)):
            connection.execute(update(row).where(row.c.name == name).values(values))
    runtime = world.api.parts.runtime
    assert run_controller(runtime, KeepEstimates(runtime)) == 2
    for name, known in (("claimed", True), ("over", True), ("old", False)):
        with world.story.engine.connect() as connection:
            where = row.c.name == name
            job_id, at = connection.execute(select(row.c.id, row.c.submitted_at).where(where)).one()
        with world.story.begin() as uow:
            kept = uow.kept_estimates.of(job_id)
        assert (kept is not None) == known, name
        if kept is not None:
            assert (kept.made_at, kept.deadline_chance) == (at, 1.0)


def test_a_job_that_nothing_fitted_is_estimated_when_something_does(world: World, engine: Engine):
    asked = {**SPEC, "budget_usd": 200}
    with engine.begin() as connection:
        connection.execute(update(money_tables.pools).values(quoted_at=START - timedelta(days=300)))
    job_id = UUID(world.api.client.post("/api/v1/jobs", json=asked).json()["id"])
    runtime, kept, ours = world.api.parts.runtime, tables.job_estimates, tables.jobs.c.id == job_id
    assert run_controller(runtime, KeepEstimates(runtime)) == 1
    with world.story.begin() as uow:
        assert present(uow.kept_estimates.of(job_id)).cost_p50_microusd is None
        assert uow.kept_estimates.missing(10, uow.now) == []
        soon = uow.kept_estimates.next_try_at()
        assert soon is not None
        assert soon > uow.now
    now = datetime.now(UTC)
    with engine.begin() as connection:
        connection.execute(update(money_tables.pools).values(quoted_at=now))
        connection.execute(update(kept).values(made_at=now - timedelta(minutes=6)))
        submitted = {"submitted_at": now - timedelta(hours=1)}
        connection.execute(update(tables.jobs).where(ours).values(submitted))
    assert run_controller(runtime, KeepEstimates(runtime)) == 0, "each wait doubles"
    with world.story.begin() as uow:
        assert uow.kept_estimates.next_try_at() == now + timedelta(minutes=48)
    with engine.begin() as connection:
        submitted = {"submitted_at": now - timedelta(minutes=12)}
        connection.execute(update(tables.jobs).where(ours).values(submitted))
    assert run_controller(runtime, KeepEstimates(runtime)) == 1
    with world.story.begin() as uow:
        found = present(uow.kept_estimates.of(job_id))
        assert found.cost_p50_microusd is not None
        assert found.made_at >= now, "its finish counts from the moment that it was made"
        assert uow.kept_estimates.next_try_at() is None


def test_no_estimate_is_made_of_a_beginning_long_ago_or_after_the_deadline(world: World):
    """What has waited for hours is estimated as of now; a deadline that has passed ends it."""
    runtime, now = world.api.parts.runtime, datetime.now(UTC)
    ids = [UUID(world.api.client.post("/api/v1/jobs", json=SPEC).json()["id"]) for _ in range(2)]
    with world.story.engine.begin() as connection:
        old = {"submitted_at": now - timedelta(hours=3), "deadline_at": now + timedelta(hours=20)}
        connection.execute(update(tables.jobs).values(old))
        over = {"deadline_at": now + timedelta(minutes=1)}
        connection.execute(update(tables.jobs).where(tables.jobs.c.id == ids[1]).values(over))
    assert run_controller(runtime, KeepEstimates(runtime)) == 2
    with world.story.begin() as uow:
        waits, late = (present(uow.kept_estimates.of(job_id)) for job_id in ids)
        assert waits.made_at >= now
        assert waits.deadline_chance == 1.0
        assert late.cost_p50_microusd is None
        assert uow.kept_estimates.next_try_at() is None


def test_keeping_an_estimate_waits_for_nobody(world: World, caplog: pytest.LogCaptureFixture):
    """Claims hold thousands of jobs for seconds while many are submitted."""
    job_id = UUID(world.api.client.post("/api/v1/jobs", json=SPEC).json()["id"])
    runtime, one = world.api.parts.runtime, tables.jobs.c.id == job_id
    with world.story.engine.begin() as holder:
        holder.execute(select(tables.jobs.c.id).where(one).with_for_update())
        assert run_controller(runtime, KeepEstimates(runtime)) == 1
    assert caplog.records == [], "no lock was waited for"
    with world.story.begin() as first:
        # As in a second worker that has asked for the same work.
        first.operations.try_single_flight(f"{KeepEstimates.name} {job_id}")
        first.kept_estimates.keep(KeptEstimate(job_id, first.now))
        assert run_controller(runtime, KeepEstimates(runtime)) == 1
        assert caplog.records == []
    with world.story.begin() as uow:
        assert uow.kept_estimates.of(job_id) is not None


def test_jobs_that_wait_together_do_not_hold_up_who_belongs_to_them(world: World):
    ids = [UUID(world.api.client.post("/api/v1/jobs", json=SPEC).json()["id"]) for _ in range(2)]
    with world.story.begin() as claim:
        first = present(claim.jobs.lock(ids[0]))
        first.updated_at = claim.now
        soon = claim.now + timedelta(minutes=1)
        assert claim.jobs.wait_together(first, soon, "no capacity") == 1
        with world.story.begin() as uow:
            kept = [uow.kept_estimates.keep(KeptEstimate(one, uow.now)) for one in ids]
    assert kept == [True, True]
