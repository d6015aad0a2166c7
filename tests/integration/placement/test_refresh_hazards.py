"""What a gang costs and how often it is lost: from rows to the directive, and to a live trainer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, insert, update

from app.domain.availability.gang_hazard import FAULTS_PER_HOUR, WARNED_PER_HOUR
from app.domain.availability.hazard_by_age import TAKEN_PER_HOUR, Experience
from app.domain.availability.hazard_models import USUAL_FACTOR, posterior
from app.orchestration.placement.refresh_hazards import RefreshHazards
from app.storage.schema import tables
from tests.support.agent.agent_world import World
from tests.support.agent.fake_control_plane import wait_until
from tests.support.stories.orchestration_story import PRICES, ZONE_A, Story
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind
from trainer.training.saving.save_schedule import AUTO_LEAST_SECONDS

HOUR = 3600.0


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    made = Story(engine, tmp_path / "store")
    made.controllers = (*made.controllers, RefreshHazards(made.runtime))
    return made


def told(story: Story, instance_id: UUID) -> tuple[float, float]:
    directive = story.tell(instance_id).directive
    assert directive.kind is DirectiveKind.TRAIN
    return directive.hazard_per_hour, directive.price_per_hour_usd


def test_hazard_and_price_of_a_gang_follow_age_price_and_warning(story: Story) -> None:
    job_id = story.submit(nodes=2)
    story.train(job_id)
    story.run()
    first, second = story.members(job_id)
    factor = posterior(Experience(launches=2)).hazard_factor
    hazard, price = told(story, first)
    assert told(story, second) == (hazard, price)
    assert hazard == pytest.approx(2 * (TAKEN_PER_HOUR[0] * factor + FAULTS_PER_HOUR))
    assert price == 2.0
    # Looking again changes nothing that a machine is told: its answers stay in memory.
    version = story.job(job_id).version
    story.pass_time(500, every=50)
    assert story.job(job_id).version == version
    story.pass_time(9 * HOUR, every=600)
    old, price = told(story, first)
    # Its pool has let two machines live for nine hours by now, and is feared less for it.
    assert TAKEN_PER_HOUR[-1] / 2 < old < 2 * TAKEN_PER_HOUR[-1]
    assert price == 2.0
    story.quote({**PRICES, ZONE_A: 1_500_000})
    story.pass_time(HOUR, every=600)
    hazard, price = told(story, first)
    assert hazard == pytest.approx(old, rel=0.25)
    assert price == 3.0
    story.tell(second, FactKind.REBALANCE, 1, source="ec2")
    story.run()
    hazard, _ = told(story, first)
    assert hazard == pytest.approx(WARNED_PER_HOUR + TAKEN_PER_HOUR[-1], rel=0.01)
    (event,) = story.rows(tables.events, tables.events.c.kind == "rebalance_recommended")
    assert event.message == (
        "The cloud reports a higher risk of interruption for this machine: checkpoints are now "
        "saved more often."
    )


def test_what_one_project_lived_through_is_told_to_anothers_machines(story: Story) -> None:
    for _ in range(12):
        _was_taken(story, after_seconds=300)
    job_id = story.submit()
    story.train(job_id)
    story.run()
    hazard, _ = told(story, story.members(job_id)[0])
    # Twelve taken within an hour of machine time in all, where two were to be expected.
    known = posterior(Experience((HOUR, 0, 0, 0, 0), (12, 0, 0, 0, 0), 13))
    assert known.hazard_factor > 1.6 * USUAL_FACTOR
    assert hazard == pytest.approx(
        TAKEN_PER_HOUR[0] * known.hazard_factor + FAULTS_PER_HOUR, rel=0.01
    )


def test_on_demand_machines_are_hardly_ever_lost(story: Story) -> None:
    job_id = story.submit(market="on_demand")
    story.train(job_id)
    story.run()
    assert told(story, story.members(job_id)[0]) == (FAULTS_PER_HOUR, 10.0)


def test_an_hour_of_the_clock_costs_what_is_billed_for_it(story: Story) -> None:
    job_id = story.submit()
    story.train(job_id)
    with story.engine.begin() as connection:
        connection.execute(update(tables.instances).values(billing_speed=60))
    story.quote({**PRICES, ZONE_A: 1_500_000})
    story.pass_time(HOUR, every=600)
    assert told(story, story.members(job_id)[0])[1] == 60 * 1.5


def _was_taken(story: Story, after_seconds: float) -> None:
    """A machine of ZONE_A of some job of before, taken at that age."""
    entropy, now = story.runtime.entropy, story.time
    job_id = story.submit(name=f"earlier-{entropy.new_id()}")
    story.stop(job_id)
    row = {
        "id": entropy.new_id(), "job_id": job_id, "provider": "local", "market": "spot",
        "state": "terminated", "origin": "launch", "requested_at": now, "updated_at": now,
        "pool": ZONE_A, "billing_speed": 1, "launched_at": now, "suspect": False,
        "terminate_calls": 0, "ended_by": "cloud_interruption",
    }  # fmt: skip
    story.sleep(after_seconds)
    with story.engine.begin() as connection:
        connection.execute(insert(tables.instances).values(**row, ended_at=story.time))


# A user's script with the trainer's own schedule: it tells its interval as a chart.
SCRIPT = """
import json, os, time
from trainer.training.config import parse_config
from trainer.training.saving.save_schedule import SaveSchedule
schedule = SaveSchedule(parse_config({"model": "mlp", "data": "digits", "steps": 9}), 0)
schedule.cost(stall_seconds=0.7, inflation_seconds=0.0, durable_seconds=1.0)
step = 0
while True:
    step += 1
    schedule.due(step)
    line = {"type": "step", "step": step, "total_steps": 100_000, "interval": schedule.seconds}
    with open(os.environ["LOWTIDE_PROGRESS_FILE"], "a") as file:
        file.write(json.dumps(line) + "\\n")
    time.sleep(0.1)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.full
def test_a_changed_directive_moves_the_interval_of_a_trainer_that_runs(world: World) -> None:
    (world.root / "script.py").write_text(SCRIPT)
    repository = Path(__file__).resolve().parents[3]
    plane = world.open(
        run=f"exec {sys.executable} {world.root}/script.py", env={"PYTHONPATH": str(repository)}
    )
    world.start()
    plane.direct(DirectiveKind.PREPARE, 1)
    port = plane.wait_for(FactKind.PREPARED, fence=1).data["master_port"]
    where = {"master_addr": "127.0.0.1", "master_port": port}

    def interval() -> float | None:
        points = [p for fact in plane.facts(FactKind.METRICS) for p in fact.data["points"]]
        return points[-1]["interval"] if points else None

    def is_about(expected: float) -> bool:
        return interval() == pytest.approx(expected, rel=0.01)

    def last_told(expected: float) -> str:
        return f"{expected} s; last told: {interval()}; {plane.log_text()}"

    # Young and Daly: sqrt(2 x 0.7 s x mean time) and a little: 100 s at 0.5/h, 29 s at 6/h.
    for hazard, expected in ((0.5, 100.4), (6.0, 28.5), (1_000.0, AUTO_LEAST_SECONDS)):
        plane.direct(DirectiveKind.TRAIN, 1, **where, hazard_per_hour=hazard)
        wait_until(partial(is_about, expected), partial(last_told, expected), 60.0)
    started = plane.facts(FactKind.PHASE)
    assert [fact.data["phase"] for fact in started].count("train") == 1  # nothing was restarted
