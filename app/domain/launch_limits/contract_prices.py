"""Prices that a contract with a cloud sets in place of its list prices.

Lives here: the form of the file, and what a pool then costs; integer micro-USD. Not here: list
prices (`ports.price_source`), or where the file is (`adapters.contract_file`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Final

from pydantic import Field, ValidationError

from app.domain.market.offer import Market, Offer, Pool
from app.domain.spec.infra_choice import KNOWN_PROVIDERS
from app.domain.spec.job_spec_problems import spec_error
from app.domain.spec.job_spec_values import Budget
from app.domain.spec.spec_value import SpecModel, Written, kind_of, nearest, refusal
from app.domain.units.apportionment import divide_half_even
from app.domain.units.errors import SpecError
from app.domain.units.money import format_usd

PRICES_MAX: Final = 1_000
_WHOLE: Final = 10_000
"""Basis points of a list price."""


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """What is paid in a pool: a price of its own, or so many basis points less than listed."""

    discount: int = 0
    microusd_per_hour: int | None = None

    def paid(self, listed_microusd: int) -> int:
        """What a list price becomes; a discount rounds half to even."""
        if self.microusd_per_hour is not None:
            return self.microusd_per_hour
        return divide_half_even(listed_microusd * (_WHOLE - self.discount), _WHOLE)

    @property
    def words(self) -> str | None:
        """For people: "12 % off", "a price of its own of $21.50"; None for list prices."""
        if self.microusd_per_hour is not None:
            return f"a price of its own of {format_usd(self.microusd_per_hour)}"
        return f"{Decimal(self.discount) / 100:f} % off" if self.discount else None


LISTED: Final = PriceTerms()


def _read_percent(written: object) -> int:
    """Basis points of a percentage with at most two decimals."""
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise refusal(f"must be a percentage like 12 or 7.5, not {kind_of(written)}")
    points = Decimal(str(written)) * 100
    if not 0 <= points < _WHOLE or points != int(points):
        raise refusal("must be at least 0 and less than 100, with at most two decimals")
    return int(points)


def _read_cloud(written: object) -> str:
    if not isinstance(written, str) or written not in KNOWN_PROVIDERS:
        hint = nearest(str(written), KNOWN_PROVIDERS)
        known = ", ".join(KNOWN_PROVIDERS)
        raise refusal(f"{str(written)[:40]!r} is not a cloud; use {known}{hint}")
    return written


Percent = Annotated[int, Written(_read_percent, {"type": "number", "minimum": 0, "maximum": 100})]
Cloud = Annotated[str, Written(_read_cloud, {"enum": list(KNOWN_PROVIDERS)})]
_Name = Annotated[str, Field(min_length=1, max_length=100)]


class Discount(SpecModel):
    """Percent off the list prices of a cloud, by market; that of on-demand holds for disks and
    addresses, too.
    """

    spot: Percent = 0
    on_demand: Percent = 0


class NegotiatedPrice(SpecModel):
    """What an hour of a machine costs, in one region or (None) in all."""

    cloud: Cloud
    instance_type: _Name
    market: Annotated[Market, Field(strict=False)] = Market.ON_DEMAND
    region: _Name | None = None
    microusd_per_hour: Budget = Field(alias="usd_per_hour")

    @property
    def place(self) -> tuple[str, str, Market, str | None]:
        """Which machines it is for."""
        return self.cloud, self.instance_type, self.market, self.region


def _read_discounts(written: object) -> dict[str, Discount]:
    """By cloud; a number holds for both markets."""
    if not isinstance(written, Mapping):
        raise refusal(f"must be a mapping of clouds, like {{aws: 12}}, not {kind_of(written)}")
    found: dict[str, Discount] = {}
    for name, given in written.items():
        cloud = _read_cloud(name)
        if isinstance(given, Mapping):
            try:
                found[cloud] = Discount.model_validate(dict(given))
            except ValidationError as error:
                first = spec_error(error, {"": Discount}).problems[0]
                raise refusal(f"{cloud}: {first.message}") from error
        else:
            both = _read_percent(given)
            found[cloud] = Discount.model_construct(spot=both, on_demand=both)
    return found


_DISCOUNTS_FORM: Final = {"type": "object", "examples": [{"aws": 12}]}


@dataclass(frozen=True, slots=True)
class RentedMachines:
    """Which machines of a cloud may be rented; None where that is not known."""

    instance_types: frozenset[str] | None = None
    regions: frozenset[str] | None = None


class ContractPrices(SpecModel):
    """discounts: by cloud. prices: of single types, which no discount is taken off again."""

    discounts: Annotated[dict[str, Discount], Written(_read_discounts, _DISCOUNTS_FORM)] = Field(
        default_factory=dict
    )
    prices: Annotated[list[NegotiatedPrice], Field(max_length=PRICES_MAX)] = Field(
        default_factory=list
    )

    def terms_of(self, pool: Pool) -> PriceTerms:
        """What holds for a pool: a price of its region, else one of its type, else a discount."""
        for region in (pool.region, None):
            place = (pool.provider, pool.instance_type, pool.market, region)
            for price in self.prices:
                if price.place == place:
                    return PriceTerms(microusd_per_hour=price.microusd_per_hour)
        given = self.discounts.get(pool.provider)
        if given is None:
            return LISTED
        return PriceTerms(given.spot if pool.market is Market.SPOT else given.on_demand)

    def unmatched(self, rented: Mapping[str, RentedMachines]) -> Iterator[str]:
        """Why entries change nothing, as sentences without a full stop. rented: by cloud."""
        for cloud in sorted(self.discounts.keys() - rented.keys()):
            yield f"discounts.{cloud} changes nothing: no machines are rented at {cloud}"
        for index, price in enumerate(self.prices):
            why = _why_unmatched(price, rented)
            if why is not None:
                yield f"prices.{index} changes nothing: {why}"

    def paid(self, offer: Offer) -> Offer:
        """The offer at what is paid, with what is listed beside it."""
        terms = self.terms_of(offer.pool)
        on_demand = self.terms_of(replace(offer.pool, market=Market.ON_DEMAND))
        given = self.discounts.get(offer.pool.provider)
        attachments = offer.attachments
        if attachments is not None and given is not None and given.on_demand:
            attachments = attachments.at(PriceTerms(given.on_demand).paid)
        return replace(
            offer,
            price_microusd_per_hour=terms.paid(offer.price_microusd_per_hour),
            on_demand_microusd_per_hour=on_demand.paid(offer.on_demand_microusd_per_hour),
            attachments=attachments,
            list_microusd_per_hour=offer.price_microusd_per_hour if terms.words else None,
            price_terms=terms.words,
        )


def _why_unmatched(price: NegotiatedPrice, rented: Mapping[str, RentedMachines]) -> str | None:
    cloud, name, _, region = price.place
    known = rented.get(cloud)
    if known is None:
        return f"no machines are rented at {cloud}"
    types, regions = known.instance_types, known.regions
    if types is not None and name not in types:
        return f"{cloud} has no machine type {name!r} that is known{nearest(name, types)}"
    if region is not None and regions is not None and region not in regions:
        hint = nearest(region, regions)
        return f"no machines are rented in the region {region!r} of {cloud}{hint}"
    return None


NO_CONTRACT: Final = ContractPrices()


def parse_contract(data: object) -> ContractPrices:
    """The prices from parsed YAML. Raises SpecError listing everything that is wrong."""
    if not isinstance(data, Mapping):
        raise SpecError.of(f"must be a mapping with discounts and prices, not {kind_of(data)}")
    try:
        found = ContractPrices.model_validate(dict(data))
    except ValidationError as error:
        raise spec_error(error, {"": ContractPrices}) from error
    places = [price.place for price in found.prices]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        named = "/".join(str(part) for part in twice if part is not None)
        raise SpecError.of(f"prices: {named} has two prices; keep one of them")
    return found
