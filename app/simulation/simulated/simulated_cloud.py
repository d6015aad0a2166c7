"""A simulated cloud behind the provider and price ports, with everything clouds do to people.

Launches are idempotent by token; machines show late; prices move; pools run dry; machines are
taken with a notice, without one, or not at all after one; calls are throttled and replies lost.
Not here: which of it happens when (`faults`), or the bill (`cloud_invoice`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from app.domain.billing.machine_facts import TimeSource
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market, Offer, Pool
from app.ports.cloud_provider import (
    AcceptedMachine,
    CloudMachine,
    LaunchOrder,
    LaunchOutcomeUnknown,
    LaunchResult,
    MachineList,
    PoolRefusal,
    ProviderError,
    RefusalKind,
)
from app.ports.price_source import PriceChange
from app.simulation.engine.event_log import EventLog
from app.simulation.engine.event_loop import EventLoop
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.engine.virtual_clock import instant, microseconds, since_epoch_us
from app.simulation.simulated.simulated_machine import SimulatedMachine
from app.simulation.simulated.simulated_market import SimulatedMarket


@dataclass
class CallFaults:
    """What goes wrong with the next calls; each entry is used up by one call.

    refuse: the call fails as a whole. lose_reply: it is done and its answer is lost. shorten:
    the next list is incomplete. show_late: machines that no look shows for a minute or two.
    """

    refuse: list[RefusalKind] = field(default_factory=list)
    lose_reply: int = 0
    shorten: int = 0
    show_late: int = 0


@dataclass(frozen=True)
class CloudTools:
    """What a cloud needs of its world. in_transaction: whether the control plane has one open."""

    loop: EventLoop
    log: EventLog
    market: SimulatedMarket
    in_transaction: Callable[[], bool]
    on_running: Callable[[SimulatedMachine], None]
    on_end: Callable[[SimulatedMachine], None]
    on_notice: Callable[[SimulatedMachine], None]


class TransactionOpen(AssertionError):
    """The control plane called a cloud while it held a transaction."""


class SimulatedCloud:
    """Implements `CloudProvider` and `PriceSource` for one provider."""

    call_timeout_seconds = 30.0

    def __init__(self, name: str, cloud: str, dice: Dice, tools: CloudTools) -> None:
        self.name = name
        self.cloud = cloud
        self.faults = CallFaults()
        self.calls: Counter[str] = Counter()
        self.machines: dict[str, SimulatedMachine] = {}
        self.orders: dict[str, LaunchOrder] = {}
        self._by_token: dict[str, list[SimulatedMachine]] = {}
        self._ready_us: dict[str, int] = {}
        self._refused: dict[str, tuple[PoolRefusal, ...]] = {}
        self._dice = dice
        self._tools = tools

    # --- the provider port ---

    def regions(self) -> tuple[str, ...]:
        """Regions of this cloud."""
        return self._tools.market.regions(self.name)

    def launch(self, order: LaunchOrder) -> LaunchResult:
        """Start machines in the first pool with room, once per token."""
        self._begin("launch")
        known = self.orders.get(order.client_token)
        if known is not None and known != order:
            raise ProviderError(RefusalKind.REJECTED, "this token was used for another order")
        refused: list[PoolRefusal] = []
        if known is None:
            started = self._start(order, refused)
            if started:
                self.orders[order.client_token] = order
                self._by_token[order.client_token] = started
                self._refused[order.client_token] = tuple(refused)
                self._log(f"launch {order.client_token[-8:]} started {_names(started)}")
        if self.faults.lose_reply:
            self.faults.lose_reply -= 1
            self._log(f"launch {order.client_token[-8:]}: its reply is lost")
            raise LaunchOutcomeUnknown("the connection broke before the answer came")
        machines = self._by_token.get(order.client_token, [])
        if machines and self.cloud == "gce" and self._now < self._ready_us[order.client_token]:
            return LaunchResult(pending_operation=f"operation/{order.client_token}")
        return LaunchResult(tuple(self._accepted(one) for one in machines), tuple(refused))

    def poll_launch(self, operation: str) -> LaunchResult:
        """The state of an unfinished launch."""
        self._begin("poll_launch")
        token = operation.removeprefix("operation/")
        machines = self._by_token.get(token)
        if machines is None:
            raise ProviderError(RefusalKind.REJECTED, f"no operation {operation!r}")
        if self._now < self._ready_us[token]:
            return LaunchResult(pending_operation=operation)
        return LaunchResult(tuple(self._accepted(one) for one in machines), self._refused[token])

    def find_by_token(
        self, client_token: str, region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """Machines started under a token that are visible now."""
        self._begin("find_by_token")
        return self._shown(self._by_token.get(client_token, []))

    def list_deployment(self, region: str) -> MachineList:
        """Every visible machine of the region."""
        self._begin("list_deployment")
        found = [one for one in self.machines.values() if one.pool.region == region]
        if self.faults.shorten and found:
            self.faults.shorten -= 1
            return MachineList(self._shown(found[: len(found) // 2]), complete=False)
        return MachineList(self._shown(found), complete=True)

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """The visible ones among these."""
        self._begin("describe")
        known = sorted(set(provider_instance_ids) & set(self.machines))
        shown = self._shown([self.machines[machine_id] for machine_id in known])
        for one in shown:
            self.machines[one.provider_instance_id].hidden = False
        return shown

    def terminate(self, provider_instance_ids: tuple[str, ...], region: str | None = None) -> None:
        """Give machines back; they shut down within half a minute."""
        self._begin("terminate")
        for machine_id in provider_instance_ids:
            machine = self.machines.get(machine_id)
            if machine is not None:
                self.stop(machine, EndedBy.US, self._dice.uniform(2.0, 30.0))

    # --- the price port ---

    def offers(self) -> tuple[Offer, ...]:
        """Every pool's price now."""
        self._begin("offers")
        return self._tools.market.offers(self.name)

    def changes_since(self, since: datetime) -> tuple[PriceChange, ...]:
        """Price steps up to now, from the one in effect at `since`."""
        self._begin("changes_since")
        since_us = since_epoch_us(since)
        found = []
        for pool, path in sorted(self._tools.market.paths.items()):
            if pool.provider != self.name:
                continue
            first = max((at for at in path.times_us if at <= since_us), default=path.times_us[0])
            for at_us, price in zip(path.times_us, path.prices, strict=True):
                if first <= at_us <= self._now:
                    found.append(PriceChange(pool, instant(at_us), price, "simulated_market"))
        return tuple(found)

    # --- what the world does to machines ---

    def alive(self) -> list[SimulatedMachine]:
        """Machines that cost money, by id."""
        return [one for one in self.machines.values() if one.alive]

    def started_by_launch(self) -> list[tuple[str, int, int]]:
        """(launch by its tag, machines ever started for it, machines it asked for)."""
        started: dict[str, int] = {}
        wanted: dict[str, int] = {}
        for token, machines in sorted(self._by_token.items()):
            launch = self.orders[token].tags.get("lowtide:launch", token)
            started[launch] = started.get(launch, 0) + len(machines)
            wanted[launch] = self.orders[token].count
        return [(launch, count, wanted[launch]) for launch, count in sorted(started.items())]

    def give_notice(
        self, machine: SimulatedMachine, seconds: float | None, kill: bool = True
    ) -> None:
        """Announce the machine's end; None: take it at once. kill=False: nothing follows."""
        if not machine.alive or machine.stopping_us is not None:
            return
        if seconds is None:
            self.stop(machine, EndedBy.CLOUD_INTERRUPTION, 0.0)
            return
        if machine.notice_us is None:
            machine.notice_us = self._now + microseconds(seconds)
            self._log(f"{machine.machine_id} gets a notice of {seconds:.0f} s, kill={kill}")
            self._tools.on_notice(machine)
            if kill:
                deadline = machine.notice_us
                self._tools.loop.at(
                    deadline, lambda: self.stop(machine, EndedBy.CLOUD_INTERRUPTION, 0.0)
                )

    def stop(self, machine: SimulatedMachine, ended_by: EndedBy, lasts_seconds: float) -> None:
        """The machine's end is decided; whoever decided first has ended it."""
        if not machine.alive or machine.stopping_us is not None:
            return
        machine.stopping_us, machine.ended_by = self._now, ended_by
        self._tools.on_end(machine)
        if lasts_seconds <= 0:
            self._end(machine)
        else:
            self._tools.loop.after(lasts_seconds, lambda: self._end(machine))

    def _end(self, machine: SimulatedMachine) -> None:
        machine.ended_us = self._now
        self._log(f"{machine.machine_id} ended by {machine.ended_by}")

    # --- inside ---

    @property
    def _now(self) -> int:
        return self._tools.loop.clock.true_us

    def _begin(self, call: str) -> None:
        if self._tools.in_transaction():
            raise TransactionOpen(f"{self.name}.{call} was called inside a transaction")
        self.calls[call] += 1
        if self.faults.refuse:
            kind = self.faults.refuse.pop(0)
            self._log(f"{call} fails: {kind}")
            raise ProviderError(kind, f"the simulated cloud says {kind}")

    def _start(self, order: LaunchOrder, refused: list[PoolRefusal]) -> list[SimulatedMachine]:
        for bid in order.bids:
            kind = self._refusal(bid.pool, bid.max_price_microusd_per_hour, order.min_count)
            if kind is not None:
                refused.append(PoolRefusal(bid.pool, kind, f"{bid.pool.zone}: {kind}"))
                continue
            room = self._room(bid.pool)
            if room < order.count:
                text = f"{bid.pool.zone}: room for {room} of {order.count}"
                refused.append(PoolRefusal(bid.pool, RefusalKind.NO_CAPACITY, text))
            self._ready_us[order.client_token] = self._now + microseconds(
                self._dice.uniform(3.0, 12.0)
            )
            return [self._new(order, bid.pool) for _ in range(min(order.count, room))]
        return []

    def _refusal(self, pool: Pool, limit: int | None, wanted: int) -> RefusalKind | None:
        path = self._tools.market.paths.get(pool)
        if path is None or pool.provider != self.name:
            return RefusalKind.UNSUPPORTED
        if limit is not None and path.price_at(self._now) > limit:
            return RefusalKind.PRICE_TOO_LOW
        return RefusalKind.NO_CAPACITY if self._room(pool) < wanted else None

    def _room(self, pool: Pool) -> int:
        taken = sum(1 for one in self.machines.values() if one.alive and one.pool == pool)
        return max(0, self._tools.market.paths[pool].capacity_at(self._now) - taken)

    def _new(self, order: LaunchOrder, pool: Pool) -> SimulatedMachine:
        dice = self._dice
        machine = SimulatedMachine(
            machine_id=f"{self.name}-{len(self.machines) + 1:04d}",
            client_token=order.client_token,
            pool=pool,
            cloud=self.cloud,
            launched_us=self._now,
            visible_us=self._now + microseconds(dice.uniform(0.0, 12.0)),
            running_us=self._now + microseconds(dice.uniform(10.0, 40.0)),
            user_data=dict(order.user_data),
            tags=dict(order.tags),
        )
        if self.faults.show_late:
            self.faults.show_late -= 1
            machine.visible_us += microseconds(dice.uniform(60.0, 100.0))
        self.machines[machine.machine_id] = machine
        self._tools.loop.at(machine.running_us, lambda: self._run(machine))
        return machine

    def _run(self, machine: SimulatedMachine) -> None:
        if machine.stopping_us is None:
            self._tools.on_running(machine)

    def _accepted(self, machine: SimulatedMachine) -> AcceptedMachine:
        """EC2's answer names no launch time; Compute Engine's operation does."""
        ec2 = self.cloud == "ec2"
        return AcceptedMachine(
            machine.machine_id,
            machine.pool,
            None if ec2 else instant(machine.launched_us),
            "" if ec2 else TimeSource.CREATION,
        )

    def _shown(self, machines: list[SimulatedMachine]) -> tuple[CloudMachine, ...]:
        shown = (one.seen(self._now) for one in machines)
        found = [one for one in shown if one is not None]
        return tuple(sorted(found, key=lambda one: one.provider_instance_id))

    def _log(self, text: str) -> None:
        self._tools.log.write(f"cloud {self.name}", text)


def spot_machines(clouds: list[SimulatedCloud]) -> list[SimulatedMachine]:
    """Living spot machines of all clouds that have no notice yet, by id."""
    return [
        one
        for cloud in clouds
        for one in cloud.alive()
        if one.pool.market is Market.SPOT and one.notice_us is None and one.stopping_us is None
    ]


def _names(machines: list[SimulatedMachine]) -> str:
    return ",".join(one.machine_id for one in machines)
