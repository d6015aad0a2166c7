"""The Compute Engine fake in a schedule of faults. Not here: the fake itself (`gce_fake`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from google.auth.credentials import AnonymousCredentials

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.gcp.provider import GcpProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.ports.cloud_provider import CloudProvider
from app.ports.price_source import PriceSource
from app.simulation.engine.seeded_entropy import Dice
from tests.support.aws.aws_parts import a_script
from tests.support.faults.scripted_cloud import ScriptedTime
from tests.support.gce.gce_fake import CUT, LOGIN_PAGE, FakeGce, LineFault, open_fake_gce
from tests.support.gce.gce_fake_bill import bill_microusd
from tests.support.gce.gce_fake_engine import World
from tests.support.gce.gce_fake_state import PROJECT

_REGION: Final = "us-central1"
_ZONES: Final = tuple(f"{_REGION}-{letter}" for letter in "abc")
_REQUEST_SECONDS: Final = 2.5
_HANG_SECONDS: Final = 2.8
_TOKEN_LABEL: Final = "lowtide_token"
# What the fake's list of SKUs comes to for g2-standard-8: 8 cores, 32 GB, one L4.
_NANOS: Final = {
    "SPOT": 8 * 9_995_000 + 32 * 1_171_000 + 224_000_000,
    "STANDARD": 8 * 24_988_000 + 32 * 2_927_000 + 560_040_000,
}
_LINE: Final = (
    LineFault(r"POST .*/(instances|bulkInsert)", after=True),
    LineFault(r"POST .*/(instances|bulkInsert)"),
    LineFault(r"POST .*/(instances|bulkInsert)", status=503),
    LineFault(r"POST .*/(instances|bulkInsert)", 2, status=429, reason="rateLimitExceeded"),
    LineFault(r"POST .*/(instances|bulkInsert)", status=403, reason="quotaExceeded"),
    LineFault(r"GET .*/operations", 2, status=500),
    LineFault(r"GET .*/aggregated/instances", 2, status=503),
    LineFault(r"GET .*/aggregated/instances", 1, status=429, reason="rateLimitExceeded"),
    LineFault(r"DELETE ", status=503),
    LineFault(r"DELETE ", after=True),
    LineFault(r"POST .*/(instances|bulkInsert)", body=CUT),
    LineFault(r"POST .*/(instances|bulkInsert)", body=LOGIN_PAGE, after=True),
    LineFault(r"GET .*/operations", body=CUT),
    LineFault(r"GET .*/aggregated/", 2, body=LOGIN_PAGE),
    LineFault(r"GET .*/aggregated/instances", body=CUT),
    LineFault(r"DELETE ", body=CUT),
    LineFault(r"DELETE ", body=LOGIN_PAGE),
)
_ERRORS: Final = (
    ("ZONE_RESOURCE_POOL_EXHAUSTED", "none"),
    ("UNSUPPORTED_OPERATION", "preempted while created"),
    ("QUOTA_EXCEEDED", "Quota 'PREEMPTIBLE_NVIDIA_L4_GPUS' exceeded"),
    ("RESOURCE_NOT_FOUND", "The resource vanished"),
    ("INTERNAL_ERROR", "Internal error"),
)


class ScriptedGce:
    """Implements `ScriptedCloud`."""

    name = "gcp"

    def __init__(self, fake: FakeGce, time: ScriptedTime, dice: Dice) -> None:
        self.fake, self.time = fake, time
        fake.engine.read_clock = lambda: time.now().timestamp()
        world = fake.engine.world
        world.operation_seconds = dice.choice((0.0, 0.0, 8.0, 40.0))
        world.stopping_seconds = dice.choice((0.0, 20.0))
        world.hidden_looks = dice.choice((0, 0, 1, 3))
        fake.engine.leaves_behind = dice.chance(0.5)
        fake.page_size = dice.choice((3, 500))
        self._hangs = int(dice.chance(0.25))
        self._settings = GcpSettings(
            project=PROJECT,
            regions=(_REGION,),
            endpoint=fake.endpoint,
            catalog_url=fake.endpoint,
            request_seconds=_REQUEST_SECONDS,
            operation_wait_seconds=0.0,
            price_refresh_seconds=300.0,
        )

    def connect(self) -> tuple[CloudProvider, PriceSource]:
        api = ComputeApi(self._settings, AnonymousCredentials())
        prices = GcpPriceSource(api, shipped_catalog("gcp"), self.time.now)
        provider = GcpProvider(
            self._settings,
            api,
            shipped_catalog("gcp"),
            deployment_id=lambda: str(UUID(int=1)),
            render=a_script,
            price_of=prices.price_of,
        )
        provider._feed._now = self.time.now
        return provider, prices

    def misbehave(self, dice: Dice) -> str:
        """An error of a call or of an operation, a lost answer, a hang, no room."""
        kind = dice.choice(("line", "line", "operation", "hang", "room", "unreachable"))
        engine = self.fake.engine
        if kind == "operation":
            error = dice.choice(_ERRORS)
            engine.creation_errors.append(error)
            return f"an operation ends with {error[0]}"
        if kind == "room":
            zone, model = dice.choice(_ZONES), dice.choice(("SPOT", "STANDARD"))
            engine.world.rooms[zone, model] = dice.choice((0, 0, 1))
            return f"little room for {model} in {zone}"
        if kind == "unreachable":
            zone = dice.choice(_ZONES)
            self.fake.unreachable_zones.add(zone)
            self.time.plan(60.0, lambda: self.fake.unreachable_zones.discard(zone))
            return f"{zone} does not answer"
        fault = dice.choice(_LINE)
        if kind == "hang" and self._hangs:
            self._hangs -= 1
            hung = LineFault(fault.expression, 1, status=503, hang_seconds=_HANG_SECONDS)
            self.fake.faults.append(hung)
            return f"{fault.expression} hangs"
        self.fake.faults.append(replace(fault))
        return f"{fault.expression} answers {fault.status or fault.body or 'nothing'}"

    def harm(self, dice: Dice) -> str | None:
        """With or without notice, by the host, by its guest or by another user."""
        engine = self.fake.engine
        with engine.lock:
            engine.settle()
            living = sorted(
                vm.name for vm in engine.live.values() if vm.status in ("RUNNING", "PROVISIONING")
            )
            if not living:
                return None
            vm = engine.machine(dice.choice(living))
            kind = dice.choice(("kill", "notice", "host", "guest", "outsider"))
            if kind in ("kill", "notice"):
                if vm.model != "SPOT":
                    return None
                engine.preempt(vm.name, notice=kind == "notice")
            elif vm.status != "RUNNING":
                return None
            elif kind == "guest":
                engine.shut_down_inside(vm.name)
            elif kind == "host":
                engine.end_otherwise(vm.name, "compute.instances.hostError")
            else:
                engine.end_otherwise(vm.name, "delete", "someone@example.com")
            return f"{kind}: {vm.name}"

    def calm(self) -> None:
        self.fake.faults.clear()
        self.fake.engine.creation_errors.clear()
        self.fake.engine.world.rooms.clear()
        self.fake.unreachable_zones.clear()

    def running(self) -> dict[str, str]:
        engine = self.fake.engine
        with engine.lock:
            engine.settle()
            found = [vm for vm in engine.live.values() if vm.status == "RUNNING"]
            return {vm.name: _script(vm.body) for vm in found}

    def living(self) -> set[str]:
        engine = self.fake.engine
        with engine.lock:
            engine.settle()
            return {vm.name for vm in engine.live.values()}

    def forgotten(self) -> list[str]:
        disks = self.fake.engine.disks.values()
        return [disk["name"] for disk in disks if not disk["users"]]

    def started(self) -> Counter[str]:
        ran = [vm for vm in self.fake.engine.all if vm.started_at is not None]
        return Counter(vm.body["labels"][_TOKEN_LABEL] for vm in ran)

    def launches(self) -> Counter[str]:
        """One for all machines of a token: they differ by name, and a name is given once."""
        names = Counter(vm.name for vm in self.fake.engine.all if vm.started_at is not None)
        tokens = {vm.name: vm.body["labels"][_TOKEN_LABEL] for vm in self.fake.engine.all}
        found: Counter[str] = Counter()
        for name, times in names.items():
            found[tokens[name]] = max(found[tokens[name]], times)
        return found

    def bill(self) -> dict[str, int]:
        return bill_microusd(
            self.fake.engine.all, lambda vm: round(_NANOS[vm.model] / 1_000), self._now()
        )

    def _now(self) -> float:
        return self.fake.engine.now()


def _script(body: dict[str, Any]) -> str:
    items = body["metadata"]["items"]
    return next(str(item["value"]) for item in items if item["key"] == "startup-script")


def _world() -> World:
    return World({_REGION: _ZONES}, ("g2-standard-8",))


@contextmanager
def scripted_gce(time: ScriptedTime, dice: Dice) -> Iterator[ScriptedGce]:
    """A new fake that lives in `time`."""
    with open_fake_gce(_world()) as fake:
        yield ScriptedGce(fake, time, dice)
