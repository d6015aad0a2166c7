"""The simulated clouds' own bill, from their own records.

Written apart from the ledger's arithmetic on purpose: that both agree to the micro-dollar only
says something when neither calls the other. The rules are the published ones: per second, at
least 60 s, a begun second counts whole once the machine has ended; a spot second pays the price
in effect in it; nothing is owed when EC2 takes a spot machine in its first hour, or Compute
Engine in its first minute; disk and address are owed all the same, where they have a price; one
rounding per machine and thing charged, half to even.
"""

from __future__ import annotations

from fractions import Fraction

from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.simulation.simulated.simulated_machine import SimulatedMachine
from app.simulation.simulated.simulated_market import (
    ADDRESS_MICROUSD_PER_HOUR,
    DISK_GB,
    DISK_MICROUSD_PER_GB_MONTH,
    WITH_ATTACHMENTS,
    PoolPath,
)

_SECOND_US = 1_000_000
_MINIMUM_US = 60 * _SECOND_US
_FREE_US = {"ec2": 3_600 * _SECOND_US, "gce": 60 * _SECOND_US}
_HOUR_US = 3_600 * _SECOND_US
_HOURS_PER_MONTH = 730


def invoice(machine: SimulatedMachine, path: PoolPath, now_us: int) -> dict[str, int]:
    """What the machine has cost up to now, by what is charged."""
    said = {"compute": machine_microusd(machine, path, now_us)}
    if machine.cloud in WITH_ATTACHMENTS:
        ended = machine.ended_us is not None
        end_us = now_us if machine.ended_us is None else machine.ended_us
        there_us = max(0, end_us - machine.launched_us)
        if ended:
            there_us = max(_MINIMUM_US, -(-there_us // _SECOND_US) * _SECOND_US)
        hours = Fraction(there_us, _HOUR_US)
        month = Fraction(DISK_GB * DISK_MICROUSD_PER_GB_MONTH, _HOURS_PER_MONTH)
        said["disk"] = round(hours * month)
        said["public_ip"] = round(hours * ADDRESS_MICROUSD_PER_HOUR)
    return said


def machine_microusd(machine: SimulatedMachine, path: PoolPath, now_us: int) -> int:
    """What its compute has cost up to now."""
    ended = machine.ended_us is not None
    end_us = now_us if machine.ended_us is None else machine.ended_us
    ran_us = max(0, end_us - machine.launched_us)
    taken = machine.ended_by is EndedBy.CLOUD_INTERRUPTION
    spot = machine.pool.market is Market.SPOT
    if ended and taken and spot and ran_us < _FREE_US[machine.cloud]:
        return 0
    micro_hours, last_price = 0, path.price_at(machine.launched_us)
    at_us = machine.launched_us
    while at_us < end_us:
        last_price = path.price_at(at_us)
        following = [time for time in path.times_us if time > at_us]
        until_us = min([end_us, *following[:1]])
        micro_hours += (until_us - at_us) * last_price
        at_us = until_us
    if ended:
        whole_us = -(-ran_us // _SECOND_US) * _SECOND_US
        micro_hours += (max(whole_us, _MINIMUM_US) - ran_us) * last_price
    return round(Fraction(micro_hours, _HOUR_US))
