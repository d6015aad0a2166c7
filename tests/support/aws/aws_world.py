"""What the fake AWS account holds beside moto's records: markets, room, faults and its own bill.

Lives here: the rules that moto does not know. Not here: the wire (`aws_fake_http`), or EC2's
actions on these rules (`aws_fake_ec2`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction

ACCOUNT = "123456789012"
REGIONS = ("us-east-1", "us-west-2")
ZONES = ("a", "b", "c")
IMAGE = "ami-0a1b2c3d4e5f60718"
TYPES = {  # what is sold, on-demand micro-USD per hour, vCPUs, quota group
    "g5.xlarge": (1_006_000, 4, "G and VT"),
    "g6.xlarge": (804_800, 4, "G and VT"),
    "g6e.xlarge": (1_861_000, 4, "G and VT"),
    "p4d.24xlarge": (21_957_642, 96, "P4, P3 and P2"),
    "p5.48xlarge": (55_040_000, 192, "P5"),
    "p6-b300.48xlarge": (142_416_000, 192, "P6"),
}
SPOT_SHARE = 0.35
FREE_SPOT_SECONDS = 3_600
LEAST_SECONDS = 60
GP3_MICROUSD_A_MONTH = 80_000
GP3_MBPS_MICROUSD_A_MONTH = 40_000
GP3_FREE_MBPS = 125
HOURS_A_MONTH = 730
PUBLIC_IP_MICROUSD = 5_000


_told: list[Callable[[], datetime]] = []


def now() -> datetime:
    """The account's time: the wall clock's, unless a test tells it."""
    return _told[-1]() if _told else datetime.now(UTC)


@contextmanager
def told_time(read: Callable[[], datetime]) -> Iterator[None]:
    """Meanwhile the account's time is what `read` says."""
    _told.append(read)
    try:
        yield
    finally:
        _told.pop()


@dataclass
class Fault:
    """An error for an action, `times` times; `where` limits it to a type or a zone.

    hang_seconds: the answer comes so late, and nothing is done meanwhile.
    """

    action: str
    code: str
    status: int = 400
    message: str = "injected"
    times: int = 1
    where: str | None = None
    hang_seconds: float = 0.0


@dataclass
class Rented:
    """One machine as the fake's own accounts see it. Times are whole seconds, as EC2's are."""

    machine_id: str
    region: str
    zone: str
    instance_type: str
    spot: bool
    launched_at: datetime
    hidden_looks: int = 0
    pending_until: datetime | None = None
    ended_at: datetime | None = None
    gone_at: datetime | None = None
    reason: str = ""
    reason_text: str = ""
    volume_gb: int = 0
    volume_mbps: int = GP3_FREE_MBPS
    public_ip: bool = False

    @property
    def lives(self) -> bool:
        return self.ended_at is None


