"""How each cloud counts machine time: minimum, granularity, waiver, which spot price applies.

Lives here: the rules as data, by id. Not here: applying them (`billing`), or the prices.

Sources: per-second billing with a 60 s minimum, AWS "Announcing Amazon EC2 per second billing"
(2017-10-02) and Google Compute Engine pricing; no charge when Amazon EC2 interrupts in the first
hour, EC2 User Guide "Billing for interrupted Spot Instances"; no charge when a Compute Engine VM
is preempted in its first minute, "Spot VMs" pricing notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from app.domain.market.attachments import HOURS_PER_MONTH
from app.domain.market.offer import Market


class SpotPricing(StrEnum):
    """Which spot price a second pays."""

    PIECEWISE = "piecewise"  # the price in effect in that second (current AWS wording)
    HOUR_START = "hour_start"  # the price at the start of each instance-hour (wording of 2017)


@dataclass(frozen=True, slots=True)
class BillingRules:
    """How machine time becomes charged time. All durations are billed seconds.

    `billing_speed` is how many billed seconds pass in one wall second: 1, except on the local
    provider, where a demonstration may run the bill's clock faster. Minimum, granularity and
    waiver window are all compared after that multiplication.
    `free_if_interrupted_within_seconds` is exclusive: a full first hour is paid.
    `hours_per_month` turns a price per GB-month into one per hour.
    """

    id: str
    minimum_seconds: int = 60
    granularity_seconds: int = 1
    free_if_interrupted_within_seconds: int = 0
    waiver_market: Market = Market.SPOT
    spot_pricing: SpotPricing = SpotPricing.PIECEWISE
    billing_speed: Fraction = Fraction(1)
    hours_per_month: int = HOURS_PER_MONTH

    def __post_init__(self) -> None:
        if self.billing_speed <= 0:
            raise ValueError(f"billing rules {self.id}: billing_speed must be positive")
        if self.granularity_seconds < 1 or self.minimum_seconds < 0 or self.hours_per_month < 1:
            raise ValueError(
                f"billing rules {self.id}: granularity_seconds and hours_per_month are at least 1, "
                "minimum_seconds at least 0"
            )

    def at_speed(self, billing_speed: Fraction | int) -> BillingRules:
        """These rules with the bill's clock running `billing_speed` times as fast."""
        return replace(self, billing_speed=Fraction(billing_speed))


REGION_SILENCE_SECONDS: Final = 86_400
"""So long after a machine's end its region's prices are waited for while others are quoted."""

EC2_RULES = BillingRules(id="ec2", free_if_interrupted_within_seconds=3600)
GCE_RULES = BillingRules(id="gce", free_if_interrupted_within_seconds=60)

RULES: Mapping[str, BillingRules] = MappingProxyType(
    {rules.id: rules for rules in (EC2_RULES, GCE_RULES)}
)


def rules_for(rule_id: str) -> BillingRules:
    """The rules with this id. Raises LookupError that names the known ids."""
    try:
        return RULES[rule_id]
    except KeyError:
        known = ", ".join(sorted(RULES))
        raise LookupError(f"no billing rules '{rule_id}'; known: {known}") from None
