"""What is believed of pools that are watched, and of those that are out of sight for a while."""

from __future__ import annotations

import numpy as np
import pytest

from app.backtest.fit_priors import fit, pieces_of, together
from app.domain.availability.hazard_belief import HazardBelief
from app.domain.availability.hazard_by_age import BACK_PER_HOUR, TAKEN_PER_HOUR, mean_seconds
from app.domain.availability.pool_hazards import MODELS, PHASES, POOL_LOG_PRIOR, time_shares
from app.domain.deadline.placement_choice import Placement
from app.domain.deadline.policy_state import JobTerms, PolicyState, RunningOn
from app.domain.deadline.probe_budget import PROBE_AFTER_SECONDS, PROBE_SECONDS, PROBE_SHARE

TICK = 600.0
HOUR = 3600.0


def _watched(up: list[int]) -> HazardBelief:
    belief = HazardBelief(1, POOL_LOG_PRIOR)
    belief.learn(np.array([up], bool), TICK)
    return belief


def _unseen(belief: HazardBelief, ticks: int) -> HazardBelief:
    for _ in range(ticks):
        belief.observe(np.full(len(belief.last), -1), TICK)
    return belief


def test_time_shares_are_those_of_mean_lives_and_outages():
    shares = time_shares(MODELS)
    assert np.allclose(shares.sum(axis=1), 1.0)
    usual = 2 * 5 + 2
    there, away = mean_seconds(TAKEN_PER_HOUR), mean_seconds(BACK_PER_HOUR)
    assert shares[usual, :PHASES].sum() == pytest.approx(there / (there + away), rel=1e-6)


def test_out_of_sight_a_state_becomes_the_usual_mixture():
    belief = _watched([0, 1, 1, 1])
    assert belief.up_chances() == [1.0]
    chances = [float(_unseen(belief, 3).up_chances()[0]) for _ in range(4)]
    assert chances == sorted(chances, reverse=True)
    never = HazardBelief(1, POOL_LOG_PRIOR)
    never.evidence = belief.evidence
    assert _unseen(belief, 3000).up_chances() == pytest.approx(never.up_chances(), abs=0.05)


def test_a_pool_found_up_long_after_is_believed_older_than_one_found_soon():
    lives = []
    for hidden in (1, 6, 60):
        belief = _unseen(_watched([1, 1, 0]), hidden)
        belief.reveal(0, True, TICK)
        lives.append(float(belief.remaining_hours(TICK, 48.0)[0]))
        assert not belief.aged[0] or hidden == 1
    assert lives == sorted(lives)


def test_a_second_look_that_finds_it_up_again_speaks_for_a_longer_life():
    once = _unseen(_watched([1, 0]), 12)
    once.reveal(0, True, TICK)
    twice = _unseen(_watched([1, 0]), 6)
    twice.reveal(0, True, TICK)
    _unseen(twice, 6).reveal(0, True, TICK)
    assert twice.remaining_hours(TICK, 48.0) > once.remaining_hours(TICK, 48.0)


def test_chances_sum_to_one_and_keep_to_the_state_asked_about():
    belief = _unseen(_watched([1, 1, 0, 1]), 5)
    for state in (None, 0, 1):
        chances = belief.chances(0, state, TICK)
        assert chances.sum() == pytest.approx(1.0)
        up = float(chances[:, :PHASES].sum())
        assert up == pytest.approx({None: belief.up_chances()[0], 0: 0.0, 1: 1.0}[state])


def _moment(time_left: float, running: RunningOn, seen: list[int]) -> PolicyState:
    return PolicyState(time_left, 5 * HOUR, running, -1, 0.0, 0.0, seen, [1.0, 1.0, 1.0])


def test_a_probe_is_paid_out_of_a_small_share_of_on_demand():
    placement = Placement(JobTerms(("a", "b", "c"), 4.0, TICK, 720.0, 10 * HOUR))
    spent, looks = 0.0, {0: -HOUR, 1: -HOUR, 2: -HOUR}
    for tick in range(20):
        now, seen = tick * TICK, [-1, -1, -1]
        placement.begin_tick(seen)
        assert placement.probe(_moment(9 * HOUR - now, RunningOn.NOTHING, seen)) == -1
        while (pool := placement.probe(_moment(9 * HOUR - now, RunningOn.ON_DEMAND, seen))) >= 0:
            assert now - looks[pool] >= PROBE_AFTER_SECONDS
            looks[pool], seen[pool] = now, tick % 2
            spent += seen[pool] * PROBE_SECONDS / 3600
            placement.reveal(pool, bool(seen[pool]), seen, probed=True)
    # What was expected to be paid stays within the share; what was paid may differ by luck.
    assert 0 < spent <= 2 * PROBE_SHARE * 4.0 * 20 * TICK / HOUR


def test_the_fit_finds_the_model_that_made_the_pools():
    model = 2 * 5 + 3  # usual interruptions, quick returns
    dice = np.random.default_rng(3)
    step, states = MODELS.transitions(TICK)[model], np.zeros(12, int)
    rows = []
    for _ in range(2000):
        rows.append(states < PHASES)
        draws = dice.random(len(states))
        states = (np.cumsum(step[states], axis=1) < draws[:, None]).sum(axis=1)
    made = [(np.array(rows).T, int(TICK))]
    weights = fit(pieces_of(made), 0.002)
    assert weights.sum() == pytest.approx(1.0)
    assert weights.argmax() == model
    [(sets, _)] = together([(made[0][0][:3], int(TICK))])
    assert len(sets) == 4