@dataclass
class AwsWorld:
    """The account. Everything is under `lock`, which requests hold while they are answered.

    clock_ahead: how far AWS's clock is from ours, as signatures are judged by it.
    region_faults: (code, status, seconds until then) of every answer of EC2 and S3 in a
    region; without a code the connection is dropped.
    queue_waits: an empty queue is listened to for as long as is asked, in wall time.
    leasts_broken: so many fleets start with fewer machines than their least, which EC2 promises
    not to do. garbled: (action, kind) of answers to damage, each once; see `aws_fake_garble`.
    """

    spot_room: int = 6
    on_demand_room: int = 20
    pending_seconds: float = 0.0
    ending_seconds: float = 0.0
    hidden_looks: int = 0
    page_size: int = 1_000
    queue_waits: bool = True
    clock_ahead: timedelta = timedelta(0)
    lock: threading.RLock = field(default_factory=threading.RLock)
    room: dict[tuple[str, str, bool], int] = field(default_factory=dict)
    offered: set[tuple[str, str]] = field(default_factory=set)
    images: set[str] = field(default_factory=lambda: {IMAGE})
    prices: dict[tuple[str, str], list[tuple[datetime, int]]] = field(default_factory=dict)
    quotas: dict[tuple[str, bool], int] = field(default_factory=dict)
    placement_groups: set[tuple[str, str]] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    region_faults: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    protected: set[str] = field(default_factory=set)
    leasts_broken: int = 0
    garbled: list[tuple[str, str]] = field(default_factory=list)
    hang_seconds: dict[str, float] = field(default_factory=dict)
    machines: dict[str, Rented] = field(default_factory=dict)
    fleets: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    launches: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        begin = now() - timedelta(days=120)
        for region in REGIONS:
            for letter in ZONES:
                zone = f"{region}{letter}"
                for index, (name, (price, _, _)) in enumerate(sorted(TYPES.items())):
                    self.offered.add((name, zone))
                    share = SPOT_SHARE + 0.01 * ZONES.index(letter) + 0.001 * index
                    self.prices[name, zone] = [(begin, round(price * share / 100) * 100)]

    def price_at(self, instance_type: str, zone: str, at: datetime) -> int:
        """Micro-USD per hour in effect."""
        earlier = [price for since, price in self.prices[instance_type, zone] if since <= at]
        return earlier[-1] if earlier else self.prices[instance_type, zone][0][1]

    def set_price(self, instance_type: str, zone: str, microusd: int, at: datetime) -> None:
        """A step; steps are given in order of time."""
        self.prices[instance_type, zone].append((at, microusd))

    def free(self, instance_type: str, zone: str, spot: bool) -> int:
        """Machines that can still be had in the pool."""
        usual = self.spot_room if spot else self.on_demand_room
        room = self.room.get((instance_type, zone, spot), usual)
        return room - sum(
            1
            for one in self.machines.values()
            if one.lives and (one.instance_type, one.zone, one.spot) == (instance_type, zone, spot)
        )

    def quota_left(self, instance_type: str, region: str, spot: bool) -> int | None:
        """Machines of the type that the region's vCPU quota still allows; None: no limit."""
        _, vcpus, group = TYPES[instance_type]
        limit = self.quotas.get((group, spot))
        if limit is None:
            return None
        used = sum(
            TYPES[one.instance_type][1]
            for one in self.machines.values()
            if one.lives
            and (one.region, one.spot) == (region, spot)
            and TYPES[one.instance_type][2] == group
        )
        return (limit - used) // vcpus

    def fault(self, action: str, *about: str) -> Fault | None:
        """The next fault for the action; one about a type or zone only where it is named."""
        for one in self.faults:
            hit = one.where in about if about else one.where is None
            if one.action == action and one.times > 0 and hit:
                one.times -= 1
                return one
        return None

    def garble(self, action: str) -> str | None:
        """How the next answer to the action is damaged; None: not at all."""
        found = next((one for one in self.garbled if one[0] == action), None)
        if found is None:
            return None
        self.garbled.remove(found)
        return found[1]

    def bill(self, until: datetime | None = None) -> dict[str, int]:
        """What every machine costs in micro-USD, with its volume and its public address."""
        at = until or now()
        return {
            one.machine_id: self._cost(one, at) + self._beside(one, at)
            for one in self.machines.values()
        }

    def compute_bill(self, until: datetime | None = None) -> dict[str, int]:
        """Compute cost of every machine in micro-USD: per second, piecewise, first hour rule."""
        return {one.machine_id: self._cost(one, until or now()) for one in self.machines.values()}

    def _beside(self, one: Rented, until: datetime) -> int:
        """Volume and address: charged while they are there, whoever ended the machine."""
        if one.reason == "Server.InsufficientInstanceCapacity":
            return 0
        there = (one.ended_at or until) - one.launched_at
        if one.ended_at is not None:
            there = max(there, timedelta(seconds=LEAST_SECONDS))
        hours = Fraction(there // timedelta(microseconds=1), 3_600 * 10**6)
        speed = (one.volume_mbps - GP3_FREE_MBPS) * GP3_MBPS_MICROUSD_A_MONTH
        volume = hours * (one.volume_gb * GP3_MICROUSD_A_MONTH + speed) / HOURS_A_MONTH
        return round(volume) + (round(hours * PUBLIC_IP_MICROUSD) if one.public_ip else 0)

    def _cost(self, one: Rented, until: datetime) -> int:
        end = one.ended_at or until
        seconds = (end - one.launched_at).total_seconds()
        if one.reason == "Server.InsufficientInstanceCapacity":
            return 0
        if one.reason == "Server.SpotInstanceTermination" and seconds < FREE_SPOT_SECONDS:
            return 0
        if not one.spot:
            steps = [(one.launched_at, TYPES[one.instance_type][0])]
        else:
            # The price in effect while the machine runs (aws.amazon.com/ec2/spot/pricing): one that
            # changes after its end does not touch what its minimum adds.
            steps = [(one.launched_at, self.price_at(one.instance_type, one.zone, one.launched_at))]
            steps += [
                (at, price)
                for at, price in self.prices[one.instance_type, one.zone]
                if one.launched_at < at < end
            ]
        end = max(end, one.launched_at + timedelta(seconds=LEAST_SECONDS))
        total = Fraction(0)
        for index, (at, price) in enumerate(steps):
            stop = steps[index + 1][0] if index + 1 < len(steps) else end
            total += Fraction((stop - at) // timedelta(microseconds=1) * price, 3_600 * 10**6)
        return round(total)
