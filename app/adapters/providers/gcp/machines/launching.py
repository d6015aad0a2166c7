"""Launches: one insert for each machine type of an order, until one gives machines.

A repeat is safe three times over: what carries the token's label is looked for first, request ids
follow from token and order, and so do names. Not here: bodies (`machine_request`), what errors
mean (`refusals`), placement policies (`placement_policies`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from google.cloud import compute_v1

from app.adapters.call_pace import CallPace
from app.adapters.providers.gcp.client.compute_api import ApiLost, ApiRefusal, ComputeApi, Deadline
from app.adapters.providers.gcp.client.gcp_settings import PLAIN_NOTICE_SECONDS, region_of
from app.adapters.providers.gcp.client.refusals import of_operation
from app.adapters.providers.gcp.machines.bid_groups import BidGroup, grouped, pools_named, too_dear
from app.adapters.providers.gcp.machines.machine_fittings import interfaces_of
from app.adapters.providers.gcp.machines.machine_request import (
    bulk_resource,
    labels_of,
    properties,
    with_type,
)
from app.adapters.providers.gcp.machines.machines import ListedVm, Machines
from app.adapters.providers.gcp.machines.pending_launch import PendingLaunch
from app.adapters.providers.gcp.machines.placement_policies import PlacementPolicies, without_policy
from app.adapters.providers.gcp.zones.vm_names import (
    DEPLOYMENT_LABEL,
    ORDER_LABEL,
    label_value,
    machine_names,
    order_digest,
    request_id,
    to_tag,
)
from app.domain.market.machine_catalog import MachineCatalog
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import (
    CloudMachine,
    LaunchOrder,
    LaunchOutcomeUnknown,
    LaunchResult,
    MachineState,
    PoolRefusal,
    ProviderError,
    RefusalKind,
    RefusalScope,
)

log = logging.getLogger(__name__)

NOTICE_VARIABLE: Final = "LOWTIDE_NOTICE_SECONDS"
_NOTICE_FIELD: Final = "preemptionNoticeDuration"
_POLICY_FIELDS: Final = ("resourcePolic", "placement")
_SERVER_ERRORS: Final = 500


@dataclass(frozen=True)
class LaunchPreferences:
    """What is asked for and done without where the API rejects it; `note` tells of that."""

    notice_seconds: int
    policy: str | None
    note: str = ""


class MachineLauncher:
    """Starts machines. `price_of`: a spot pool's price now, None where it is not known."""

    def __init__(
        self,
        api: ComputeApi,
        machines: Machines,
        catalog: MachineCatalog,
        deployment_id: Callable[[], str],
        render: Callable[[dict[str, str]], str],
        price_of: Callable[[Pool], int | None],
    ) -> None:
        self._api = api
        self._machines = machines
        self._catalog = catalog
        self._deployment_id = deployment_id
        self._render = render
        self._price_of = price_of
        self._pace = CallPace()
        self._policies = PlacementPolicies(api, deployment_id)

    def launch(self, order: LaunchOrder) -> LaunchResult:
        """The first type that gives machines, what the others said, or the operation to ask about.

        Raises LaunchOutcomeUnknown when a reply was lost, ProviderError.
        """
        deadline = self._api.deadline()
        label_value(order.client_token)
        there = self._there(deadline, order, sure=False)
        if there:
            refused: tuple[PoolRefusal, ...] = ()
            groups = _groups_of(order, there)
        else:
            refused, bids = too_dear(order, self._price_of)
            groups = grouped(bids)
        for group in groups:
            if refused and not deadline.has(2 * self._api.settings.request_seconds):
                break
            result = self._launch_group(deadline, order, group)
            refused += result.refused
            if result.accepted or result.pending_operation:
                return replace(result, refused=refused)
            if any(one.scope is RefusalScope.PROVIDER for one in result.refused):
                break
        return LaunchResult(refused=refused)

    def poll(self, text: str) -> LaunchResult:
        """The state of the launch that `PendingLaunch.to_text` names."""
        deadline, pending = self._api.deadline(), PendingLaunch.parse(text)
        operation = self._api.operation(deadline, pending.scope, pending.operation)
        return self._result(deadline, pending, operation)

    def _launch_group(
        self, deadline: Deadline, order: LaunchOrder, group: BidGroup
    ) -> LaunchResult:
        pools = group.pools
        try:
            operation, pending = self._insert(deadline, order, group)
        except ApiLost as error:
            raise LaunchOutcomeUnknown(str(error)) from error
        except ApiRefusal as error:
            if error.http_status >= _SERVER_ERRORS:
                raise LaunchOutcomeUnknown(str(error)) from error
            if error.refusal.exists:
                return self._adopted(deadline, _pending_of(order, group), str(error), order)
            if error.kind is RefusalKind.THROTTLED:
                raise
            scope = error.scope
            return LaunchResult(
                refused=tuple(PoolRefusal(pool, error.kind, str(error), scope) for pool in pools)
            )
        except ProviderError as error:
            # Of this type alone: it has no image. All else that is wrong, is so with every type.
            if error.kind is not RefusalKind.UNSUPPORTED:
                raise
            return LaunchResult(
                refused=tuple(PoolRefusal(pool, error.kind, str(error)) for pool in pools)
            )
        try:
            operation = self._api.wait(deadline, pending.scope, operation.name)
        except ProviderError:
            return LaunchResult(pending_operation=pending.to_text())
        return self._result(deadline, pending, operation)

    def _insert(
        self, deadline: Deadline, order: LaunchOrder, group: BidGroup
    ) -> tuple[Any, PendingLaunch]:
        """Ask with every wish; once more without the one that the API rejects by name."""
        spot = order.market is Market.SPOT
        kind = self._catalog.get(group.instance_type)
        placement = self._policies.for_gang(deadline, order, kind)
        wishes = LaunchPreferences(
            self._api.settings.notice_seconds if spot else 0, placement.policy, placement.note
        )
        while True:
            try:
                with self._pace.turn(region_of(group.zones[0])):
                    return self._insert_with(deadline, order, group, wishes)
            except ApiRefusal as error:
                fewer = _without(wishes, error)
                if fewer is None:
                    raise
                wishes = fewer

    def _insert_with(
        self, deadline: Deadline, order: LaunchOrder, group: BidGroup, wishes: LaunchPreferences
    ) -> tuple[Any, PendingLaunch]:
        settings, region = self._api.settings, region_of(group.zones[0])
        alone = _is_plain(order, group)
        place = group.zones[0] if alone else ""
        names = machine_names(order, group.instance_type)
        granted = wishes.notice_seconds or PLAIN_NOTICE_SECONDS
        kind = self._catalog.get(group.instance_type)
        body = properties(
            settings,
            order,
            kind,
            place=place,
            labels=labels_of(order, self._deployment_id(), granted),
            script=self._script(order, granted),
            notice_seconds=wishes.notice_seconds,
            policy=wishes.policy,
        )
        body["network_interfaces"] = interfaces_of(settings, kind, region)
        with_type(settings, body, kind, group.instance_type, place)
        if wishes.note:
            log.warning("launch %s: %s", order.client_token, wishes.note)
        # The same with a placement policy and without: whether one could be made may change from
        # a repeat to the next, and another id would start a second gang in another zone.
        request = request_id(
            order, self._deployment_id(), group.instance_type, str(wishes.notice_seconds)
        )
        if alone:
            operation = self._api.change(
                "InstancesClient",
                "insert_unary",
                deadline,
                zone=place,
                instance_resource={**body, "name": names[0]},
                request_id=request,
            )
        else:
            operation = self._api.change(
                "RegionInstancesClient",
                "bulk_insert_unary",
                deadline,
                region=region,
                bulk_insert_instance_resource_resource=bulk_resource(
                    order, body, names, group.zones
                ),
                request_id=request,
            )
        return operation, _pending_of(order, group, operation.name, wishes.note)

    def _script(self, order: LaunchOrder, notice_seconds: int) -> str:
        try:
            return self._render({**order.user_data, NOTICE_VARIABLE: str(notice_seconds)})
        except ValueError as error:
            raise ProviderError(RefusalKind.REJECTED, str(error)) from error

    def _result(self, deadline: Deadline, pending: PendingLaunch, operation: Any) -> LaunchResult:
        """What an operation has come to; its machines are those that exist, or have existed."""
        if operation.status != compute_v1.Operation.Status.DONE:
            return LaunchResult(pending_operation=pending.to_text())
        errors = of_operation(operation)
        taken = next((one for one in errors if one.exists), None)
        if taken is not None and pending.token:
            return self._adopted(deadline, pending, f"{taken.code}: {taken.message}")
        found = self._machines.described(deadline, pending.names)
        unheard = not found.complete and len(found.machines) < len(pending.names)
        if unheard or len(found.machines) < _made(operation, errors):
            # What was made shows up later than the end of the operation that made it.
            return LaunchResult(pending_operation=pending.to_text())
        machines = tuple(one for one in found.machines if not errors or _runs(one))
        if len(machines) < pending.min_count:
            machines = ()
        # What a failed insert, or one that gave too few, has left behind.
        left = [one for one in found.machines if one not in machines and not _over(one)]
        self._machines.delete(deadline, [(one.pool.zone, one.provider_instance_id) for one in left])
        refused = tuple(
            PoolRefusal(pool, error.kind, f"{error.code}: {error.message}", error.scope)
            for error in errors
            for pool in pools_named(pending.pools, error.message)
        )
        if len(machines) < len(pending.names) and not refused:
            text = f"{len(machines)} of {len(pending.names)} machines were started"
            pools = {one.pool for one in machines} or set(pending.pools)
            refused = tuple(
                PoolRefusal(pool, RefusalKind.NO_CAPACITY, text) for pool in sorted(pools)
            )
        accepted = tuple(one.accepted(pending.note) for one in machines)
        return LaunchResult(accepted=accepted, refused=refused)

    def _there(self, deadline: Deadline, order: LaunchOrder, *, sure: bool) -> tuple[ListedVm, ...]:
        """Machines of this token; those that no list shows are guarded by request ids and names."""
        region, ours = order.bids[0].pool.region, self._deployment_id()
        return self._machines.under_token(deadline, order.client_token, ours, region, sure=sure)

    def _adopted(
        self,
        deadline: Deadline,
        pending: PendingLaunch,
        said: str,
        order: LaunchOrder | None = None,
    ) -> LaunchResult:
        """The names are taken, by an earlier call of ours unless a list shows who else has them.

        What carries the token's label counts whole; fewer than the least are released. Raises
        LaunchOutcomeUnknown where no list shows them, or not all, for then they are most likely
        ours.
        """
        region, ours = pending.pools[0].region, self._deployment_id()
        try:
            there = self._machines.under_token(deadline, pending.token, ours, region, sure=True)
            holders = () if there else self._machines.shown(deadline, pending.names).machines
        except ProviderError as failed:
            raise LaunchOutcomeUnknown(f"{said}; {failed}") from failed
        if order is not None:
            _same_order(order, there)
        if len(there) >= pending.min_count:
            return LaunchResult(accepted=tuple(one.machine.accepted() for one in there))
        if there:
            return self._given_back(deadline, pending, [one.machine for one in there], said)
        deployments = {one.tags.get(to_tag(DEPLOYMENT_LABEL)) for one in holders}
        if not deployments - {None, ours}:
            raise LaunchOutcomeUnknown(f"no list shows what machines have these names: {said}")
        text = f"machines of another deployment in this project have these names: {said}"
        return LaunchResult(
            refused=tuple(PoolRefusal(pool, RefusalKind.REJECTED, text) for pool in pending.pools)
        )

    def _given_back(
        self, deadline: Deadline, pending: PendingLaunch, there: list[CloudMachine], said: str
    ) -> LaunchResult:
        """Of a gang that an earlier call has started too few are left, and the others have ended.

        Raises LaunchOutcomeUnknown while it is not known that they have.
        """
        told = f"{len(there)} of at least {pending.min_count} machines are there: {said}"
        if len(self._machines.described(deadline, pending.names).machines) < len(pending.names):
            raise LaunchOutcomeUnknown(told)
        left = [(one.pool.zone, one.provider_instance_id) for one in there if not _over(one)]
        self._machines.delete(deadline, left)
        pools = sorted({one.pool for one in there})
        return LaunchResult(
            refused=tuple(PoolRefusal(pool, RefusalKind.NO_CAPACITY, told) for pool in pools)
        )


