"""Young's and Daly's interval, its bounds, and the hazard that it is asked with."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from trainer.agent.attempt.trainer_command import (
    CommandContext,
    trainer_command,
    trainer_environment,
)
from trainer.agent.machine.machine_folders import AttemptFolders
from trainer.protocol.checkpoint_interval import (
    checkpoint_interval_seconds,
    mean_seconds_of,
    optimal_interval_seconds,
)
from trainer.protocol.directive import Directive, DirectiveKind
from trainer.protocol.run_config import RunConfig
from trainer.training.config import TrainConfig, parse_config
from trainer.training.reporting.hazard import Hazard
from trainer.training.saving.save_schedule import AUTO_LEAST_SECONDS, SaveSchedule

HOURS = 3600.0


def options(**changed: float) -> TrainConfig:
    return parse_config({"model": "mlp", "data": "digits", "steps": 9, **changed})


@pytest.mark.parametrize(
    ("cost", "mean", "expected"),
    [
        (0.01, 2 * HOURS, 12.0),  # sqrt(2 x 0.01 x 7,200)
        (0.7, 2 * HOURS, 100.4),
        (0.0, 2 * HOURS, 0.0),
        (2 * HOURS, 1 * HOURS, 1 * HOURS),  # dearer than any gain: as often as losses come
    ],
)
def test_the_optimum(cost: float, mean: float, expected: float) -> None:
    assert optimal_interval_seconds(cost, mean) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("cost", "mean"), [(0.01, 7200.0), (1.0, 600.0), (20.0, 3600.0)])
def test_nothing_near_it_costs_less(cost: float, mean: float) -> None:
    """Of Daly's model of the expected time: exp(cost + interval) of a loss, over the interval."""

    def expected_share(interval: float) -> float:
        return mean * math.expm1((interval + cost) / mean) / interval

    best = optimal_interval_seconds(cost, mean)
    assert expected_share(best) <= expected_share(best * 0.8)
    assert expected_share(best) <= expected_share(best * 1.25)
    assert expected_share(best) <= min(map(expected_share, (best * 0.97, best * 1.03))) * 1.00001


@pytest.mark.parametrize(("cost", "meets"), [(0.01, True), (0.032, True), (0.033, False)])
def test_the_goal_at_two_hours_is_met_by_a_stall_of_32_ms(cost: float, meets: bool) -> None:
    """The longest one that docs/trainer-performance.md names."""
    interval = checkpoint_interval_seconds(cost, durable_seconds=0.5, mean_seconds=2 * HOURS)
    lost_to_saves, lost_to_repeats = cost / interval, interval / (2 * 2 * HOURS)
    assert (lost_to_saves + lost_to_repeats <= 0.003) is meets


def test_bounds() -> None:
    assert checkpoint_interval_seconds(0.01, 60.0, 7200.0) == 60.0  # it takes that long to write
    assert checkpoint_interval_seconds(5.0, 1.0, math.inf, 10.0, 300.0) == 300.0
    assert checkpoint_interval_seconds(0.0, 0.0, 7200.0, 10.0, 300.0) == 10.0
    assert checkpoint_interval_seconds(5.0, 400.0, 7200.0, 10.0, 300.0) == 400.0


def test_hazards() -> None:
    assert mean_seconds_of(0.5) == 2 * HOURS
    assert mean_seconds_of(0.0) == math.inf


def test_the_hazard_comes_from_the_configuration_the_file_or_the_default(tmp_path: Path) -> None:
    path = tmp_path / "hazard.json"
    variables = {"LOWTIDE_HAZARD_FILE": str(path)}
    told = Hazard(None, variables)
    assert told.mean_seconds() == 2 * HOURS  # not written yet
    path.write_text(json.dumps({"per_hour": 4}))
    assert told.mean_seconds() == 900.0
    for odd in ("", "[]", '{"per_hour": -1}', '{"per_hour": "often"}', '{"per_hour": NaN}'):
        path.write_text(odd)
        assert told.mean_seconds() == 2 * HOURS
    assert Hazard(1.0, variables).mean_seconds() == 1 * HOURS


def test_what_the_control_plane_says_reaches_the_trainer_through_its_agent(tmp_path: Path) -> None:
    folders = AttemptFolders(tmp_path)
    context = CommandContext("i-1", "10.0.0.1", "", {})
    config = RunConfig(
        job_id="j-1",
        job_name="digits",
        num_nodes=1,
        gpus_per_node=1,
        checkpoint_uri="file:///c",
        checkpoint_keep=3,
        stall_timeout_seconds=600.0,
        trainer={"model": "mlp"},
    )
    for said, expected in ((None, 2 * HOURS), (0.25, 4 * HOURS)):
        order = Directive(DirectiveKind.TRAIN, 1, fence=1, hazard_per_hour=said)
        trainer_command(context, config, order, folders)
        variables = trainer_environment(context, config, order, folders, None)
        assert Hazard(None, variables).mean_seconds() == expected


def test_the_schedule_follows_what_checkpoints_cost() -> None:
    schedule = SaveSchedule(options(), step=0, hazard=Hazard(0.5, {}))
    assert schedule.seconds == AUTO_LEAST_SECONDS
    schedule.cost(stall_seconds=0.4, inflation_seconds=0.3, durable_seconds=2.0)
    assert schedule.seconds == pytest.approx(100.4, rel=0.01)
    schedule.cost(stall_seconds=0.001, inflation_seconds=0.0, durable_seconds=45.0)
    assert schedule.seconds == 45.0


def test_the_schedule_follows_a_hazard_that_changes_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "hazard.json"
    path.write_text('{"per_hour": 0.06}')
    hazard = Hazard(None, {"LOWTIDE_HAZARD_FILE": str(path)})
    schedule = SaveSchedule(options(), step=0, hazard=hazard)
    assert not schedule.due(1)  # nobody knows yet what a checkpoint costs
    assert schedule.seconds == AUTO_LEAST_SECONDS
    schedule.cost(stall_seconds=0.7, inflation_seconds=0.0, durable_seconds=2.0)
    assert schedule.seconds == pytest.approx(289.0, rel=0.01)
    newer = tmp_path / "newer.json"
    newer.write_text('{"per_hour": 6.0}')
    newer.replace(path)
    deadline = time.monotonic() + 60.0
    while schedule.seconds > 100.0 and time.monotonic() < deadline:
        schedule.due(2)  # as after every step: looks once a second
        time.sleep(0.01)
    assert schedule.seconds == pytest.approx(28.5, rel=0.01)
    assert Hazard(0.5, {"LOWTIDE_HAZARD_FILE": str(path)}).changed() is False


def test_a_fixed_rhythm_stays() -> None:
    schedule = SaveSchedule(options(checkpoint_interval_steps=5), step=7)
    assert [step for step in range(8, 15) if schedule.due(step)] == [12, 13, 14]
    schedule.asked(12)
    assert not schedule.due(16)
    assert schedule.due(17)
    fixed = SaveSchedule(options(checkpoint_interval_seconds=30.0), step=0)
    fixed.cost(9.0, 9.0, 90.0)
    assert fixed.seconds == 30.0
