"""Imagined runs of a job: figures that follow from the rules, and dice that a seed replays."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.adapters.seeded_draws import seeded_draws
from app.domain.availability.hazard_by_age import (
    BACK_PER_HOUR,
    NO_EXPERIENCE,
    TAKEN_PER_HOUR,
    Experience,
    mean_seconds,
    seconds_until,
)
from app.domain.availability.hazard_models import posterior
from app.domain.estimate.job_estimate import (
    WAITS_SHARE,
    deadline_curve,
    earliest_finish_seconds,
    estimate,
    estimates,
)
from app.domain.estimate.simulated_pools import SimulatedPool, age_at_any_time
from app.domain.estimate.simulated_run import EstimateInput, PoolQuote, SimulatedRun, simulated_run

HOUR = 3_600.0
CALM = Experience(lived_seconds=(0.0, 0.0, 0.0, 0.0, 1e9), launches=10**9)
"""A pool that is never empty and hardly ever takes a machine."""


def _run(asked: EstimateInput, seed: int) -> SimulatedRun:
    known = [posterior(pool.experience) for pool in asked.spot]
    return simulated_run(asked, known, seeded_draws(seed))


ON_DEMAND = PoolQuote("on-demand", 3_000_000)
JOB = EstimateInput(
    work_seconds=10 * HOUR,
    spot=(PoolQuote("a", 1_000_000), PoolQuote("b", 1_200_000)),
    on_demand=ON_DEMAND,
    boot_seconds=360.0,
    acquire_seconds=1_800.0,
    deadline_seconds=16 * HOUR,
    budget_microusd=20_000_000,
)


def test_a_question_about_years_takes_no_longer_than_one_about_days():
    drawn = 0
    dice = seeded_draws(3)

    def draw() -> float:
        nonlocal drawn
        drawn += 1
        return dice()

    found = estimate("spot", replace(JOB, on_demand=None, work_seconds=8_760 * HOUR), draw)
    assert found.interruptions_mean > 500
    assert drawn < 150_000
    drawn = 0
    deadline_curve(replace(JOB, work_seconds=8_760 * HOUR), draw)
    assert drawn < 250_000


# --- lifetimes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("hazards", [TAKEN_PER_HOUR, BACK_PER_HOUR])
def test_drawn_durations_have_the_expected_mean(hazards: tuple[float, ...]):
    draw = seeded_draws(7)
    drawn = [seconds_until(hazards, 1.0, draw()) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(mean_seconds(hazards), rel=0.03)


def test_a_constant_hazard_is_an_exponential():
    half = seconds_until((2.0,) * 5, 1.0, 0.5)
    assert half == pytest.approx(math.log(2) * HOUR / 2)
    assert mean_seconds((2.0,) * 5) == pytest.approx(HOUR / 2)


def test_a_larger_factor_makes_shorter_lives():
    lives = [mean_seconds(TAKEN_PER_HOUR, factor) for factor in (0.2, 1.0, 5.0)]
    assert lives == sorted(lives, reverse=True)
    assert seconds_until(TAKEN_PER_HOUR, 5.0, 0.6) < seconds_until(TAKEN_PER_HOUR, 1.0, 0.6)


# --- runs -----------------------------------------------------------------------------------------


def test_on_demand_alone_is_exact():
    [only] = estimates(replace(JOB, spot=()), seeded_draws(0))
    hours = 10 + 0.1
    assert only.market == "on_demand"
    assert only.cost_p50_microusd == only.cost_p90_microusd == round(3_000_000 * hours)
    # The reserve for getting the machines costs nothing, and is no part of the usual finish.
    assert only.finish_p50_seconds == only.finish_p90_seconds == pytest.approx(hours * HOUR)
    assert earliest_finish_seconds(replace(JOB, spot=())) == pytest.approx(hours * HOUR + 1_800)
    assert (only.deadline_chance, only.budget_chance) == (1.0, 0.0)


def test_a_finish_leaves_the_reserve_out_that_a_deadline_keeps():
    work = 10.1 * HOUR
    for deadline, kept in ((work + 1_799, 0.0), (work + 1_801, 1.0)):
        [only] = estimates(replace(JOB, spot=(), deadline_seconds=deadline), seeded_draws(0))
        assert only.finish_p50_seconds == pytest.approx(work)
        assert only.deadline_chance == kept


def test_a_faster_bill_charges_more_and_takes_no_longer():
    pool = PoolQuote("calm", 1_000_000, experience=CALM, minimum_seconds=600.0)
    asked = replace(JOB, spot=(pool,), work_seconds=60.0)
    quick = _run(replace(asked, spot=(replace(pool, billing_speed=60),)), 1)
    assert quick.finish_seconds == _run(asked, 1).finish_seconds == pytest.approx(420.0)
    # The minimum is in billed seconds: sixty times the run is more than it, the run alone is less.
    assert quick.microusd == pytest.approx(1_000_000 * 60 * 420 / HOUR)
    assert _run(asked, 1).microusd == pytest.approx(1_000_000 * 600 / HOUR)


def test_a_calm_pool_costs_its_price_and_one_boot():
    asked = replace(JOB, spot=(PoolQuote("calm", 1_000_000, experience=CALM),), work_seconds=60.0)
    run = _run(asked, 1)
    assert run.finish_seconds == pytest.approx(420.0)
    assert run.microusd == pytest.approx(1_000_000 * 420 / HOUR)
    assert run.interruptions == 0


def test_a_machine_that_we_end_costs_its_clouds_minimum():
    least = PoolQuote("calm", 1_000_000, experience=CALM, minimum_seconds=60.0)
    asked = replace(JOB, spot=(least,), work_seconds=2.0, boot_seconds=3.0)
    assert _run(asked, 1).microusd == pytest.approx(1_000_000 * 60 / HOUR)
    dear = replace(ON_DEMAND, minimum_seconds=60.0)
    [only] = estimates(replace(asked, spot=(), on_demand=dear), seeded_draws(0))
    assert only.cost_p50_microusd == 50_000
    # Past the minimum it is the time that counts, and a machine that is taken early is free of it.
    assert least.microusd(120.0) == 1_000_000 / 30
    assert least.microusd(6.0, taken=True) == 1_000_000 / 600


def test_a_run_pays_the_minimum_for_its_last_machine_alone():
    """The machines before it were taken, and only what they ran is charged."""
    pool = PoolQuote("rough", 1_000_000)
    asked = replace(JOB, spot=(pool,), on_demand=None, work_seconds=20 * HOUR)
    dear = replace(asked, spot=(replace(pool, minimum_seconds=10_000 * HOUR),))
    plain, charged = _run(asked, 7), _run(dear, 7)
    assert plain.interruptions >= 2
    assert charged.interruptions == plain.interruptions
    assert 0 < charged.microusd - plain.microusd <= 10_000 * 1_000_000


def test_a_faster_pool_does_the_work_in_less_time():
    pools = [PoolQuote("calm", 1_000_000, speed=speed, experience=CALM) for speed in (1.0, 2.0)]
    slow, fast = (_run(replace(JOB, spot=(pool,), work_seconds=120.0), 1) for pool in pools)
    assert slow.finish_seconds - fast.finish_seconds == pytest.approx(60.0)


def test_the_same_seed_gives_the_same_figures():
    first, second, other = (estimates(JOB, seeded_draws(seed)) for seed in (3, 3, 4))
    assert first == second
    assert first != other


def test_figures_are_in_order_and_the_product_keeps_its_deadline():
    auto, spot, on_demand = estimates(JOB, seeded_draws(5))
    for one in (auto, spot, on_demand):
        assert one.cost_p50_microusd <= one.cost_p90_microusd
        assert one.finish_p50_seconds <= one.finish_p90_seconds
    assert auto.deadline_chance == 1.0
    assert spot.deadline_chance is not None
    assert spot.deadline_chance < 1.0
    assert auto.cost_p50_microusd < on_demand.cost_p50_microusd
    assert auto.interruptions_mean > 0


def test_without_a_deadline_there_is_no_reason_for_on_demand():
    found = estimates(replace(JOB, deadline_seconds=None), seeded_draws(0))
    assert [one.market for one in found] == ["spot", "on_demand"]
    assert found[0].deadline_chance is None


def test_a_dearer_pool_never_makes_a_job_cheaper():
    costs = []
    for price in (500_000, 1_000_000, 2_000_000):
        asked = replace(JOB, spot=(PoolQuote("a", price),))
        costs.append(estimate("auto", asked, seeded_draws(2), 300).cost_p50_microusd)
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_lost_work_costs_time_and_money():
    asked = replace(JOB, on_demand=None)
    kept = estimate("spot", asked, seeded_draws(6), 300)
    lost = estimate("spot", replace(asked, rework_seconds=1_800.0), seeded_draws(6), 300)
    assert lost.cost_p50_microusd > kept.cost_p50_microusd
    assert lost.finish_p50_seconds > kept.finish_p50_seconds


def test_a_job_that_never_ends_says_so():
    taken = Experience(lived_seconds=(1.0, 0, 0, 0, 0), taken=(10**9, 0, 0, 0, 0))
    spot = (PoolQuote("a", 1_000_000, experience=taken),)
    asked = replace(JOB, spot=spot, on_demand=None, boot_seconds=2 * HOUR)
    found = estimate("spot", asked, seeded_draws(0), 20)
    assert math.isinf(found.finish_p50_seconds)
    assert found.deadline_chance == 0.0


def test_more_time_costs_less():
    curve = deadline_curve(JOB, seeded_draws(8))
    deadlines = [point.deadline_seconds for point in curve]
    assert deadlines == sorted(deadlines)
    assert deadlines[0] > earliest_finish_seconds(JOB)
    assert all(point.estimate.deadline_chance == 1.0 for point in curve)
    assert curve[-1].estimate.cost_p90_microusd < curve[0].estimate.cost_p90_microusd
    assert deadline_curve(replace(JOB, on_demand=None), seeded_draws(8)) == ()


def test_a_later_deadline_never_costs_more():
    for seed in range(4):
        curve = [point.estimate for point in deadline_curve(JOB, seeded_draws(seed))]
        for costs in (
            [one.cost_p50_microusd for one in curve],
            [one.cost_p90_microusd for one in curve],
        ):
            assert costs == sorted(costs, reverse=True)


def test_points_of_the_curve_differ_by_their_deadline_alone():
    quiet = replace(JOB, spot=(PoolQuote("calm", 1_000_000, experience=CALM),))
    found = [point.estimate for point in deadline_curve(quiet, seeded_draws(1))]
    first, *rest = found[-4:]  # where no run comes near its deadline
    assert first.interruptions_mean > 0
    assert {one.interruptions_mean for one in rest} == {first.interruptions_mean}


def test_a_slow_pool_is_left_at_the_last_safe_moment():
    slow = PoolQuote("slow", 100_000, speed=0.2, experience=CALM)
    asked = replace(JOB, spot=(slow,), deadline_seconds=12 * HOUR)
    for seed in range(20):
        run = _run(asked, seed)
        assert run.finish_seconds <= 12 * HOUR
        # Until then it has worked: on-demand machines need not do all of it.
        assert run.microusd < 3_000_000 * 10.1
    both = replace(asked, spot=(slow, *JOB.spot))
    assert estimate("auto", both, seeded_draws(0), 200).deadline_chance == 1.0


def test_a_larger_gang_is_taken_more_often_and_goes_on_with_those_that_are_left():
    usual = Experience((3.6e6,) * 5, (2_000, 1_200, 550, 200, 60), launches=4_000)
    calm = replace(JOB, on_demand=None, spot=(PoolQuote("usual", 1_000_000, experience=usual),))
    one, two, four = (
        estimate("spot", replace(calm, gang=count), seeded_draws(3), 300) for count in (1, 2, 4)
    )
    assert one.interruptions_mean < two.interruptions_mean < four.interruptions_mean
    assert one.finish_p50_seconds < two.finish_p50_seconds < four.finish_p50_seconds


def test_a_job_of_half_a_year_ends_though_it_loses_thousands_of_machines():
    long = replace(JOB, work_seconds=4_000 * HOUR, deadline_seconds=8_000 * HOUR)
    auto, spot, _ = estimates(long, seeded_draws(0))
    assert auto.deadline_chance == 1.0
    assert math.isfinite(spot.finish_p90_seconds)
    assert 4_000 * HOUR < auto.finish_p50_seconds < 5_600 * HOUR
    hours = auto.cost_p50_microusd / 1_000_000
    assert 4_000 < hours < 5_600


def test_the_rest_of_a_long_job_is_as_what_was_imagined_of_it():
    """Ten times the work costs ten times as much, within what a hundred losses leave open."""
    asked = replace(JOB, on_demand=None, deadline_seconds=None, spot=(PoolQuote("a", 1_000_000),))
    asked = replace(asked, work_seconds=500 * HOUR)
    short, long = (
        estimate(
            "spot", replace(asked, work_seconds=many * asked.work_seconds), seeded_draws(5), 200
        )
        for many in (1, 10)
    )
    assert long.cost_p50_microusd == pytest.approx(10 * short.cost_p50_microusd, rel=0.1)


def test_the_earliest_finish_needs_on_demand_machines():
    assert earliest_finish_seconds(JOB) == pytest.approx(1_800 + 360 + 10 * HOUR)
    with pytest.raises(ValueError, match="no on-demand machine fits"):
        earliest_finish_seconds(replace(JOB, on_demand=None))


# --- pools as they may turn out ------------------------------------------------------------------


def test_experience_moves_what_a_pool_may_turn_out_to_be():
    rough = Experience(lived_seconds=(60_000.0, 0, 0, 0, 0), taken=(120, 0, 0, 0, 0))
    taken = [
        [posterior(known).pair(luck / 50)[0] for luck in range(50)]
        for known in (CALM, NO_EXPERIENCE, rough)
    ]
    means = [sum(factors) / len(factors) for factors in taken]
    assert means == sorted(means)
    assert means[0] < 0.2 < 1.0 < means[2]
    refused = posterior(Experience(launches=40, refusals=40)).pair(0.5)
    granted = posterior(Experience(launches=40, refusals=0)).pair(0.5)
    assert mean_seconds(BACK_PER_HOUR, refused[1]) > mean_seconds(BACK_PER_HOUR, granted[1])


@pytest.mark.parametrize("hazards", [TAKEN_PER_HOUR, BACK_PER_HOUR])
def test_a_state_met_at_random_is_as_old_as_such_lives_are(hazards: tuple[float, ...]):
    ages = [age_at_any_time(hazards, 1.0, (place + 0.5) / 2_000) for place in range(2_000)]
    assert ages == sorted(ages)
    younger = sum(age < 1_800 for age in ages) / len(ages)
    expected = 1 - mean_seconds(hazards, 1.0, 1_800) / mean_seconds(hazards)
    assert younger == pytest.approx(expected, abs=0.01)


def test_an_imagined_pool_is_up_for_its_share_of_time():
    draw = seeded_draws(4)
    up = 0
    for _ in range(400):
        pool = SimulatedPool((1.0, 1.0), draw)
        up += sum(pool.at(hour * HOUR) for hour in (0.0, 5.0, 40.0))
    there, away = mean_seconds(TAKEN_PER_HOUR), mean_seconds(BACK_PER_HOUR)
    assert up / 1_200 == pytest.approx(there / (there + away), abs=0.06)


def test_the_finish_allows_for_waiting_but_never_beyond_the_deadline():
    [auto, *_] = estimates(JOB, seeded_draws(9))
    assert JOB.deadline_seconds is not None
    assert auto.finish_p50_seconds < auto.finish_p90_seconds <= JOB.deadline_seconds


def test_the_simulated_finish_stands_beside_the_one_with_waits():
    calm = tuple(replace(pool, experience=CALM) for pool in JOB.spot)
    short = replace(JOB, work_seconds=HOUR, deadline_seconds=20 * HOUR, spot=calm)
    auto, spot, on_demand = estimates(short, seeded_draws(9))
    assert auto.simulated_finish_p90_seconds < 2 * HOUR
    assert auto.finish_p90_seconds > 15 * HOUR
    ahead = 20 * HOUR - auto.simulated_finish_p90_seconds
    added = auto.finish_p90_seconds - auto.simulated_finish_p90_seconds
    assert added == pytest.approx(WAITS_SHARE * ahead)
    for other in (spot, on_demand):
        assert other.finish_p90_seconds == other.simulated_finish_p90_seconds
