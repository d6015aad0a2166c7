"""Compact placement for gangs: one policy per launch, made before it and cleared away later.

A policy costs nothing but counts against a quota; those that no VM uses any more are removed when
the next gang starts in the region. Not here: which types can stand together (the catalog).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.adapters.providers.gcp.client.compute_api import (
    ApiLost,
    ApiRefusal,
    ComputeApi,
    Deadline,
    translated,
)
from app.adapters.providers.gcp.client.refusals import of_operation
from app.adapters.providers.gcp.zones.machine_view import instant
from app.adapters.providers.gcp.zones.vm_names import launch_prefix
from app.domain.market.machine_catalog import MachineType
from app.ports.cloud_provider import LaunchOrder

_OLD: Final = timedelta(hours=1)
_REMOVED_AT_A_TIME: Final = 5
_CLIENT: Final = "ResourcePoliciesClient"
_BAD_REQUEST: Final = 400
_WHY_MAX: Final = 300


def description_of(deployment_id: str) -> str:
    """Policies take no labels: their description says whose they are."""
    return f"A gang of lowtide {deployment_id}: removed once its machines are gone"


@dataclass(frozen=True)
class GangPolicy:
    """The name of a gang's policy, if it has one; `note`: why it has none where it was wished."""

    policy: str | None = None
    note: str = ""


def without_policy(why: str) -> str:
    """What is told of a gang that stands anywhere in its zone."""
    return f"Google refused to place the gang close together, so it is not: {why[:_WHY_MAX]}"


class PlacementPolicies:
    """The policies of one project."""

    def __init__(self, api: ComputeApi, deployment_id: Callable[[], str]) -> None:
        self._api = api
        self._deployment_id = deployment_id

    def for_gang(
        self, deadline: Deadline, order: LaunchOrder, kind: MachineType | None
    ) -> GangPolicy:
        """The policy of a gang; none for one machine, or for a type that can have none.

        A gang without it is slower, not wrong, so a refusal is no error, and is told.
        """
        wanted = self._api.settings.compact_placement and order.count > 1
        if not wanted or kind is None or not kind.compact_placement:
            return GangPolicy()
        region, name = order.bids[0].pool.region, launch_prefix(order.client_token)
        try:
            self._remove_old(deadline, region)
            self._make(deadline, region, name)
        except (ApiRefusal, ApiLost) as error:
            return GangPolicy(note=without_policy(str(error)))
        return GangPolicy(name)

    def _make(self, deadline: Deadline, region: str, name: str) -> None:
        policy = {
            "name": name,
            "description": description_of(self._deployment_id()),
            "group_placement_policy": {"collocation": "COLLOCATED"},
        }
        try:
            operation = self._api.change(
                _CLIENT, "insert_unary", deadline, region=region, resource_policy_resource=policy
            )
        except ApiRefusal as error:
            if error.refusal.exists:
                return
            raise
        done = self._api.wait(deadline, f"regions/{region}", operation.name)
        for refusal in of_operation(done):
            raise ApiRefusal(refusal, done.http_error_status_code or _BAD_REQUEST)

    def _remove_old(self, deadline: Deadline, region: str) -> None:
        """The API keeps those that are in use, so all that are old are tried."""
        wanted = f'description = "{description_of(self._deployment_id())}"'
        listed = self._api.read(_CLIENT, "list", deadline, region=region, filter=wanted)
        before = datetime.now(UTC) - _OLD
        with translated("list of ResourcePoliciesClient"):
            old = [one for one in listed if _made_before(one, before)]
        for policy in old[:_REMOVED_AT_A_TIME]:
            try:
                self._api.change(
                    _CLIENT, "delete_unary", deadline, region=region, resource_policy=policy.name
                )
            except ApiRefusal:
                continue


def _made_before(policy: Any, instant_at: datetime) -> bool:
    made_at = instant(policy.creation_timestamp)
    return made_at is not None and made_at < instant_at
