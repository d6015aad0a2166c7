"""What the fake cloud charges, counted by itself: per second, a minute at least, free when a spot
machine is preempted within its first minute. Its boot disk and its address are charged as long,
waived or not, at us-central1's list prices. Not here: the product's own billing rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from tests.support.gce.gce_fake_state import Vm, last

_MINIMUM_SECONDS = 60
_DISK_MICROUSD_A_MONTH = {"pd-balanced": 100_000, "hyperdisk-balanced": 80_000}
_ADDRESS_MICROUSD = 5_000


def charge_microusd(
    vm: Vm, microusd_per_hour: Callable[[Vm], int], until: float | None = None
) -> int:
    """One machine, with its disk and its address; `until` for a machine that still runs."""
    ends = vm.ended_at if vm.ended_at is not None else until
    if vm.started_at is None or ends is None:
        return 0
    milliseconds = max(0, round((ends - vm.started_at) * 1000))
    preempted = "compute.instances.preempted" in (vm.ended_by or "")
    waived = vm.model == "SPOT" and preempted and milliseconds < _MINIMUM_SECONDS * 1000
    seconds = max(_MINIMUM_SECONDS, -(-milliseconds // 1000))
    compute = 0 if waived else round(Fraction(seconds * microusd_per_hour(vm), 3_600))
    return compute + _disks(vm, seconds) + _addresses(vm, seconds)


def _disks(vm: Vm, seconds: int) -> int:
    """Disks of the machine's own, per GiB-month of 730 hours by their type."""
    asked = (disk.get("initializeParams", {}) for disk in vm.body.get("disks", []))
    monthly = sum(
        int(one.get("diskSizeGb", 10)) * _DISK_MICROUSD_A_MONTH[last(one["diskType"])]
        for one in asked
    )
    return round(Fraction(seconds * monthly, 730 * 3_600))


def _addresses(vm: Vm, seconds: int) -> int:
    """External addresses; a spot machine's cost half."""
    cards = vm.body.get("networkInterfaces", [])
    count = sum(len(card.get("accessConfigs", [])) for card in cards)
    price = _ADDRESS_MICROUSD // 2 if vm.model == "SPOT" else _ADDRESS_MICROUSD
    return round(Fraction(seconds * count * price, 3_600))


def bill_microusd(
    machines: Iterable[Vm], microusd_per_hour: Callable[[Vm], int], until: float | None = None
) -> dict[str, int]:
    """What every machine costs, by its name."""
    return {vm.name: charge_microusd(vm, microusd_per_hour, until) for vm in machines}
