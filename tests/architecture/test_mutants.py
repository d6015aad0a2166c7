"""The list of mutants fits the sources, so that none of them is hunted in vain."""

from __future__ import annotations

from collections import Counter

from app.simulation.scenarios.scenarios import SCENARIOS
from tests.mutants.catalogue import places, read_mutants
from tests.support.sources.source_tree import ROOT

AREAS = {
    "fences",
    "leases",
    "budgets",
    "ledger",
    "release",
    "lineage",
    "last safe moment",
    "memory",
}
NOT_EQUIVALENT_MIN = 30
HOURS_MAX = 3.0


def test_each_old_line_stands_exactly_once_and_is_changed():
    wrong = {
        mutant.name: len(found)
        for mutant in read_mutants()
        if len(found := places(ROOT, mutant)) != 1 or mutant.new == mutant.old
    }
    assert wrong == {}, "how often the old line of each stands in its file"


def test_each_mutant_is_one_line_with_a_name_and_a_world_of_its_own():
    mutants = read_mutants()
    assert [name for name, count in Counter(one.name for one in mutants).items() if count > 1] == []
    assert [one.name for one in mutants if "\n" in one.old + one.new] == []
    assert [one.name for one in mutants if one.scenario not in SCENARIOS] == []
    assert [one.name for one in mutants if SCENARIOS[one.scenario].hours > HOURS_MAX] == []


def test_every_area_has_its_mutants():
    hunted = [one for one in read_mutants() if not one.equivalent]
    assert {one.area for one in hunted} == AREAS
    assert len(hunted) >= NOT_EQUIVALENT_MIN
