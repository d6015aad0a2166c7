"""Pools and offers: what can be rented, where, at what price now.

Lives here: the values and the fit of an offer to a need. Not here: the choice between offers
(`placement`) or the price's past (`price_book`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NotRequired, TypedDict

from app.domain.availability.hazard_models import USUAL_FACTOR
from app.domain.market.attachments import Attachments, AttachmentsDocument


class Market(StrEnum):
    """How a machine is rented."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, order=True)
class Pool:
    """provider × region × zone × type × market: machines that are interchangeable."""

    provider: str
    region: str
    zone: str
    instance_type: str
    market: Market

    @property
    def key(self) -> str:
        """Stable text form, e.g. `aws/us-west-2/us-west-2a/p3.2xlarge/spot`."""
        return "/".join((self.provider, self.region, self.zone, self.instance_type, self.market))

    @staticmethod
    def parse(key: str) -> Pool:
        """The pool of a key; ValueError when it has another form."""
        parts = key.split("/")
        if len(parts) != 5:
            raise ValueError(f"not a pool key: {key!r}")
        return Pool(parts[0], parts[1], parts[2], parts[3], Market(parts[4]))


class HardwareDocument(TypedDict):
    """`Hardware` as it is stored and shown.

    containers, quota: only where they are not as usual; rows of earlier releases may lack the
    networks, too.
    """

    gpu_name: str
    gpu_count: int
    gpu_memory_gb: int
    vcpus: int
    memory_gb: int
    interconnect: NotRequired[str]
    fast_network: NotRequired[str]
    containers: NotRequired[bool]
    quota: NotRequired[str]


@dataclass(frozen=True)
class Hardware:
    """What one machine of a type carries.

    interconnect: between its GPUs (`pcie`, `nvlink`, `nvswitch`); fast_network: between machines
    (`efa`, `tcpx`, `tcpxo`, `rdma`). "" where it is not known, or plain. containers: False where
    the machine image it boots is known to lack docker, which the `image` of a job needs. quota:
    what counts its GPUs, by its cloud's name; "" where types are counted by their family.
    """

    gpu_name: str
    gpu_count: int
    gpu_memory_gb: int
    vcpus: int
    memory_gb: int
    interconnect: str = ""
    fast_network: str = ""
    containers: bool = True
    quota: str = ""

    def to_json(self) -> HardwareDocument:
        """As it is stored and shown; what is so almost everywhere is left out."""
        document: HardwareDocument = {
            "gpu_name": self.gpu_name,
            "gpu_count": self.gpu_count,
            "gpu_memory_gb": self.gpu_memory_gb,
            "vcpus": self.vcpus,
            "memory_gb": self.memory_gb,
            "interconnect": self.interconnect,
            "fast_network": self.fast_network,
        }
        if not self.containers:
            document["containers"] = False
        if self.quota:
            document["quota"] = self.quota
        return document

    @staticmethod
    def from_json(stored: HardwareDocument) -> Hardware:
        """What `to_json` wrote, of this release or another; keys of later ones are ignored."""
        return Hardware(
            gpu_name=stored["gpu_name"],
            gpu_count=stored["gpu_count"],
            gpu_memory_gb=stored["gpu_memory_gb"],
            vcpus=stored["vcpus"],
            memory_gb=stored["memory_gb"],
            interconnect=stored.get("interconnect", ""),
            fast_network=stored.get("fast_network", ""),
            containers=stored.get("containers", True),
            quota=stored.get("quota", ""),
        )


class Quote(TypedDict):
    """An `Offer` as it is stored and listed; None where nothing is known.

    list_microusd_per_hour, price_terms: an api of before there were contract prices lists neither.
    """

    pool: Pool
    hardware: HardwareDocument
    price_microusd_per_hour: int
    on_demand_microusd_per_hour: int
    cloud: str
    quoted_at: datetime
    price_source: str
    available: int | None
    billing_speed: int
    attachments: AttachmentsDocument | None
    hazard_factor: float | None
    list_microusd_per_hour: NotRequired[int | None]
    price_terms: NotRequired[str | None]


@dataclass(frozen=True)
class Offer:
    """A pool's price now: what is paid, by contract where there is one.

    cloud: whose billing rules hold (`ec2` or `gce`); for the local provider, those it imitates.
    available: machines said to be had now, None when the cloud does not say.
    billing_speed: billed seconds per wall second; 1 but on the local provider, for demonstrations.
    quoted_at: when the price was captured.
    attachments: what comes with each machine at a price of its own; None where that is not known.
    hazard_factor: by how much more often than usual machines are taken there, as learned from all
    that were ever rented in the pool (`hazard_models`).
    list_microusd_per_hour, price_terms: what the cloud lists, and why another price is paid, in
    words; None where the list price is paid.
    """

    pool: Pool
    hardware: Hardware
    price_microusd_per_hour: int
    on_demand_microusd_per_hour: int
    cloud: str
    quoted_at: datetime
    price_source: str
    available: int | None = None
    billing_speed: int = 1
    attachments: Attachments | None = None
    hazard_factor: float = USUAL_FACTOR
    list_microusd_per_hour: int | None = None
    price_terms: str | None = None

    @staticmethod
    def from_quote(quote: Quote) -> Offer:
        """The offer in a stored or listed quote, of which other fields may be more."""
        attachments = quote["attachments"]
        return Offer(
            pool=quote["pool"],
            hardware=Hardware.from_json(quote["hardware"]),
            price_microusd_per_hour=quote["price_microusd_per_hour"],
            on_demand_microusd_per_hour=quote["on_demand_microusd_per_hour"],
            cloud=quote["cloud"],
            quoted_at=quote["quoted_at"],
            price_source=quote["price_source"],
            available=quote["available"],
            billing_speed=quote["billing_speed"],
            attachments=None if attachments is None else Attachments.from_json(attachments),
            hazard_factor=USUAL_FACTOR
            if quote["hazard_factor"] is None
            else quote["hazard_factor"],
            list_microusd_per_hour=quote.get("list_microusd_per_hour"),
            price_terms=quote.get("price_terms"),
        )

    @property
    def cost_microusd_per_hour(self) -> int:
        """The price with that of what comes with the machine."""
        extra = 0 if self.attachments is None else self.attachments.microusd_per_hour
        return self.price_microusd_per_hour + extra

    @property
    def billed_microusd_per_hour(self) -> int:
        """What an hour by the clock costs, where the bill may run faster."""
        return self.cost_microusd_per_hour * self.billing_speed

    def as_listed(self, microusd_per_hour: int) -> int:
        """An amount of the price that is paid, as the cloud counts it: by its list price."""
        if self.list_microusd_per_hour is None or not self.price_microusd_per_hour:
            return microusd_per_hour
        return microusd_per_hour * self.list_microusd_per_hour // self.price_microusd_per_hour

    @property
    def on_demand_ratio(self) -> float:
        """Price as a share of the on-demand price of the same type."""
        return self.price_microusd_per_hour / self.on_demand_microusd_per_hour