def _pending_of(
    order: LaunchOrder, group: BidGroup, operation: str = "", note: str = ""
) -> PendingLaunch:
    """What is asked for, under way as `operation`."""
    zone = group.zones[0]
    return PendingLaunch(
        scope=f"zones/{zone}" if _is_plain(order, group) else f"regions/{region_of(zone)}",
        operation=operation,
        names=machine_names(order, group.instance_type),
        min_count=order.min_count,
        instance_type=group.instance_type,
        market=order.market,
        zones=group.zones,
        note=note,
        token=order.client_token,
    )


def _is_plain(order: LaunchOrder, group: BidGroup) -> bool:
    """Whether one machine is asked for in one zone, by `insert` and not by a bulk insert."""
    return order.count == 1 and len(group.zones) == 1


def _groups_of(order: LaunchOrder, there: Sequence[ListedVm]) -> list[BidGroup]:
    """Machines exist under this token: only the call that made them is repeated."""
    _same_order(order, there)
    kinds = {one.machine.pool.instance_type for one in there}
    return [group for group in grouped(order.bids) if group.instance_type in kinds]


def _same_order(order: LaunchOrder, there: Sequence[ListedVm]) -> None:
    if any(one.labels.get(ORDER_LABEL) != order_digest(order) for one in there):
        raise ProviderError(
            RefusalKind.REJECTED,
            f"the launch token {order.client_token!r} has started machines for another order",
        )


def _without(wishes: LaunchPreferences, error: ApiRefusal) -> LaunchPreferences | None:
    """The wishes less the one that the message names; None when it names none."""
    if error.kind not in (RefusalKind.REJECTED, RefusalKind.UNSUPPORTED):
        return None
    message = error.refusal.message
    if wishes.notice_seconds and (_NOTICE_FIELD in message or "preemption notice" in message):
        return replace(wishes, notice_seconds=0)
    if wishes.policy and any(word in message for word in _POLICY_FIELDS):
        return replace(wishes, policy=None, note=without_policy(str(error)))
    return None


def _made(operation: Any, errors: Sequence[Any]) -> int:
    """How many VMs a finished operation says it has made; of one that failed it says nothing."""
    if errors:
        return 0
    if operation.operation_type == "insert":
        return 1
    places = operation.instances_bulk_insert_operation_metadata.per_location_status
    return sum(place.created_vm_count for place in places.values())


def _runs(machine: CloudMachine) -> bool:
    return machine.state in (MachineState.PENDING, MachineState.RUNNING)


def _over(machine: CloudMachine) -> bool:
    return machine.state is MachineState.TERMINATED
