"""The bundle of ports and limits that every verb receives.

Lives here: `Runtime` and `Limits`. Not here: their making (`app.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.ports.clock import Clock
from app.ports.cloud_provider import CloudProvider
from app.ports.effect_runner import EffectRunner
from app.ports.entropy import Entropy
from app.ports.object_store import ObjectStore
from app.ports.price_source import PriceSource
from app.ports.unit_of_work import UnitOfWorkFactory
from app.ports.wakeups import Wakeups


@dataclass(frozen=True)
class Limits:
    """Periods and bounds, in seconds; defaults suit real clouds, the local cloud is quicker.

    agent_lease_seconds: how long a machine may train without an answer from us.
    survivor_hold_seconds: how long idle survivors are kept for the next attempt.
    on_demand_acquire_seconds: reserve for acquiring on-demand machines before a deadline.
    boot_p95_seconds, restore_seconds: used until a pool's own times are learned.
    """

    report_interval_seconds: float = 10.0
    agent_lease_seconds: float = 1800.0
    registration_timeout_seconds: float = 600.0
    provisioning_seconds: float = 1800.0
    launches_per_attempt_max: int = 20
    preparing_seconds: float = 1800.0
    drain_seconds: float = 90.0
    stop_now_seconds: float = 1.0
    settle_seconds: float = 60.0
    survivor_hold_seconds: float = 600.0
    next_look_seconds: float = 30.0
    describe_seconds: float = 30.0
    describe_soon_seconds: float = 3.0
    absence_age_seconds: float = 120.0
    absence_gap_seconds: float = 10.0
    sweep_seconds: float = 60.0
    price_refresh_seconds: float = 60.0
    accrual_seconds: float = 60.0
    force_silence_seconds: float = 600.0
    on_demand_acquire_seconds: float = 1800.0
    boot_p95_seconds: float = 300.0
    restore_seconds: float = 60.0
    launch_token_seconds: float = 900.0
    listening_gap_seconds: float = 15.0
    cost_settle_seconds: float = 5.0


@dataclass(frozen=True)
class Runtime:
    """Everything a verb may touch.

    object_store: the deployment's own, for logs and workdirs. store_at: opens the store at a URI,
    for checkpoints. control_url: where agents reach the control plane.
    """

    begin: UnitOfWorkFactory
    clock: Clock
    entropy: Entropy
    wakeups: Wakeups
    effects: EffectRunner
    object_store: ObjectStore
    store_at: Callable[[str], ObjectStore]
    providers: Mapping[str, CloudProvider]
    price_sources: Mapping[str, PriceSource]
    control_url: str
    checkpoint_root_uri: str
    limits: Limits = field(default_factory=Limits)
