"""A launch: what must be known before it, the one call, and what its answer means.

Source: CreateFleet and "Ensuring idempotency" in EC2's API reference. Not here: the translation of
orders and answers (`fleet_request`), or machines that run (`provider`).
"""

from __future__ import annotations

import gzip
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from cachetools import FIFOCache

from app.adapters.call_pace import CallPace
from app.adapters.providers.aws.client.aws_errors import code_of
from app.adapters.providers.aws.client.aws_settings import ORDER_TAG, own_prefix
from app.adapters.providers.aws.client.clients import QUESTION_SECONDS, AwsClients
from app.adapters.providers.aws.client.region_facts import RegionFacts
from app.adapters.providers.aws.machines.fleet_request import (
    LEAST_MAX_PRICE_MICROUSD,
    FleetOverride,
    fleet_request,
    fleet_result,
    order_digest,
)
from app.adapters.providers.aws.machines.launch_template import LaunchTemplates, has_one_interface
from app.adapters.providers.aws.machines.quotas import quota_name
from app.adapters.providers.boot_script import USER_DATA_BYTES_MAX
from app.domain.market.machine_catalog import MachineCatalog
from app.domain.market.offer import Market, Pool
from app.domain.units.durations import format_duration
from app.ports.cloud_provider import (
    AcceptedMachine,
    CloudMachine,
    LaunchOrder,
    LaunchOutcomeUnknown,
    LaunchResult,
    MachineState,
    PoolBid,
    PoolRefusal,
    ProviderError,
    RefusalKind,
)

log = logging.getLogger(__name__)

PREPARE_SECONDS: Final = 2.0 * QUESTION_SECONDS
"""How long the questions before a launch may take; most are answered from memory."""

_REMEMBERED_MAX: Final = 2_000
_TOKEN_MAX: Final = 64
_LEAST_COUNT_MAX: Final = 1_000
_NO_GROUP: Final = "InvalidPlacementGroup.Unknown"

Remembered = tuple[str, list[FleetOverride], dict[str, Any]]


