"""One word for a thing everywhere: what events are called, stored words, and what machines do."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from app.domain.lifecycle.events import HistoryKind
from app.domain.lifecycle.instance import InstanceState
from app.domain.wording.event_words import EVENT_WORDS, actor_words, event_words, without_doubles
from app.domain.wording.machine_words import PHASE_WORDS, machine_words
from app.domain.wording.stored_words import stored_words
from app.web import formats
from trainer.protocol.agent_report import MachinePhase

# Names of our own tables, which nobody outside of the code knows.
INTERNAL = ("verdict", "member", "retryable", "fatal", "fenced", "yield", "stale", "absence")


def test_every_kind_of_event_has_words_that_a_person_knows():
    assert set(EVENT_WORDS) == {kind for enum in get_args(HistoryKind) for kind in enum}
    for words in EVENT_WORDS.values():
        assert words == words.lower()
        assert "_" not in words
        assert len(words) <= 24
        assert not [one for one in INTERNAL if one in words]
    assert event_words("interruption_noticed") == "interruption notice"
    assert event_words("of_a_later_version") == "of a later version"


@pytest.mark.parametrize(
    ("actor", "machine", "told"),
    [
        ("person:ada", "m2", "ada"),
        ("controller:claim_jobs", "m2", "control plane"),
        ("cloud:reconcile_instances", None, "cloud"),
        ("agent:01890000-0000-7000-8000-000093ec1b47", "m2", "m2"),
        ("agent:01890000-0000-7000-8000-000093ec1b47", None, "a machine"),
        ("of a later version", None, "of a later version"),
        ("oracle:delphi", None, "oracle:delphi"),
    ],
)
def test_whoever_caused_an_entry_is_called_what_people_call_it(
    actor: str, machine: str | None, told: str
):
    assert actor_words(actor, machine) == told


def test_what_was_just_said_is_not_said_again():
    said = ["Training starts.", "Training starts.", "Saved.", "Training starts."]
    rows: list[dict[str, Any]] = [
        {"seq": n, "message": message, "machine": None} for n, message in enumerate(said)
    ]
    assert [row["seq"] for row in without_doubles(rows)] == [0, 2, 3]
    assert [row["seq"] for row in without_doubles(rows[::-1])] == [3, 2, 0], "the same rows"
    assert without_doubles([]) == []


def test_of_what_one_machine_caused_the_same_entry_gives_the_title_in_either_order():
    kinds = ["all_drained_stop", "stopped_for_budget"]
    rows: list[dict[str, Any]] = [
        {"seq": seq, "message": "The budget is spent.", "machine": "m1", "kind": kind}
        for seq, kind in enumerate(kinds)
    ]
    for given in (rows, rows[::-1]):
        assert [row["kind"] for row in without_doubles(given)] == kinds[:1]


def test_what_happens_to_two_machines_is_said_of_each():
    entries = [(1, None), (2, "m1"), (3, "m2"), (4, "m2"), (5, None)]
    rows: list[dict[str, Any]] = [
        {"seq": seq, "message": "Gone.", "machine": machine} for seq, machine in entries
    ]
    for given in (rows, rows[::-1]):
        assert sorted(row["machine"] for row in without_doubles(given)) == ["m1", "m2"]


def entry(
    seq: int, kind: str, message: str, machine: str | None = None, at: int = 0
) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "message": message, "machine": machine, "at": at}


REQUESTS = [
    entry(1, "launch_submitted", "Requesting 2 machines from the local cloud.", "m1"),
    entry(2, "launch_submitted", "Requesting 2 machines from the local cloud.", "m2"),
    entry(3, "launch_submitted", "Requesting 2 machines from the local cloud.", "m3", at=9),
]
READY = [
    entry(1, "agent_registered", "The machine is ready.", "m1"),
    entry(2, "agent_registered", "The machine is ready.", "m2"),
    entry(3, "members_registered", "Both machines are registered."),
    entry(4, "members_registered", "Both machines are registered.", at=9),
]
FAILURE = [
    entry(1, "member_ended", "The trainer on node 0 ended: failed."),
    entry(2, "verdict_failed", "ValueError: bad"),
    entry(3, "attempt_ended_retryable", "Attempt 1 failed: ValueError: bad; trying again."),
]


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        (REQUESTS, [(1, None), (3, "m3")]),
        (READY[:3], [(1, "m1"), (2, "m2")]),
        (READY[2:], [(3, None)]),
        (FAILURE, [(3, None)]),
        (FAILURE[:2], [(2, None)]),
        (FAILURE[:1], [(1, None)]),
        (FAILURE[1:2], [(2, None)]),
    ],
)
def test_a_request_a_start_and_a_failure_are_one_entry_each(
    rows: list[dict[str, Any]], kept: list[tuple[int, str | None]]
):
    found = without_doubles(rows)
    assert [(row["seq"], row["machine"]) for row in found] == kept
    assert without_doubles(rows[::-1]) == found[::-1]
    assert len(rows) == 1 or rows != found, "the rows that were given are left as they are"


@pytest.mark.parametrize("state", list(InstanceState))
def test_every_machine_does_something(state: InstanceState):
    assert set(PHASE_WORDS) == set(MachinePhase)
    for phase in (None, *MachinePhase):
        assert "_" not in machine_words(state, phase)
    gone = machine_words(state, None) == machine_words(state, MachinePhase.TRAIN)
    # Whether it can be at work is a matter of its state alone.
    assert gone == (
        state not in (InstanceState.LAUNCHED, InstanceState.REGISTERED, InstanceState.INTERRUPTING)
    )


def test_setting_up_is_called_so_everywhere():
    assert machine_words(InstanceState.REGISTERED, MachinePhase.SETUP) == "setting up"
    assert machine_words(InstanceState.LAUNCHED, None) == "booting"


@pytest.mark.parametrize(
    ("stored", "told"),
    [("gang_wait", "gang wait"), ("on_demand", "on-demand"), ("public_ip", "public IP")],
)
def test_a_stored_word_is_told_alike_everywhere(stored: str, told: str) -> None:
    assert stored_words(stored) == formats.words(stored) == told
