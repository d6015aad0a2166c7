"""The local provider: the provider port on a cloud of processes on this machine.

Beyond the port: `interrupt` and `invoice`, which a real cloud does not offer as a call, and `crash`
and `lose_replies`, faults for tests and rehearsals.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from app.adapters.providers.local.cloud_client import CloudClient
from app.adapters.providers.local.files.cloud_settings import LocalSettings, read_terms
from app.adapters.providers.local.market.recordings import PROVIDER, recorded_regions
from app.domain.billing.machine_facts import TimeSource
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Pool
from app.ports.cloud_provider import (
    AcceptedMachine,
    CloudMachine,
    LaunchOrder,
    LaunchResult,
    MachineList,
    MachineState,
    PoolRefusal,
    ProviderError,
    RefusalKind,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def instant(at_us: int) -> datetime:
    """Aware UTC from the cloud's microseconds."""
    return _EPOCH + at_us * _MICROSECOND


def microseconds(at: datetime) -> int:
    """The cloud's microseconds of an aware instant."""
    return (at - _EPOCH) // _MICROSECOND


class LocalProvider:
    """The cloud in `folder`; its daemon is started by the first call."""

    def __init__(self, folder: Path, settings: LocalSettings) -> None:
        self._client = CloudClient(folder, settings)

    @property
    def name(self) -> str:
        """`local`."""
        return PROVIDER

    @property
    def call_timeout_seconds(self) -> float:
        """Upper bound of one call."""
        return self._client.settings.call_timeout_seconds

    def regions(self) -> tuple[str, ...]:
        """Regions the recordings cover."""
        return recorded_regions()

    def launch(self, order: LaunchOrder) -> LaunchResult:
        """Start machines in the first pool with room; the agent of each starts at once."""
        bids = [
            {
                "pool": bid.pool.key,
                "max_price_microusd_per_hour": bid.max_price_microusd_per_hour,
            }
            for bid in order.bids
        ]
        answer = self._client.call(
            "launch",
            client_token=order.client_token,
            count=order.count,
            min_count=order.min_count,
            market=order.market,
            bids=bids,
            user_data=order.user_data,
            tags=order.tags,
            disk_gb=order.disk_gb,
        )
        machines = (_cloud_machine(document) for document in answer["machines"])
        accepted = tuple(
            AcceptedMachine(
                one.provider_instance_id, one.pool, one.launched_at, one.launched_source
            )
            for one in machines
        )
        refused = tuple(
            PoolRefusal(_refused_pool(one["pool"]), RefusalKind(one["kind"]), one["message"])
            for one in answer["refused"]
        )
        return LaunchResult(accepted, refused)

    def poll_launch(self, operation: str) -> LaunchResult:
        """Launches finish in their call here, so there is none to ask about."""
        raise ProviderError(RefusalKind.REJECTED, f"no launch is pending under {operation!r}")

    def find_by_token(
        self, client_token: str, region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """Machines started under a token, by id."""
        return _cloud_machines(self._client.call("find", client_token=client_token)["machines"])

    def list_deployment(self, region: str) -> MachineList:
        """This deployment's machines in the region, by id; the list is always complete."""
        found = self._client.call("list", region=region)["machines"]
        return MachineList(_cloud_machines(found), complete=True)

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """The known ones among these, by id."""
        found = self._client.call("describe", machine_ids=list(provider_instance_ids))
        return _cloud_machines(found["machines"])

    def terminate(self, provider_instance_ids: tuple[str, ...], region: str | None = None) -> None:
        """Give machines back: all their processes are killed."""
        self._client.call("terminate", machine_ids=list(provider_instance_ids))

    def interrupt(self, provider_instance_id: str, notice_seconds: float | None) -> datetime:
        """Let the cloud take a spot machine: the instant at which it is killed.

        notice_seconds: wall seconds between notice and kill; None kills now, without any notice.
        A machine under notice keeps its first deadline. Raises ProviderError `rejected` for an
        on-demand, ended or unknown machine.
        """
        answer = self._client.call(
            "interrupt", machine_id=provider_instance_id, notice_seconds=notice_seconds
        )
        return instant(answer["ends_at_us"])

    def interrupt_as_usual(self, provider_instance_id: str) -> datetime:
        """`interrupt` with the notice of the cloud that the machine imitates."""
        return instant(
            self._client.call("interrupt", machine_id=provider_instance_id)["ends_at_us"]
        )

    def invoice(self, until: datetime | None = None) -> dict[str, dict[str, int]]:
        """The cloud's own bill up to `until` (None: now): machine id -> component -> micro-USD."""
        until_us = None if until is None else microseconds(until)
        bill: dict[str, dict[str, int]] = self._client.call("invoice", until_us=until_us)["invoice"]
        return bill

    def billing_speed(self) -> Fraction:
        """Billed seconds per wall second, as the folder's cloud counts for ever."""
        self._client.ensure_running()
        terms = read_terms(self._client.folder)
        if terms is None:
            raise ProviderError(RefusalKind.UNAVAILABLE, "the local cloud's folder lost its terms")
        return terms.billing_speed

    def crash(self, provider_instance_id: str) -> None:
        """Kill everything on a machine silently; the cloud shows it some seconds later."""
        self._client.call("crash", machine_id=provider_instance_id)

    def lose_replies(self, count: int) -> None:
        """Do the next `count` calls, but hang up instead of answering them."""
        self._client.call("lose_replies", count=count)


def _cloud_machines(documents: Iterable[dict[str, Any]]) -> tuple[CloudMachine, ...]:
    return tuple(_cloud_machine(document) for document in documents)


def _cloud_machine(document: dict[str, Any]) -> CloudMachine:
    ended_by, ended_at_us = document["ended_by"], document["ended_at_us"]
    source = TimeSource.PROVIDER_RECORD
    return CloudMachine(
        provider_instance_id=document["machine_id"],
        client_token=document["client_token"],
        pool=Pool.parse(document["pool"]),
        state=MachineState(document["state"]),
        launched_at=instant(document["launched_at_us"]),
        launched_source=source,
        ended_by=None if ended_by is None else EndedBy(ended_by),
        ended_at=None if ended_at_us is None else instant(ended_at_us),
        ended_source="" if ended_at_us is None else source,
        tags=document["tags"],
    )


def _refused_pool(key: str | None) -> Pool | None:
    if key is None:
        return None
    try:
        return Pool.parse(key)
    except ValueError:
        return None
