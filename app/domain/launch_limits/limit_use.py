"""What machines hold of limits, and what keeps more of them from being requested.

A machine counts from its request until it is gone: those that are ending do, and those that were
found without a row. Before its cloud has answered it counts as whatever of its bids holds most.
Not here: reading machines (`storage.instances.launch_gate`), or offers (`placement.launch_room`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.domain.launch_limits.launch_limits import GpuLimit, LaunchLimits
from app.domain.market.offer import Hardware, Offer
from app.domain.units.money import format_usd


@dataclass(frozen=True, slots=True)
class HeldMachines:
    """So many machines, each one of these offers; none where its pool is not known any more."""

    count: int
    offers: tuple[Offer, ...] = ()


class LimitKind(StrEnum):
    """What a limit counts, by its field. Values are shown."""

    MACHINES = "machines"
    GPUS = "gpus"
    HOURLY_SPEND = "max_hourly_spend_usd"
    QUEUED_JOBS = "queued_jobs"


@dataclass(frozen=True, slots=True)
class LimitUse:
    """One limit and what is held of it; of money in micro-USD per hour.

    project: whose it is; None for the deployment's. gpu: of a limit of GPUs.
    """

    project: str | None
    kind: LimitKind
    most: int
    used: int
    gpu: GpuLimit | None = None

    def per_machine(self, offer: Offer) -> int:
        """What one more machine of this offer would hold."""
        return _amount(self.kind, self.gpu, offer.hardware, offer.cost_microusd_per_hour)

    @property
    def field(self) -> str:
        """Its field in the document of limits."""
        return self.kind if self.gpu is None else f"{self.kind}.{self.gpu.model}"

    @property
    def owner(self) -> str:
        """Whose it is, in words."""
        return "this deployment" if self.project is None else f"the project {self.project!r}"

    @property
    def keeper(self) -> str:
        """Who sets it, and how, in words."""
        if self.project is None:
            return f"an admin sets by `lowtide limits --set {self.field}=…`"
        return f"a maintainer of the project sets as `limits.{self.field}` in its rules"

    def words(self, amount: int) -> str:
        """An amount of what it counts: "2 machines", "8 V100", "$4.20/h"."""
        if self.kind is LimitKind.HOURLY_SPEND:
            return f"{format_usd(amount)}/h"
        if self.kind is LimitKind.QUEUED_JOBS:
            return "1 queued job" if amount == 1 else f"{amount:,} queued jobs"
        if self.kind is LimitKind.MACHINES:
            return "1 machine" if amount == 1 else f"{amount:,} machines"
        if self.gpu is None or not self.gpu.name:
            return "1 GPU" if amount == 1 else f"{amount} GPUs"
        return f"{amount} {self.gpu.model}"

    def refusal(self, asked: int) -> str:
        """Why so much more is not requested, as a part of a sentence."""
        return (
            f"the limit of {self.words(self.most)} of {self.owner} has no room: its machines have "
            f"{self.words(self.used)}, and this needs {self.words(asked)}"
        )

    def remedy(self, asked: int) -> str:
        """What would let so much more be requested, as a part of a sentence."""
        if asked > self.most:
            return f"a limit of at least {self.words(asked)}, which {self.keeper}"
        less = self.words(self.used + asked - self.most)
        raised = self.words(self.used + asked)
        return (
            f"the end of {less} of {self.owner}, or a limit of at least {raised}, which "
            f"{self.keeper}"
        )

    @property
    def excess(self) -> str | None:
        """That it is exceeded, as after it was lowered or prices have risen, as a sentence; None
        where it is not.
        """
        if self.used <= self.most:
            return None
        is_queue = self.kind is LimitKind.QUEUED_JOBS
        follows = "no other is accepted" if is_queue else "nothing more is requested"
        return (
            f"{self.owner[:1].upper()}{self.owner[1:]} has {self.words(self.used)}, over its limit "
            f"of {self.words(self.most)}: nothing is stopped, and {follows} until it is within the "
            "limit."
        )

    @property
    def full_queue(self) -> str:
        """Why no other job is accepted, and what to do, as a sentence."""
        return (
            f"{self.owner[:1].upper()}{self.owner[1:]} has {self.words(self.used)}, and its limit "
            f"is {self.words(self.most)}: submit again once some have started, or ask for another "
            f"limit, which {self.keeper}."
        )


def uses_of(
    limits: LaunchLimits, held: Sequence[HeldMachines], project: str | None
) -> tuple[LimitUse, ...]:
    """Each of the limits of machines with what these hold of it."""
    return tuple(
        LimitUse(project, kind, most, sum(_held(kind, gpu, one) for one in held), gpu)
        for kind, most, gpu in _fields(limits)
    )


def use_of_queue(limits: LaunchLimits, queued: int, project: str | None) -> tuple[LimitUse, ...]:
    """The limit of queued jobs, with so many of them; none where it is not set."""
    most = limits.queued_jobs
    return () if most is None else (LimitUse(project, LimitKind.QUEUED_JOBS, most, queued),)


def _fields(limits: LaunchLimits) -> Iterator[tuple[LimitKind, int, GpuLimit | None]]:
    if limits.machines is not None:
        yield LimitKind.MACHINES, limits.machines, None
    for gpu in limits.gpus or ():
        yield LimitKind.GPUS, gpu.most, gpu
    if limits.max_hourly_spend_microusd is not None:
        yield LimitKind.HOURLY_SPEND, limits.max_hourly_spend_microusd, None


def _held(kind: LimitKind, gpu: GpuLimit | None, machines: HeldMachines) -> int:
    if kind is LimitKind.MACHINES:
        return machines.count
    each = (_amount(kind, gpu, one.hardware, one.cost_microusd_per_hour) for one in machines.offers)
    return machines.count * max(each, default=0)


def _amount(
    kind: LimitKind, gpu: GpuLimit | None, hardware: Hardware, microusd_per_hour: int
) -> int:
    if kind is LimitKind.MACHINES:
        return 1
    if kind is LimitKind.HOURLY_SPEND:
        return microusd_per_hour
    return 0 if gpu is None else gpu.counts(hardware)
