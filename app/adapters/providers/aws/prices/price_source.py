"""EC2's prices behind the price port: spot as it moves, on-demand as listed.

Source: DescribeSpotPriceHistory, which gives every change of a window with the last one before it.
Not here: on-demand's list (`on_demand_prices`), or billing by these prices (`billing.billing`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from app.adapters.providers.aws.client.attachment_prices import attachments_in
from app.adapters.providers.aws.client.aws_settings import CLOUD, PROVIDER, AwsSettings
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.region_facts import RegionFacts
from app.adapters.providers.aws.machines.launch_template import has_one_interface
from app.adapters.providers.aws.prices.on_demand_prices import ListPrice, OnDemandPrices
from app.adapters.providers.aws.prices.placement_scores import placement_scores
from app.adapters.providers.machine_images import booted_hardware
from app.domain.market.attachments import Attachments
from app.domain.market.machine_catalog import MachineCatalog
from app.domain.market.offer import Market, Offer, Pool
from app.domain.market.price_history import Step
from app.domain.units.errors import InvalidValue
from app.domain.units.money import price_microusd
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.ports.pool_past import PoolPast
from app.ports.price_source import PriceChange

T = TypeVar("T")

log = logging.getLogger(__name__)

HISTORY_DAYS_MAX: Final = 90
_FIRST_LOOK_BACK: Final = timedelta(days=1)
"""Of a region not asked before by this process: it may have been silent for that long."""

SPOT_SOURCE: Final = "DescribeSpotPriceHistory"
_PRODUCT: Final = "Linux/UNIX"
_PAGES_MAX: Final = 500


def _now() -> datetime:
    return datetime.now(UTC)


class AwsPriceSource:
    """Prices of the catalog's types in the zones that have a subnet."""

    def __init__(
        self,
        settings: AwsSettings,
        clients: AwsClients,
        facts: RegionFacts,
        catalog: MachineCatalog,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._facts = facts
        self._catalog = catalog
        self._now = now
        self._on_demand = OnDemandPrices(clients)
        self._left_out: set[str] = set()
        self._told_until: dict[str, datetime] = {}
        self._quoted: set[str] = set()

    def offers(self) -> tuple[Offer, ...]:
        """Every pool of every region; EC2 does not say how many machines are to be had.

        A region that does not answer is left out: its older quotes age in sight of all. Raises
        ProviderError where none answers.
        """
        quoted_at = self._now()
        self._quoted = set()
        found = self._each_region(lambda region: self._offers_in(region, quoted_at))
        return tuple(sorted(found, key=lambda offer: offer.pool))

    def _offers_in(self, region: str, quoted_at: datetime) -> list[Offer]:
        listed = self._on_demand.of(region)
        spot = {
            change.pool: change.microusd_per_hour
            for change in self._spot_changes(region, quoted_at, quoted_at)
        }
        offers: list[Offer] = []
        for pool in self._pools(region, listed):
            price = listed[pool.instance_type]
            if pool.market is Market.SPOT:
                if pool in spot:
                    offers.append(self._offer(pool, spot[pool], price, SPOT_SOURCE, quoted_at))
                continue
            per_hour = price.microusd_per_hour
            offers.append(self._offer(pool, per_hour, price, price.source, quoted_at))
        self._quoted.add(region)
        return offers

    def changes_since(self, since: datetime) -> tuple[PriceChange, ...]:
        """Changes after `since` and the price in effect then, at most 90 days back.

        Of a region that did not answer meanwhile, from its own last answer on. Raises
        ProviderError where none answers, or not one whose offers were told just now: a bill
        would be closed by them without its last prices.
        """
        until = self._now()
        changes = self._each_region(
            lambda region: self._changes_in(region, since, until), needed=self._quoted
        )
        return tuple(sorted(changes, key=lambda change: (change.pool, change.at)))

    def _changes_in(self, region: str, since: datetime, until: datetime) -> list[PriceChange]:
        told_until = self._told_until.get(region, until - _FIRST_LOOK_BACK)
        start = max(min(since, told_until), until - timedelta(days=HISTORY_DAYS_MAX))
        listed = self._on_demand.of(region)
        pools = set(self._pools(region, listed))
        spot = self._spot_changes(region, start, until)
        self._told_until[region] = until
        return [change for change in spot if change.pool in pools] + [
            PriceChange(
                pool,
                listed[pool.instance_type].effective_at,
                listed[pool.instance_type].microusd_per_hour,
                listed[pool.instance_type].source,
            )
            for pool in pools
            if pool.market is Market.ON_DEMAND
        ]

    def _each_region(self, ask: Callable[[str], list[T]], needed: Collection[str] = ()) -> list[T]:
        """What the regions answer; raises ProviderError where none does, or not a needed one."""
        found: list[T] = []
        failed: list[ProviderError] = []
        for region in sorted(self._settings.regions):
            try:
                found += ask(region)
            except ProviderError as error:
                if region in needed:
                    raise
                failed.append(error)
                log.warning("prices of %s stay as they were: %s", region, error)
        if len(failed) == len(self._settings.regions):
            raise failed[0]
        return found

    @property
    def past_changes(self) -> bool:
        """What follows the first answer comes with the prices of now."""
        return False

    def past_of(self, pools: Sequence[Pool], since: datetime) -> tuple[PoolPast, ...]:
        """Spot prices at most 90 days back: of these pools, and of the same types in all zones.

        An answer covers a region's zones, so that the next question need not ask for them again.
        Raises ProviderError.
        """
        until = self._now()
        start = max(since, until - timedelta(days=HISTORY_DAYS_MAX))
        found: dict[Pool, list[Step]] = {pool: [] for pool in pools}
        for region in sorted({pool.region for pool in pools}):
            types = sorted({pool.instance_type for pool in pools if pool.region == region})
            beside = self._pools(region, self._on_demand.of(region))
            found |= {
                pool: []
                for pool in beside
                if pool.market is Market.SPOT and pool.instance_type in types
            }
            for change in self._spot_changes(region, start, until, types):
                if change.pool in found:
                    found[change.pool].append((change.at, change.microusd_per_hour))
        return tuple(
            PoolPast(pool, tuple(sorted(steps)), SPOT_SOURCE) for pool, steps in found.items()
        )

    def scores_of(self, pools: Sequence[Pool]) -> Mapping[Pool, int]:
        """EC2's scores of regions for the types of these pools. Raises ProviderError."""
        regions = tuple(sorted({pool.region for pool in pools}))
        types = tuple(sorted({pool.instance_type for pool in pools}))
        scores = placement_scores(self._clients, regions, types, 1)
        return {pool: scores[pool.region] for pool in pools if pool.region in scores}

    def _pools(self, region: str, listed: Mapping[str, ListPrice]) -> Iterator[Pool]:
        """Pools of known types that are offered where we have a subnet, and have a price."""
        subnets, offered = self._facts.subnets(region), self._facts.offered(region)
        for name, zone in sorted(offered):
            machine = self._catalog.get(name)
            if machine is None or zone not in subnets or name not in listed:
                continue
            if self._settings.public_ip and not has_one_interface(machine.efa_cards):
                self._tell_once(name)
                continue
            if machine.spot:
                yield Pool(PROVIDER, region, zone, name, Market.SPOT)
            yield Pool(PROVIDER, region, zone, name, Market.ON_DEMAND)

    def _tell_once(self, name: str) -> None:
        """A gang's machine with all its cards has no public address, and could reach nobody."""
        if name not in self._left_out:
            self._left_out.add(name)
            log.warning(
                "%s is not offered: EC2 gives a machine with several network cards no public "
                "address; unset LOWTIDE_AWS_PUBLIC_IP and give the subnets a NAT",
                name,
            )

    def _offer(
        self, pool: Pool, per_hour: int, listed: ListPrice, source: str, at: datetime
    ) -> Offer:
        machine = self._catalog.get(pool.instance_type)
        if machine is None:
            raise LookupError(f"{pool.instance_type} is not in the catalog")
        return Offer(
            pool=pool,
            hardware=booted_hardware(PROVIDER, machine, self._settings.image_for(machine.gpu)),
            price_microusd_per_hour=per_hour,
            on_demand_microusd_per_hour=listed.microusd_per_hour,
            cloud=CLOUD,
            quoted_at=at,
            price_source=source,
            attachments=self._attachments(pool.region),
        )

    def _attachments(self, region: str) -> Attachments:
        """What a machine has there; no volume is smaller than its image, where that is known."""
        size = self._settings.root_volume_gb
        try:
            size = max(size, self._facts.image(region).root_gb)
        except ProviderError:
            pass  # a launch would say so
        return attachments_in(
            region,
            size,
            public_ip=self._settings.public_ip,
            throughput_mbps=self._settings.volume_throughput_mbps,
        )

    def _spot_changes(
        self, region: str, start: datetime, end: datetime, types: Sequence[str] = ()
    ) -> list[PriceChange]:
        """Spot prices from the one in effect at `start`, page by page; of all types without any."""
        asked: dict[str, Any] = {
            "StartTime": start,
            "EndTime": end,
            "InstanceTypes": list(types) or [one.name for one in self._catalog.types if one.spot],
            "ProductDescriptions": [_PRODUCT],
            "MaxResults": 1_000,
        }
        found: list[PriceChange] = []
        for _ in range(_PAGES_MAX):
            page = self._clients.ask("ec2", region, "describe_spot_price_history", **asked)
            rows = page.get("SpotPriceHistory", [])
            read = (_change(row, region) for row in rows if row["ProductDescription"] == _PRODUCT)
            found += [change for change in read if change is not None]
            asked["NextToken"] = page.get("NextToken")
            if not asked["NextToken"]:
                return found
        text = f"describe_spot_price_history in {region}: more than {_PAGES_MAX} pages"
        raise ProviderError(RefusalKind.UNAVAILABLE, text)


def _change(row: Mapping[str, Any], region: str) -> PriceChange | None:
    """One row; None, with a line in the log, where its price is none."""
    pool = Pool(PROVIDER, region, row["AvailabilityZone"], row["InstanceType"], Market.SPOT)
    try:
        price = price_microusd(row["SpotPrice"])
    except InvalidValue as error:
        log.warning("%s: the price of %s %s; it is left out", SPOT_SOURCE, pool.key, error)
        return None
    return PriceChange(pool, row["Timestamp"].astimezone(UTC), price, SPOT_SOURCE)
