"""The local cloud's own bill, from its own records.

Written apart from the ledger's arithmetic on purpose: the two must agree to the micro-dollar, and
that only says something when neither calls the other. Rules imitated, as the clouds publish them:

- Linux machines are charged per second, at least 60 s (AWS announcement of 2017-10-02; Google
  Compute Engine pricing). A second begun is charged whole once the machine has ended.
- A spot second pays the price in effect in it. What the last second and the minimum add pays the
  last price.
- EC2: no charge for the instance when Amazon takes it in its first hour (EC2 User Guide, "Billing
  for interrupted Spot Instances"). Compute Engine: none when preempted in its first minute.
- Disk and public address are charged for the same seconds, waived or not, at their own prices; a
  month has 730 hours.
- Billed seconds are wall seconds x `billing_speed`. One rounding per machine and thing charged,
  half to even.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil

from app.adapters.providers.local.files.cloud_settings import CloudTerms
from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.market.market import RecordedMarkets
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market

_MINIMUM_SECONDS = 60
_FREE_EC2_SECONDS = 3600
_FREE_GCE_SECONDS = 60
_US_PER_HOUR = 3_600_000_000
_HOURS_PER_MONTH = 730


def compute_microusd(
    machine: Machine, markets: RecordedMarkets, billing_speed: Fraction, until_us: int
) -> int | None:
    """Micro-dollars of machine time up to `until_us`; None when it had not started by then."""
    start_us = machine.launched_at_us
    if until_us < start_us:
        return None
    end_us, ended = _end(machine, until_us)
    billed = Fraction(end_us - start_us, 1_000_000) * billing_speed
    if ended and _is_free(machine, billed):
        return 0
    points = list(markets.price_points(machine.pool, start_us, end_us))
    begins = [max(start_us, point.at_us) for point in points] + [end_us]
    cost = Fraction(0)
    last_price = points[0].microusd_per_hour
    for point, (from_us, to_us) in zip(points, pairwise(begins), strict=True):
        if to_us > from_us:
            cost += Fraction((to_us - from_us) * point.microusd_per_hour, _US_PER_HOUR)
            last_price = point.microusd_per_hour
    cost *= billing_speed
    if ended:
        cost += (max(ceil(billed), _MINIMUM_SECONDS) - billed) * last_price / 3600
    return round(cost)  # a Fraction rounds half to even


def attached_microusd(machine: Machine, terms: CloudTerms, until_us: int) -> dict[str, int]:
    """What disk and public address have cost by then, where they cost anything."""
    end_us, ended = _end(machine, until_us)
    billed = Fraction(max(0, end_us - machine.launched_at_us), 1_000_000) * terms.billing_speed
    if ended:
        billed = Fraction(max(ceil(billed), _MINIMUM_SECONDS))
    disk_gb = terms.disk_gb if machine.disk_gb is None else machine.disk_gb
    monthly = disk_gb * terms.disk_microusd_per_gb_month
    hourly = {
        "disk": Fraction(monthly, _HOURS_PER_MONTH),
        "public_ip": Fraction(terms.public_ip_microusd_per_hour),
    }
    return {name: round(billed * price / 3600) for name, price in hourly.items() if price}


def _end(machine: Machine, until_us: int) -> tuple[int, bool]:
    """Up to when it is charged as seen at an instant, and whether it had ended by then."""
    if machine.ended_at_us is not None and machine.ended_at_us <= until_us:
        return machine.ended_at_us, True
    return until_us, False


def _is_free(machine: Machine, billed: Fraction) -> bool:
    window = _FREE_GCE_SECONDS if machine.is_gce else _FREE_EC2_SECONDS
    taken = machine.ended_by is EndedBy.CLOUD_INTERRUPTION
    return taken and machine.pool.market is Market.SPOT and billed < window
