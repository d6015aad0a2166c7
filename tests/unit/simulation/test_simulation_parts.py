"""Parts of the simulator that are pure: clocks of machines, what looks show, prices, counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from app.domain.market.offer import Market, Pool
from app.simulation.engine.invariant_error import InvariantError
from app.simulation.engine.seeded_entropy import SeededEntropy
from app.simulation.engine.virtual_clock import HostClock, VirtualClock, instant, microseconds
from app.simulation.faults.byzantine_faults import ByzantineFaults
from app.simulation.faults.fault_kinds import RATES, Fault
from app.simulation.faults.faults import Faults
from app.simulation.runs.seed_runs import RunStatus, SeedResult
from app.simulation.simulated.machine_clock import MachineClock
from app.simulation.simulated.simulated_machine import HIDDEN_US_MAX, SimulatedMachine
from app.simulation.simulated.simulated_market import MarketSettings, SimulatedMarket
from app.simulation.sweep import SweepState
from app.simulation.watches.lineage_watch import LineageWatch
from tests.mutants.__main__ import cause_of
from tests.mutants.catalogue import places, read_mutants, scratch_tree
from trainer.protocol.checkpoint_manifest import (
    CheckpointManifest,
    FenceRecord,
    dump_manifest,
    fence_key,
    manifest_key,
)
from trainer.protocol.wire import encode

JOB = UUID(int=1)


def test_a_machines_clock_goes_on_from_where_it_was_when_its_pace_changes():
    world = VirtualClock()
    clock = MachineClock(world, world.starts_us)
    world.advance_to(world.starts_us + microseconds(100.0))
    clock.drift(0.5)
    world.advance_to(world.true_us + microseconds(100.0))
    assert clock.seconds() == pytest.approx(150.0)
    assert clock.true_us_at(200.0) == world.true_us + microseconds(100.0)


def test_a_hosts_clock_differs_by_what_it_is_told_to():
    world = VirtualClock()
    host = HostClock(world)
    host.apart_us = microseconds(-3.0)
    assert host.now() == instant(world.true_us - 3_000_000)


def _machine() -> SimulatedMachine:
    pool = Pool("aws", "us-east-1", "us-east-1a", "ec2-v100", Market.SPOT)
    return SimulatedMachine("aws-0001", "token", pool, "ec2", 0, 10, 20, {})


def test_a_hidden_machine_is_missed_by_so_many_looks_and_is_there_all_the_time():
    machine = _machine()
    machine.hidden_looks = 2
    assert machine.seen(5) is None, "it is not visible as yet: no look was used up"
    assert [machine.seen(30) is None for _ in range(3)] == [True, True, False]
    machine.hidden_looks, machine.hidden_from_us = 2, None
    assert [machine.seen(at) is None for at in (30, 30 + HIDDEN_US_MAX)] == [True, False]
    machine.hidden_until_us = 50
    assert machine.seen(49) is None
    assert machine.seen(50) is not None


def test_a_price_jump_changes_what_comes_and_nothing_that_was():
    clock = VirtualClock()
    market = SimulatedMarket(SeededEntropy(1, clock), clock, 5.0, MarketSettings())
    pool = min(pool for pool in market.paths if pool.market is Market.SPOT)
    before = market.paths[pool]
    clock.advance_to(clock.starts_us + microseconds(1_800.0))
    market.jump(pool, 1.2)
    after = market.paths[pool]
    earlier, now = clock.true_us - 1, clock.true_us
    assert after.price_at(earlier) == before.price_at(earlier)
    assert after.price_at(now) == round(before.price_at(now) * 1.2)
    assert len(after.prices) == len(after.times_us) == len(before.times_us) + 1
    assert list(after.times_us) == sorted(after.times_us)


def test_what_counts_in_the_lineage_may_not_be_pruned():
    watch = LineageWatch()
    first = CheckpointManifest(1, 100, None, 1, False, ())
    begun = json.dumps(encode(FenceRecord(1, None, "machine"))).encode()
    watch.created(f"{JOB}/{fence_key(1)}", begun)
    watch.created(f"{JOB}/{manifest_key(1, 100)}", dump_manifest(first))
    newer = replace(first, step=200)
    watch.created(f"{JOB}/{manifest_key(1, 200)}", dump_manifest(newer))
    watch.deleted(f"{JOB}/{manifest_key(1, 100)}")
    with pytest.raises(InvariantError, match="pruned"):
        watch.deleted(f"{JOB}/{manifest_key(1, 200)}")


def test_every_fault_has_a_rate_and_something_that_it_does():
    """Without a rate it would happen in no seed, and nobody would miss it."""
    assert set(RATES) == set(Fault)
    assert min(RATES.values()) > 0
    assert {*Faults._DEEDS, *ByzantineFaults._DEEDS} == set(Fault)


def test_a_sweep_adds_up_what_each_seed_tells():
    progress = SweepState("sources", 1.0, 6.0)
    told = {"events": 10, "virtual_hours": 1.5, "faults": {"notice": 2, "outage": 1}}
    progress.add(1, SeedResult(RunStatus.HELD, f"a warning\n{json.dumps(told)}\n"))
    progress.add(2, SeedResult(RunStatus.HELD, json.dumps({**told, "faults": {"notice": 1}})))
    progress.add(3, SeedResult(RunStatus.TIMED_OUT, ""))
    assert progress.done == [1, 2, 3]
    assert progress.faults == {"notice": 3, "outage": 1}
    assert (progress.events, progress.virtual_hours) == (20, 3.0)
    assert list(progress.broken) == ["3"]


def test_the_cause_of_a_broken_run_is_the_line_after_the_first_of_its_report():
    report = "noise\na simulated world broke at noon\n  InvariantError: the rule\n  faults: none"
    assert cause_of(report) == "InvariantError: the rule"
    assert cause_of("Traceback\nImportError: x\n") == "ImportError: x"


def test_a_mutant_is_in_its_copy_alone_and_the_copy_goes(tmp_path: Path):
    mutant = read_mutants()[0]
    with scratch_tree(tmp_path, mutant) as tree:
        assert places(tree, mutant) == []
        assert mutant.new in (tree / mutant.file).read_text().split("\n")
    assert list(tmp_path.iterdir()) == []
