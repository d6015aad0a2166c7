"""The Google Cloud provider: the provider port on Compute Engine.

Not here: how machines are started (`launching`), found (`machines`) or told of once they are gone
(`ended_machines`), and prices (`price_source`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from app.adapters.providers.gcp.client.compute_api import ComputeApi, translated
from app.adapters.providers.gcp.client.gcp_settings import PROVIDER, GcpSettings
from app.adapters.providers.gcp.client.google_credentials import json_of, session_of
from app.adapters.providers.gcp.client.refusals import of_document
from app.adapters.providers.gcp.diagnosing.diagnosis import diagnose
from app.adapters.providers.gcp.machines.launching import MachineLauncher
from app.adapters.providers.gcp.machines.leftovers import GcpLeftovers
from app.adapters.providers.gcp.machines.machines import Machines
from app.adapters.providers.gcp.machines.preemption_feed import PreemptionFeed
from app.adapters.providers.gcp.zones.machine_view import last_part
from app.adapters.providers.gcp.zones.zone_lists import ZoneLists
from app.domain.market.machine_catalog import MachineCatalog, MachineType
from app.domain.market.offer import Pool
from app.ports.cloud_leftovers import Leftover
from app.ports.cloud_provider import (
    CloudMachine,
    LaunchOrder,
    LaunchResult,
    MachineList,
    ProviderError,
    RefusalKind,
)
from app.ports.interruption_feed import Announcement
from app.ports.provider_diagnosis import CheckResult

STORAGE_URL: Final = "https://storage.googleapis.com"
_SERVICE: Final = "storage.googleapis.com"
_OK: Final = 200
_REFUSALS: Final = {
    401: (RefusalKind.DENIED, "the credentials are not accepted"),
    403: (RefusalKind.DENIED, "grant storage.buckets.get on the bucket"),
    404: (RefusalKind.REJECTED, "there is no such bucket"),
}


class GcpProvider:
    """Implements `app.ports.cloud_provider.CloudProvider`; safe to share between threads.

    deployment_id: whose machines these are, put on each and listed by. render: the boot script of
    a machine from its user data. price_of: a spot pool's price, None where it is not known.
    """

    def __init__(
        self,
        settings: GcpSettings,
        api: ComputeApi,
        catalog: MachineCatalog,
        *,
        deployment_id: Callable[[], str],
        render: Callable[[dict[str, str]], str],
        price_of: Callable[[Pool], int | None],
    ) -> None:
        self._settings = settings
        self._api = api
        self._catalog = catalog
        self._deployment_id = deployment_id
        lists = ZoneLists(api)
        self._machines = Machines(api, lists)
        self._feed = PreemptionFeed(api, self._machines, lists)
        self._leftovers = GcpLeftovers(api, self._machines, lists, deployment_id)
        self._launching = MachineLauncher(
            api, self._machines, catalog, deployment_id, render, price_of
        )

    @property
    def name(self) -> str:
        """`gcp`."""
        return PROVIDER

    @property
    def call_timeout_seconds(self) -> float:
        """Upper bound of one call."""
        return self._api.call_seconds

    def regions(self) -> tuple[str, ...]:
        """The regions that are set."""
        return tuple(sorted(set(self._settings.regions)))

    def launch(self, order: LaunchOrder) -> LaunchResult:
        """Start machines of the first type that is to be had, in one of its zones."""
        return self._launching.launch(order)

    def poll_launch(self, operation: str) -> LaunchResult:
        """State of an unfinished launch."""
        return self._launching.poll(operation)

    def find_by_token(
        self, client_token: str, region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """Machines started under a token, by name, while Compute Engine shows them.

        Raises ProviderError where a zone of the region did not answer.
        """
        deadline, ours = self._api.deadline(), self._deployment_id()
        found = self._machines.under_token(deadline, client_token, ours, region, sure=True)
        return tuple(one.machine for one in found)

    def list_deployment(self, region: str) -> MachineList:
        """This deployment's machines in the region; not complete when a zone did not answer."""
        return self._machines.in_region(self._api.deadline(), self._deployment_id(), region)

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """The known ones among these, by name, which tells the zone.

        Raises ProviderError when one is missing while a zone did not answer.
        """
        if not provider_instance_ids:
            return ()
        wanted = tuple(dict.fromkeys(provider_instance_ids))
        found = self._machines.described(self._api.deadline(), wanted)
        if not found.complete and len(found.machines) < len(wanted):
            raise ProviderError(
                RefusalKind.UNAVAILABLE, "a zone of Google Cloud did not answer: machines unknown"
            )
        return found.machines

    @property
    def bucket_scheme(self) -> str:
        """How the addresses of Cloud Storage's buckets begin."""
        return "gs"

    def locate_bucket(self, bucket: str) -> str:
        """The location of a Cloud Storage bucket. Raises ProviderError."""
        return locate_bucket(self._api, bucket)

    def diagnose(self) -> tuple[CheckResult, ...]:
        """Project, quotas, subnetworks, image and prices: one result each."""
        return diagnose(self._api)

    def machine_types(self) -> tuple[MachineType, ...]:
        """Every GPU type that the configured zones have, by name."""
        return read_offered_types(self._api, self._catalog)

    @property
    def announces(self) -> bool:
        """Preemptions are always recorded."""
        return True

    def receive_announcements(self) -> tuple[Announcement, ...]:
        """Preemptions of the last minutes."""
        return self._feed.receive()

    def forget_announcements(self, receipts: Iterable[str]) -> None:
        """Their effect is written."""
        self._feed.forget(receipts)

    def list_leftovers(self, region: str) -> tuple[Leftover, ...]:
        """Disks without a machine, and placement policies."""
        return self._leftovers.list_leftovers(region)

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> tuple[Leftover, ...]:
        """Delete them; returns what is left."""
        return self._leftovers.remove_leftovers(leftovers)

    def terminate(self, provider_instance_ids: tuple[str, ...], region: str | None = None) -> None:
        """Delete machines; the ids of those that are gone are passed over.

        Their names tell the zone, so the region is not needed.
        """
        if not provider_instance_ids:
            return
        deadline = self._api.deadline()
        wanted = tuple(dict.fromkeys(provider_instance_ids))
        places, sure = self._machines.places(deadline, wanted)
        self._machines.delete(deadline, places)
        if not sure:
            raise ProviderError(
                RefusalKind.UNAVAILABLE, "a zone of Google Cloud did not answer: not all ended"
            )


