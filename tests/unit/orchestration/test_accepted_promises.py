"""How long a promise that was accepted is not simulated again, and what it rests on."""

from __future__ import annotations

from uuid import UUID

from app.domain.spec.job_spec import JobSpec, parse_spec
from app.orchestration.estimates.evaluate_promise import AcceptedPromises, promise_key
from app.simulation.engine.virtual_clock import MICROSECONDS, VirtualClock

PROJECT, OTHER = UUID(int=1), UUID(int=2)
SPEC = {
    "run": "python train.py",
    "resources": {"gpu": "V100"},
    "estimate": {"hours": 10, "gpu": "V100"},
    "deadline": "20h",
    "budget_usd": 40,
}


def spec_with(**changes: object) -> JobSpec:
    return parse_spec({**SPEC, **changes})


def test_an_accepted_promise_is_known_for_ten_seconds():
    clock = VirtualClock()
    accepted, key = AcceptedPromises(clock), promise_key(PROJECT, spec_with(), False)
    assert not accepted.has(key)
    accepted.add(key)
    clock.true_us += 10 * MICROSECONDS - 1
    assert accepted.has(key)
    clock.true_us += 1
    assert not accepted.has(key)
    accepted.add(key)
    assert accepted.has(key)


def test_name_and_labels_change_nothing_in_a_promise_and_all_else_may():
    key = promise_key(PROJECT, spec_with(), False)
    assert promise_key(PROJECT, spec_with(name="a", labels={"team": "b"}), False) == key
    others = [
        promise_key(OTHER, spec_with(), False),
        promise_key(PROJECT, spec_with(), True),
        *(
            promise_key(PROJECT, spec_with(**change), False)
            for change in (
                {"run": "python other.py"},
                {"estimate": {"hours": 11, "gpu": "V100"}},
                {"deadline": "19h"},
                {"budget_usd": 39},
                {"nodes": 2},
                {"market": "spot"},
                {"env": {"LR": "0.1"}},
            )
        ),
    ]
    assert len({key, *others}) == 10


def test_however_many_promises_are_accepted_few_are_kept():
    accepted = AcceptedPromises(VirtualClock())
    keys = [promise_key(UUID(int=number), spec_with(), False) for number in range(1_001)]
    for key in keys:
        accepted.add(key)
    assert [accepted.has(key) for key in (keys[0], keys[999], keys[1_000])] == [False, False, True]