class FleetLauncher:
    """Launches of one deployment; safe for threads."""

    def __init__(
        self,
        clients: AwsClients,
        facts: RegionFacts,
        templates: LaunchTemplates,
        catalog: MachineCatalog,
        deployment_id: str,
        public_ip: bool,
        render: Callable[[Mapping[str, str]], str],
        find: Callable[[str, str], tuple[CloudMachine, ...]],
    ) -> None:
        self._clients = clients
        self._facts = facts
        self._templates = templates
        self._catalog = catalog
        self._public_ip = public_ip
        self._deployment_id = deployment_id
        self._render = render
        self._find = find
        self._pace = CallPace()
        self._lock = threading.Lock()
        # A repeated call must be equal to the letter, or EC2 refuses the token: the first one is
        # kept, for subnets and images may have changed between the two.
        self._asked = FIFOCache[str, Remembered](_REMEMBERED_MAX)
        self._groups: set[tuple[str, str]] = set()

    def launch(self, order: LaunchOrder) -> LaunchResult:
        """See the port."""
        region = _region_of(order)
        begun = time.monotonic()
        earlier = self._remembered(order)
        if earlier is None:
            places, refused = self._places(order, region)
            if not places:
                return LaunchResult((), refused)
            request = fleet_request(order, places, self._user_data(order), self._deployment_id)
            self._remember(order, places, request)
        else:
            _, places, request = earlier
            refused = ()
        if time.monotonic() - begun > PREPARE_SECONDS:
            # The call would outlast its time. What was asked is known now: the next try is quick.
            text = (
                f"AWS took more than {format_duration(PREPARE_SECONDS)} to answer before the launch"
            )
            raise ProviderError(RefusalKind.UNAVAILABLE, text)
        try:
            with self._pace.turn(region):
                reply = self._clients.change(
                    "ec2", region, "create_fleet", starts_machines=True, **request
                )
        except ProviderError as error:
            return self._not_answered(order, region, error, places)
        if "FleetId" not in reply:
            text = f"create_fleet in {region}: the answer names no fleet, so it is not EC2's"
            raise LaunchOutcomeUnknown(text)
        if any(one.get("ErrorCode") == _NO_GROUP for one in reply.get("Errors", [])):
            self._forget_groups(region)
        result = fleet_result(reply, order, places)
        if 0 < len(result.accepted) < order.min_count:
            # Against EC2's promise. They are told, so that they get rows, and are given back by
            # whoever gives back machines: EC2 may not know them yet.
            log.warning("EC2 started %d of at least %d", len(result.accepted), order.min_count)
        return LaunchResult(result.accepted, refused + result.refused)

    def forget(self, region: str) -> None:
        """Templates and groups of the region were removed: the next launch makes them anew."""
        self._templates.forget(region)
        self._forget_groups(region)

    def _forget_groups(self, region: str) -> None:
        with self._lock:
            self._groups = {one for one in self._groups if one[0] != region}

    def _remembered(self, order: LaunchOrder) -> Remembered | None:
        with self._lock:
            earlier = self._asked.get(order.client_token)
        if earlier is not None and earlier[0] != order_digest(order):
            raise ProviderError(RefusalKind.REJECTED, _other_order(order))
        return earlier

    def _remember(
        self, order: LaunchOrder, places: list[FleetOverride], request: dict[str, Any]
    ) -> None:
        with self._lock:
            self._asked[order.client_token] = (order_digest(order), places, request)

    def _places(
        self, order: LaunchOrder, region: str
    ) -> tuple[list[FleetOverride], tuple[PoolRefusal, ...]]:
        subnets, offered = self._facts.subnets(region), self._facts.offered(region)
        places: list[FleetOverride] = []
        refused: list[PoolRefusal] = []
        for bid in order.bids:
            pool = bid.pool
            if (pool.instance_type, pool.zone) not in offered:
                text = f"EC2 does not offer {pool.instance_type} in {pool.zone}"
                refused.append(PoolRefusal(pool, RefusalKind.UNSUPPORTED, text))
            elif pool.zone not in subnets:
                text = f"there is no subnet for machines in {pool.zone}"
                refused.append(PoolRefusal(pool, RefusalKind.UNSUPPORTED, text))
            elif (problem := self._facts.image_problem(pool.instance_type)) is not None:
                refused.append(PoolRefusal(pool, RefusalKind.UNSUPPORTED, problem))
            elif _too_low(bid, order.market):
                text = "EC2 takes no maximum price of $0.001 or less"
                refused.append(PoolRefusal(pool, RefusalKind.PRICE_TOO_LOW, text))
            elif self._public_ip and not has_one_interface(self._efa_cards(order, pool)):
                text = (
                    f"EC2 gives {pool.instance_type} with its several network cards no public "
                    "address: unset LOWTIDE_AWS_PUBLIC_IP and give the subnets a NAT"
                )
                refused.append(PoolRefusal(pool, RefusalKind.UNSUPPORTED, text))
            else:
                places.append(self._place(order, bid, subnets[pool.zone]))
        return places, tuple(refused)

    def _efa_cards(self, order: LaunchOrder, pool: Pool) -> tuple[int, ...]:
        """None for a lone machine, which talks to no other: it is the easier to get without."""
        found = self._catalog.get(pool.instance_type)
        return () if found is None or order.is_alone else found.efa_cards

    def _place(self, order: LaunchOrder, bid: PoolBid, subnet_id: str) -> FleetOverride:
        pool, cards = bid.pool, self._efa_cards(order, bid.pool)
        found = self._catalog.get(pool.instance_type)
        return FleetOverride(
            bid,
            subnet_id,
            self._templates.name_for(pool.region, cards, order.disk_gb, pool.instance_type),
            self._placement_group(pool.region, pool.zone) if cards else None,
            "" if found is None else quota_name(found, pool.market),
        )

    def _placement_group(self, region: str, zone: str) -> str:
        """The zone's cluster group: machines with EFA stand close together in it."""
        name = f"{own_prefix(self._deployment_id)}{zone}"
        with self._lock:
            known = (region, name) in self._groups
        if not known:
            try:
                self._clients.change(
                    "ec2", region, "create_placement_group", GroupName=name, Strategy="cluster"
                )
            except ProviderError as error:
                if error.__cause__ is None or code_of(error.__cause__) != (
                    "InvalidPlacementGroup.Duplicate"
                ):
                    raise
            with self._lock:
                self._groups.add((region, name))
        return name

    def _user_data(self, order: LaunchOrder) -> bytes:
        try:
            script = self._render(order.user_data).encode()
        except ValueError as error:
            raise ProviderError(RefusalKind.REJECTED, f"user data: {error}") from error
        if len(script) > USER_DATA_BYTES_MAX:
            # cloud-init unpacks it ("User data formats": gzip compressed content).
            script = gzip.compress(script, mtime=0)
        if len(script) > USER_DATA_BYTES_MAX:
            text = f"the boot script has {len(script):,} bytes, EC2 takes {USER_DATA_BYTES_MAX:,}"
            raise ProviderError(RefusalKind.REJECTED, text)
        return script

    def _not_answered(
        self, order: LaunchOrder, region: str, error: ProviderError, places: list[FleetOverride]
    ) -> LaunchResult:
        code = "" if error.__cause__ is None else code_of(error.__cause__)
        if error.kind is RefusalKind.UNSUPPORTED:
            pools = [one.bid.pool for one in places]
            named = [one for one in pools if one.instance_type in str(error)]
            return LaunchResult(
                (), tuple(PoolRefusal(one, error.kind, str(error)) for one in named or pools)
            )
        if code.startswith("InvalidLaunchTemplateName.NotFound"):
            self._templates.forget(region)
            with self._lock:
                self._asked.pop(order.client_token, None)
            text = f"{error}: it is made again by the next try"
            raise ProviderError(RefusalKind.UNAVAILABLE, text) from error
        if code != "IdempotentParameterMismatch":
            raise error
        # An earlier call of another process reached EC2, with what it knew of subnets or images
        # then. What that call started carries the order's fingerprint.
        found = self._find(region, order.client_token)
        if not found:
            text = f"{error}: an earlier call used this token, and shows no machines yet"
            raise LaunchOutcomeUnknown(text) from error
        if any(one.tags.get(ORDER_TAG) != order_digest(order) for one in found):
            raise ProviderError(RefusalKind.REJECTED, _other_order(order)) from error
        gone = (MachineState.TERMINATED, MachineState.SHUTTING_DOWN)
        alive = [one for one in found if one.state not in gone]
        return LaunchResult(
            tuple(
                AcceptedMachine(
                    one.provider_instance_id, one.pool, one.launched_at, one.launched_source
                )
                for one in alive
            )
        )


def _region_of(order: LaunchOrder) -> str:
    regions = {bid.pool.region for bid in order.bids}
    if len(regions) != 1 or order.count < 1 or not 1 <= order.min_count <= _LEAST_COUNT_MAX:
        text = f"a launch needs bids in one region and a count, not {len(regions)} regions"
        raise ProviderError(RefusalKind.REJECTED, text)
    token = order.client_token
    if not token or len(token) > _TOKEN_MAX or not token.isascii():
        text = f"a client token has 1 to {_TOKEN_MAX} ASCII characters, not {len(token)}"
        raise ProviderError(RefusalKind.REJECTED, text)
    return regions.pop()


def _too_low(bid: PoolBid, market: Market) -> bool:
    limit = bid.max_price_microusd_per_hour
    return market is Market.SPOT and limit is not None and limit <= LEAST_MAX_PRICE_MICROUSD


def _other_order(order: LaunchOrder) -> str:
    return f"the token {order.client_token} was used for another order before"
