"""Why a cloud did not give a machine, and what follows: one table, read by whoever launches.

Pure data and matching. Not here: which code of a cloud is which kind (the providers), and the
launch that was refused (`launch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from app.domain.market.offer import Pool


class RefusalKind(StrEnum):
    """Why a cloud did not give a machine, and so what to do next (`REFUSAL_RULES`)."""

    NO_CAPACITY = "no_capacity"
    PRICE_TOO_LOW = "price_too_low"  # the market moved above the highest price we pay
    QUOTA = "quota"
    THROTTLED = "throttled"
    UNSUPPORTED = "unsupported"  # the zone has no such type, or the type no such feature
    UNAVAILABLE = "unavailable"  # the cloud itself failed
    DENIED = "denied"  # credentials or permissions
    REJECTED = "rejected"  # our configuration is wrong


class RefusalScope(StrEnum):
    """How far a refusal reaches beyond the pool that was asked for, narrowest first.

    `family`: types of one family in the region, as quotas are counted. `provider`: everything
    that this cloud rents to us.
    """

    POOL = "pool"
    ZONE = "zone"
    FAMILY = "family"
    REGION = "region"
    PROVIDER = "provider"


class NextStep(StrEnum):
    """What the launch does next."""

    NEXT_POOL = "next_pool"  # another pool at once
    SAME_AGAIN = "same_again"  # the same call with the same token, after a growing wait
    ASK_A_PERSON = "ask_a_person"  # another pool while one is left, else the job stops and says why


class JobVerdict(StrEnum):
    """What becomes of a job that only a person can help."""

    WAITS = "waits"  # paused, with the cloud's sentence: what is wrong lies outside the job
    FAILS = "fails"  # the same order would be refused for ever


@dataclass(frozen=True, slots=True)
class RefusalRule:
    """One row of the table.

    cool_down_seconds: how long the pools within `scope` get no new launch. both_markets: spot
    and on-demand alike; quotas and capacity are counted apart.
    """

    step: NextStep
    scope: RefusalScope
    cool_down_seconds: int
    both_markets: bool = False
    verdict: JobVerdict | None = None


_NEXT, _AGAIN, _PERSON = NextStep.NEXT_POOL, NextStep.SAME_AGAIN, NextStep.ASK_A_PERSON

REFUSAL_RULES: Final[dict[RefusalKind, RefusalRule]] = {
    RefusalKind.NO_CAPACITY: RefusalRule(_NEXT, RefusalScope.POOL, 300),
    RefusalKind.PRICE_TOO_LOW: RefusalRule(_NEXT, RefusalScope.POOL, 300),
    # A cloud counts a machine that has just ended for some minutes more.
    RefusalKind.QUOTA: RefusalRule(_NEXT, RefusalScope.FAMILY, 600),
    # The cool-down holds once repeating was of no use, or where the call itself was answered.
    RefusalKind.THROTTLED: RefusalRule(_AGAIN, RefusalScope.POOL, 30),
    RefusalKind.UNAVAILABLE: RefusalRule(_AGAIN, RefusalScope.POOL, 30),
    RefusalKind.UNSUPPORTED: RefusalRule(_NEXT, RefusalScope.POOL, 86_400),
    RefusalKind.DENIED: RefusalRule(
        _PERSON, RefusalScope.PROVIDER, 600, both_markets=True, verdict=JobVerdict.WAITS
    ),
    # Images, subnets and templates are named per region.
    RefusalKind.REJECTED: RefusalRule(
        _PERSON, RefusalScope.REGION, 600, both_markets=True, verdict=JobVerdict.FAILS
    ),
}


def rule_of(kind: RefusalKind) -> RefusalRule:
    """The table's row for `kind`."""
    return REFUSAL_RULES[kind]


def family_of(instance_type: str) -> str:
    """The family of a type, by its name: `p3` of `p3.2xlarge`, `a3-megagpu` of `a3-megagpu-8g`."""
    if "." in instance_type:
        return instance_type.partition(".")[0]
    return instance_type.rpartition("-")[0] or instance_type


def covers(
    refused: Pool,
    scope: RefusalScope,
    other: Pool,
    *,
    both_markets: bool,
    quotas: Mapping[Pool, str] = MappingProxyType({}),
) -> bool:
    """Whether a refusal of `refused` that reaches as far as `scope` holds for `other` too.

    quotas: what counts the GPUs of a pool's type, "" or nothing where its family does.
    """
    if other.provider != refused.provider:
        return False
    if other.market is not refused.market and not both_markets:
        return False
    if scope is RefusalScope.PROVIDER:
        return True
    if other.region != refused.region:
        return False
    if scope is RefusalScope.REGION:
        return True
    if scope is RefusalScope.FAMILY:
        first, second = (
            quotas.get(one) or family_of(one.instance_type) for one in (refused, other)
        )
        return first == second
    if other.zone != refused.zone:
        return False
    return scope is RefusalScope.ZONE or other.instance_type == refused.instance_type
