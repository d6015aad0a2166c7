"""The simulated worlds whose decisions are recorded: named scenarios, seeds, and markets that turn.

Those of their own are about placement: jobs of every kind of wish beside each other, in a market
whose prices jump and whose pools run dry, with machines taken all the time. Not here: watching a
world (`watch_world`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.orchestration.frame.runtime import Limits
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.faults.fault_kinds import Fault
from app.simulation.runs.run_seed import mixed_jobs, rates_times
from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenarios import SCENARIOS
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.simulated_market import MarketSettings
from app.simulation.simulated.world import SIMULATED_LIMITS, JobPlan

STEPS_PER_HOUR: Final = 1_800
SEEDS: Final = (1, 2)
SEED_HOURS: Final = 12.0
TURNING_SEEDS: Final = 20
TURNING_HOURS: Final = 6.0
NAMED: Final = (
    "hour_slower_than_estimated",
    "hour_budget_below_some_bids",
    "hour_budget_used_up",
    "hour_budget_of_a_project",
    "hour_spot_is_dry",
    "elastic_without_replacement",
    "notice",
    "elastic_with_too_few_survivors",
    "hour_budget_and_a_loss",
    "kill_without_notice",
    "drought",
    "deadline_near",
    "notice_on_the_replacement_too",
    "notice_while_booting",
    "machine_fails",
    "launched_and_lost_between_sweeps",
    "refused",
    "outage_before_a_deadline",
    "pause_and_resume",
    "gpu_fault",
    "trainer_fails",
    "elastic_grows_again",
    "elastic_with_little_room",
    "cheaper_pool",
    "cheaper_pool_takes_its_machines",
    "interrupted_while_moving",
    "hour_never_boots",
    "hour_budget_too_small",
)
"""Scenarios in which something is decided about machines that other worlds seldom come to."""


@dataclass(frozen=True)
class RecordedWorld:
    """A world by name and seed. begin: what happens in it.

    of_a_kind_max: decisions of one kind that are kept of it, at most.
    """

    name: str
    seed: int
    hours: float
    begin: Callable[[WorldRun], None]
    of_a_kind_max: int = 8
    market: MarketSettings = field(default_factory=MarketSettings)
    limits: Limits = SIMULATED_LIMITS
    project_cap_microusd: int | None = None


def recorded_worlds() -> tuple[RecordedWorld, ...]:
    """All of them, in the order of the file."""
    return (*_scenarios(), *_turning(), *_seeds())


def _scenarios() -> Iterator[RecordedWorld]:
    for name in NAMED:
        scenario = SCENARIOS[name]

        def begin(run: WorldRun, scenario: Any = scenario) -> None:
            for plan in scenario.jobs:
                run.world.plan(plan)
            scenario.script(run)

        yield RecordedWorld(
            f"scenario {name}",
            1,
            scenario.hours,
            begin,
            market=scenario.market,
            limits=scenario.limits,
            project_cap_microusd=scenario.project_cap_microusd,
        )


def _seeds() -> Iterator[RecordedWorld]:
    """The mixed worlds of the sweep, with all of their faults."""

    def begin(run: WorldRun) -> None:
        for plan in mixed_jobs(run.world.entropy.stream("workload"), SEED_HOURS):
            run.world.plan(plan)
        run.faults.begin(rates_times(1.0), SEED_HOURS / 2)

    for seed in SEEDS:
        yield RecordedWorld(f"seed {seed}", seed, SEED_HOURS, begin, of_a_kind_max=25)


# --- markets that turn ---

_LOOKS_OFTEN = replace(
    SIMULATED_LIMITS,
    price_refresh_seconds=600.0,
    migration_look_seconds=600.0,
    migration_rest_seconds=900.0,
    resize_seconds=900.0,
    return_rest_seconds=900.0,
)
_TROUBLE = {
    Fault.NOTICE: 1.2,
    Fault.KILL_WITHOUT_NOTICE: 0.5,
    Fault.NOTICE_WHILE_BOOTING: 0.4,
    Fault.PRICE_JUMPS: 1.5,
    Fault.CLOUD_UNAVAILABLE: 0.3,
    Fault.THROTTLED: 0.3,
    Fault.LAUNCH_REPLY_LOST: 0.2,
    Fault.MACHINE_FAILS: 0.15,
    Fault.PAUSE: 0.1,
}
_MARKETS = (
    MarketSettings(spot_capacity=6, price_step_hours=0.3, drought_every_hours=0.0),
    MarketSettings(
        spot_capacity=4, price_step_hours=0.3, drought_every_hours=2.0, drought_lasts_hours=0.7
    ),
    MarketSettings(
        spot_capacity=3, price_step_hours=0.5, drought_every_hours=1.0, drought_lasts_hours=1.5
    ),
)
_DEADLINES = (100, 150, 240, 330)
"""Minutes; one in each world, as value tables are made for each."""
_A100 = Hardware(gpu_name="A100", gpu_count=1, gpu_memory_gb=40, vcpus=12, memory_gb=85)
_A100_PRICE_RATIO = 1.9


def _turning() -> Iterator[RecordedWorld]:
    for seed in range(1, TURNING_SEEDS + 1):

        def begin(run: WorldRun, seed: int = seed) -> None:
            if seed % 3 == 0:
                _add_a100s(run)
            dice = run.world.entropy.stream("recorded")
            minutes = _DEADLINES[seed % len(_DEADLINES)]
            for number in range(6):
                run.world.plan(_job(dice, number, minutes, several_kinds=seed % 3 == 0))
            run.faults.begin(_TROUBLE, TURNING_HOURS * 0.75)

        yield RecordedWorld(
            f"turning {seed}",
            seed,
            TURNING_HOURS,
            begin,
            of_a_kind_max=25,
            market=_MARKETS[seed % len(_MARKETS)],
            limits=_LOOKS_OFTEN,
            project_cap_microusd=30_000_000 if seed % 5 == 0 else None,
        )


def _job(dice: Dice, number: int, deadline_minutes: int, *, several_kinds: bool) -> JobPlan:
    """A job of one of many kinds of wish; every second one has a deadline."""
    nodes = dice.choice((1, 1, 2, "1..2", "1..3", "2..4"))
    least = int(str(nodes)[0])
    gpus: Any = ["V100", "A100"] if several_kinds and dice.chance(0.7) else "V100"
    spec: dict[str, Any] = {
        "name": f"job-{number}",
        "run": "train",
        "nodes": nodes,
        "resources": {"gpu": gpus},
    }
    hours = dice.uniform(0.7, 2.5)
    if number % 2 == 0:
        room = dice.choice((0.35, 0.5, 0.7, 0.95))
        hours = deadline_minutes / 60 * room
        spec["deadline"] = f"{deadline_minutes}m"
        spec["on_deadline"] = "stop" if dice.chance(0.25) else "finish"
        spec["market"] = dice.choice(("auto", "auto", "auto", "spot", "on_demand"))
    else:
        spec["market"] = dice.choice(("auto", "spot", "spot", "on_demand"))
        if dice.chance(0.4):
            spec["patience"] = dice.choice(("20m", "1h", "3h"))
    spec["estimate"] = {"hours": round(hours, 2), "gpu": "V100", "nodes": least}
    if dice.chance(0.35):
        spec["budget_usd"] = f"{dice.uniform(0.5, 2.5) * hours * least * 1.5:.2f}"
    if dice.chance(0.15):
        spec["max_duration"] = f"{round(hours * 60 * dice.uniform(0.8, 1.6)) + 5}m"
    if dice.chance(0.15):
        spec["max_wait"] = dice.choice(("15m", "40m"))
    if dice.chance(0.25):
        spec["max_price_ratio"] = dice.choice((0.3, 0.4, 0.6))
    really = hours * dice.choice((0.8, 1.0, 1.0, 1.3))
    work = Workload(
        total_steps=max(60, round(really * STEPS_PER_HOUR)),
        checkpoint_seconds=dice.choice((240.0, 600.0, 900.0)),
    )
    return JobPlan(spec, work, dice.uniform(1.0, 1_500.0))


def _add_a100s(run: WorldRun) -> None:
    """Beside each pool of V100s one of A100s, dearer and quicker."""
    market = run.world.market
    usual: Callable[[str], tuple[Offer, ...]] = market.offers
    for pool, path in sorted(market.paths.items()):
        other = replace(pool, instance_type=pool.instance_type.replace("v100", "a100"))
        prices = tuple(round(price * _A100_PRICE_RATIO) for price in path.prices)
        droughts = () if pool.market is Market.ON_DEMAND else path.droughts[1::2]
        market.paths[other] = replace(path, pool=other, prices=prices, droughts=droughts)

    def offers(provider: str) -> tuple[Offer, ...]:
        return tuple(_as_a100(one) if _is_a100(one.pool) else one for one in usual(provider))

    market.offers = offers  # type: ignore[method-assign]


def _is_a100(pool: Pool) -> bool:
    return pool.instance_type.endswith("a100")


def _as_a100(offer: Offer) -> Offer:
    full = round(offer.on_demand_microusd_per_hour * _A100_PRICE_RATIO)
    return replace(offer, hardware=_A100, on_demand_microusd_per_hour=full)
