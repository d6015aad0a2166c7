"""Machines that are quick enough for a deadline: the cheapest in time, else the quickest."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.in_time import TimeLeft, in_time
from app.domain.placement.placement import RankedOffer
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, V100, GpuThroughput
from app.domain.throughput.measured_run import GpuShape

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KINDS = {"t4": ("T4", 16), "v100": ("V100", 16), "h100": ("H100", 80)}


def offers(*fit: str) -> list[RankedOffer]:
    """One on-demand pool of each kind, the cheapest first."""
    found = []
    for name, (gpu, memory) in KINDS.items():
        pool = Pool("local", "us-west-2", "us-west-2a", name, Market.ON_DEMAND)
        offer = Offer(pool, Hardware(gpu, 1, memory, 8, 61), 1, 1, "ec2", NOW, "test")
        verdict = FitVerdict.FITS if name in fit else FitVerdict.FULL
        found.append(RankedOffer(offer, verdict, str(verdict)))
    return found


@pytest.mark.parametrize(
    ("hours", "able", "left"),
    [
        (100, ["t4", "v100", "h100"], ["t4", "v100", "h100"]),
        (11, ["t4", "v100", "h100"], ["v100", "h100"]),
        (5, ["t4", "v100", "h100"], ["h100"]),
        (1, ["t4", "v100", "h100"], ["h100"]),
        (-1, ["t4", "v100"], ["v100"]),
        (1, [], []),
    ],
)
def test_what_is_too_slow_is_passed_over_while_another_is_not(
    hours: float, able: list[str], left: list[str]
) -> None:
    considered = offers(*able)
    found = in_time(considered, NOTHING_MEASURED, TimeLeft(hours * 3_600, 36_000.0, V100))
    assert [item.offer.pool.instance_type for item in found if item.fits] == left
    assert [item.fits for item in found] == sorted((item.fits for item in found), reverse=True)
    told = {item.offer.pool.instance_type: item.why for item in found}
    for name in KINDS:
        if name in able and name not in left:
            assert told[name].startswith(
                "too slow for the deadline: the remaining work would take "
            )


def test_speeds_are_asked_once_for_each_kind_that_fits() -> None:
    asked: list[str] = []

    class Asked(GpuThroughput):
        def seconds_on(self, kind: GpuShape, seconds: float, told_for: GpuShape) -> float:
            asked.append(kind.name)
            return super().seconds_on(kind, seconds, told_for)

    in_time(offers("v100", "h100") * 3, Asked({}), TimeLeft(3_600.0, 36_000.0, V100))
    assert asked == ["V100", "H100"]