def locate_bucket(api: ComputeApi, bucket: str) -> str:
    """`us-central1`, `us`, `nam4` …, in small letters. Raises ProviderError."""
    address = f"{api.settings.endpoint or STORAGE_URL}/storage/v1/b/{quote(bucket, safe='')}"
    with translated("get of the bucket"), session_of(api.credentials()) as session:
        answer = session.get(
            address, params={"fields": "location"}, timeout=api.settings.request_seconds
        )
        if answer.status_code != _OK:
            kind, what = _REFUSALS.get(
                answer.status_code, (RefusalKind.UNAVAILABLE, "it is asked again later")
            )
            text = f"Cloud Storage answered {answer.status_code} for gs://{bucket}: {what}"
            message = of_document(json_of(answer), answer.status_code, _SERVICE).message
            raise ProviderError(kind, f"{text}; {message}" if message else text)
        location = answer.json().get("location")
    if not isinstance(location, str) or not location:
        text = f"Cloud Storage does not say where gs://{bucket} is"
        raise ProviderError(RefusalKind.UNAVAILABLE, text)
    return location.lower()


def read_offered_types(api: ComputeApi, catalog: MachineCatalog) -> tuple[MachineType, ...]:
    """Every GPU type of a configured zone whose series we know, by name. Raises ProviderError."""
    told = {}
    for page in api.pages("MachineTypesClient", api.deadline()):
        for scope, held in page.items.items():
            if api.settings.allows(last_part(scope)):
                told.update({one.name: one for one in held.machine_types})
    found = {one.name: one for one in catalog.types if one.base_type and one.base_type in told}
    for name, one in told.items():
        if not one.accelerators:
            continue
        like = catalog.get(name) or _largest_of_series(catalog, name)
        if like is not None:
            found[name] = _updated(like, name, one)
    return tuple(found[name] for name in sorted(found))


def _updated(like: MachineType, name: str, told: Any) -> MachineType:
    count = sum(one.guest_accelerator_count for one in told.accelerators)
    return replace(
        like,
        name=name,
        gpu_count=count,
        vcpus=told.guest_cpus,
        memory_gb=told.memory_mb // 1024,
    )


def _largest_of_series(catalog: MachineCatalog, name: str) -> MachineType | None:
    series = "-".join(name.split("-")[:2])
    family = [one for one in catalog.types if one.name.startswith(f"{series}-")]
    return max(family, key=lambda one: one.gpu_count, default=None)
