"""What a deployment's experience makes of the hazard models, and that all use the same ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.domain.availability.hazard_by_age import NO_EXPERIENCE, TAKEN_PER_HOUR, Experience
from app.domain.availability.hazard_models import USUAL_FACTOR, posterior, up_share
from app.domain.availability.pool_hazards import MODELS, PHASES, POOL_LOG_PRIOR, time_shares

CALM = Experience(lived_seconds=(60_000.0, 0, 0, 0, 0))
"""A hundred machines that lived for ten minutes each, where some 33 losses were to be expected."""


def test_experience_moves_the_hazard_from_the_usual_one():
    assert posterior(NO_EXPERIENCE).hazard_factor == USUAL_FACTOR
    assert posterior(CALM).hazard_factor < 0.25
    rough = replace(CALM, taken=(120, 0, 0, 0, 0))
    assert posterior(rough).hazard_factor > 2.0
    little = replace(CALM, lived_seconds=(60.0, 0, 0, 0, 0))
    assert 0.9 * USUAL_FACTOR < posterior(little).hazard_factor < USUAL_FACTOR


def test_a_hazard_factor_grows_with_every_loss():
    factors = [
        posterior(replace(CALM, taken=(count, 0, 0, 0, 0))).hazard_factor for count in range(100)
    ]
    assert factors == sorted(factors)
    assert len(set(factors)) == 100


def test_refused_launches_make_a_pool_seem_empty():
    assert 0.2 < posterior(NO_EXPERIENCE).empty_chance < 0.6
    assert posterior(Experience(launches=40, refusals=40)).empty_chance > 0.8
    assert posterior(Experience(launches=40)).empty_chance < 0.15


def test_a_pool_that_is_often_empty_is_expected_to_lose_machines_sooner():
    """The two factors of a pool are known together: who refuses often also takes often."""
    refuses, gives = Experience(launches=40, refusals=30), Experience(launches=40)
    assert posterior(refuses).hazard_factor > posterior(gives).hazard_factor


def test_luck_stands_for_pairs_in_proportion_to_their_chances():
    known = posterior(Experience(launches=4, refusals=2))
    drawn = [known.pair((place + 0.5) / 10_000) for place in range(10_000)]
    empty = sum(1 - up_share(pair) for pair in drawn) / len(drawn)
    assert empty == pytest.approx(known.empty_chance, rel=0.01)
    assert (known.pair(0.0), known.pair(1.0)) == ((0.2, 5.0), (5.0, 0.2))


def test_choices_before_a_deadline_use_the_same_models_and_weights():
    weights, up = np.exp(POOL_LOG_PRIOR), time_shares(MODELS)[:, :PHASES].sum(axis=1)
    fresh = MODELS.up[:, 0]
    expected = (weights * up * fresh).sum() / (weights * up).sum()
    assert expected == pytest.approx(TAKEN_PER_HOUR[0] * USUAL_FACTOR, rel=0.01)
