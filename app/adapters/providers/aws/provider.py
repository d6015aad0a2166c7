"""Amazon EC2 behind the provider port.

Lives here: the port's methods. A machine's id does not tell its region: where the caller does not
either, it is remembered from when the machine was seen, and all are asked about one that was not.
Not here: how a launch is made (`launching`), what an instance means (`describing`), prices
(`price_source`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from app.adapters.call_pace import PACE_SECONDS_MAX
from app.adapters.providers.aws.client.aws_settings import (
    DEPLOYMENT_TAG,
    PROVIDER,
    TOKEN_TAG,
    AwsSettings,
)
from app.adapters.providers.aws.client.bucket_location import locate_bucket
from app.adapters.providers.aws.client.clients import LAUNCH_SECONDS, AwsClients
from app.adapters.providers.aws.client.describing import machines_of
from app.adapters.providers.aws.client.region_facts import RegionFacts
from app.adapters.providers.aws.diagnosing.diagnosis import (
    UNKNOWN_DEPLOYMENT,
    diagnose,
    unknown_deployment,
)
from app.adapters.providers.aws.interruption_queues import InterruptionQueues
from app.adapters.providers.aws.machines.launch_template import LaunchTemplates
from app.adapters.providers.aws.machines.launching import PREPARE_SECONDS, FleetLauncher
from app.adapters.providers.aws.machines.leftovers import AwsLeftovers
from app.adapters.providers.aws.machines.offered_types import read_offered_types
from app.adapters.providers.aws.machines.terminating import terminate_machines
from app.adapters.seeded_draws import seeded_draws
from app.domain.market.machine_catalog import MachineCatalog, MachineType
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

_FILTER_VALUES_MAX: Final = 200
_PAGE: Final = 1_000
_PAGES_MAX: Final = 200
_LIST_SECONDS: Final = 90.0
_REMEMBERED_MAX: Final = 50_000


class AwsProvider:
    """One deployment's machines in an AWS account; safe for threads."""

    def __init__(
        self,
        settings: AwsSettings,
        *,
        deployment_id: Callable[[], str],
        render: Callable[[Mapping[str, str]], str],
        catalog: MachineCatalog,
        session: object = None,
    ) -> None:
        """deployment_id: read when first needed, raises ProviderError while nobody can tell it.
        render: user data as a script, else ValueError.

        session: boto3's, where it is not to be made from the environment.
        """
        self._settings = settings
        self._catalog = catalog
        self._read_deployment_id = deployment_id
        self._render = render
        self._lock = threading.Lock()
        self._region_of: dict[str, str] = {}
        self.clients = AwsClients(settings, session)
        self.facts = RegionFacts(settings, self.clients, catalog)
        self._draw = seeded_draws(0)
        self._queues = InterruptionQueues(self.clients, settings.queue_urls, settings.regions[0])

    @property
    def name(self) -> str:
        """`aws`."""
        return PROVIDER

    @property
    def call_timeout_seconds(self) -> float:
        """A launch with the questions before it and its turn."""
        return LAUNCH_SECONDS + PREPARE_SECONDS + PACE_SECONDS_MAX

    def regions(self) -> tuple[str, ...]:
        """The configured regions."""
        return tuple(sorted(self._settings.regions))

    def launch(self, order: LaunchOrder) -> LaunchResult:
        """Start machines by one CreateFleet of type instant."""
        for bid in order.bids:
            if bid.pool.provider != PROVIDER or bid.pool.region not in self._settings.regions:
                text = f"{bid.pool.key}: add {bid.pool.region} to LOWTIDE_AWS_REGIONS"
                raise ProviderError(RefusalKind.REJECTED, text)
        result = self._launching.launch(order)
        self._remember(
            (machine.provider_instance_id, machine.pool.region) for machine in result.accepted
        )
        return result

    def poll_launch(self, operation: str) -> LaunchResult:
        """CreateFleet answers at once, so there is none to ask about."""
        raise ProviderError(RefusalKind.REJECTED, f"no launch is pending under {operation!r}")

    def find_by_token(
        self, client_token: str, region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """By the tag of the launch: EC2 gives a fleet's machines client tokens of its own."""
        found: list[CloudMachine] = []
        for one in self.regions() if region is None else (region,):
            found += self._find(one, client_token)
        return _sorted(found)

    def list_deployment(self, region: str) -> MachineList:
        """By the deployment's tag, page by page; not complete when a later page fails."""
        wanted = [{"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [self._deployment_id]}]
        found, complete = self._pages(region, wanted)
        return MachineList(_sorted(found), complete)

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """By a filter: unlike a list of ids it does not fail for one that is unknown.

        Raises ProviderError when a machine is missing while a region did not answer for it.
        """
        found: list[CloudMachine] = []
        silent: list[tuple[list[str], ProviderError]] = []
        for where, ids in self._by_region(provider_instance_ids, region).items():
            for start in range(0, len(ids), _FILTER_VALUES_MAX):
                chunk = ids[start : start + _FILTER_VALUES_MAX]
                try:
                    found += self._all(where, [{"Name": "instance-id", "Values": chunk}])
                except ProviderError as error:
                    silent.append((chunk, error))
        shown = {one.provider_instance_id for one in found}
        for chunk, failure in silent:
            if not shown.issuperset(chunk):
                raise failure
        return _sorted(found)

    def terminate(self, provider_instance_ids: tuple[str, ...], region: str | None = None) -> None:
        """All are tried, whatever becomes of one; raises ProviderError afterwards."""
        unknown = [one for one in provider_instance_ids if one not in self._region_of]
        if region is None and unknown and len(self._settings.regions) > 1:
            # To learn their regions; one that stays unknown is tried in all of them.
            with contextlib.suppress(ProviderError):
                self.describe(tuple(unknown))
        terminate_machines(self.clients, self._by_region(provider_instance_ids, region), self._draw)

    @property
    def announces(self) -> bool:
        """Whether a queue of interruption events is set."""
        return bool(self._queues)

    def receive_announcements(self) -> tuple[Announcement, ...]:
        """New messages of every region's queue that answers."""
        return self._queues.receive()

    def forget_announcements(self, receipts: Iterable[str]) -> None:
        """Delete messages that were applied."""
        self._queues.forget(receipts)

    def list_leftovers(self, region: str) -> tuple[Leftover, ...]:
        """Volumes without a machine, launch templates, placement groups."""
        return self._leftovers.list_leftovers(region)

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> tuple[Leftover, ...]:
        """Delete them; returns what is left."""
        return self._leftovers.remove_leftovers(leftovers)

    @property
    def bucket_scheme(self) -> str:
        """How the addresses of S3's buckets begin."""
        return "s3"

    def locate_bucket(self, bucket: str) -> str:
        """The region of an S3 bucket, asked in any region that answers. Raises ProviderError."""
        failed: list[ProviderError] = []
        for region in self.regions():
            try:
                return locate_bucket(self.clients, bucket, region)
            except ProviderError as error:
                if error.kind is RefusalKind.REJECTED:
                    raise  # there is no such bucket
                failed.append(error)
        raise failed[0]

    def diagnose(self) -> tuple[CheckResult, ...]:
        """Whether the account is set up for us."""
        unknown: tuple[CheckResult, ...] = ()
        try:
            deployment_id = self._deployment_id
        except ProviderError as error:
            deployment_id, unknown = UNKNOWN_DEPLOYMENT, (unknown_deployment(error),)
        found = diagnose(self._settings, self.clients, self.facts, self._catalog, deployment_id)
        return unknown + found

    def machine_types(self) -> tuple[MachineType, ...]:
        """Types with GPUs that the regions offer."""
        return read_offered_types(self._settings, self.facts, self._catalog)

    @cached_property
    def _deployment_id(self) -> str:
        return self._read_deployment_id()

    @cached_property
    def _leftovers(self) -> AwsLeftovers:
        return AwsLeftovers(
            self.clients,
            self.facts,
            self._deployment_id,
            self.list_deployment,
            self._launching.forget,
        )

    @cached_property
    def _launching(self) -> FleetLauncher:
        templates = LaunchTemplates(self._settings, self.clients, self.facts, self._deployment_id)
        return FleetLauncher(
            self.clients,
            self.facts,
            templates,
            self._catalog,
            self._deployment_id,
            self._settings.public_ip,
            self._render,
            self._find,
        )

    def _find(self, region: str, client_token: str) -> tuple[CloudMachine, ...]:
        wanted = [
            {"Name": f"tag:{TOKEN_TAG}", "Values": [client_token]},
            {"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [self._deployment_id]},
        ]
        return tuple(self._all(region, wanted))

    def _all(self, region: str, filters: list[dict[str, Any]]) -> list[CloudMachine]:
        """Every machine, or ProviderError."""
        found, complete = self._pages(region, filters)
        if not complete:
            text = f"describe_instances in {region}: not every page was answered"
            raise ProviderError(RefusalKind.UNAVAILABLE, text)
        return found

    def _pages(self, region: str, filters: list[dict[str, Any]]) -> tuple[list[CloudMachine], bool]:
        """Machines, and whether the last page was reached; raises when the first one fails."""
        asked: dict[str, Any] = {"Filters": filters, "MaxResults": _PAGE}
        found: list[CloudMachine] = []
        until = time.monotonic() + _LIST_SECONDS
        complete = False
        for page in range(_PAGES_MAX):
            try:
                reply = self.clients.ask("ec2", region, "describe_instances", **asked)
            except ProviderError:
                if page == 0:
                    raise
                break
            found += machines_of(reply, region)
            asked["NextToken"] = reply.get("NextToken")
            if not asked["NextToken"]:
                complete = True
                break
            if time.monotonic() > until:
                break
        self._remember((one.provider_instance_id, region) for one in found)
        return found, complete

    def _by_region(self, ids: Iterable[str], told: str | None) -> dict[str, list[str]]:
        """Ids under the region that was told, else their own, else under every region."""
        found: dict[str, list[str]] = {}
        for machine_id in sorted(set(ids)):
            known = told or self._region_of.get(machine_id)
            for region in self.regions() if known is None else (known,):
                found.setdefault(region, []).append(machine_id)
        return found

    def _remember(self, pairs: Iterable[tuple[str, str]]) -> None:
        with self._lock:
            if len(self._region_of) > _REMEMBERED_MAX:
                self._region_of.clear()
            self._region_of.update(pairs)


def _sorted(machines: Iterable[CloudMachine]) -> tuple[CloudMachine, ...]:
    unique = {machine.provider_instance_id: machine for machine in machines}
    return tuple(unique[machine_id] for machine_id in sorted(unique))
