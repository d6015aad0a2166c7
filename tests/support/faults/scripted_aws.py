"""The fake AWS account in a schedule of faults. Not here: the account itself (`aws_fake`)."""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from botocore.config import Config
from moto.moto_api._internal import mock_random

from app.adapters.providers.aws.client import clients
from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.machine_catalog import shipped_catalog
from app.ports.cloud_provider import CloudProvider
from app.ports.price_source import PriceSource
from app.simulation.engine.seeded_entropy import Dice
from tests.support.aws.aws_fake import AwsFake, open_aws_fake
from tests.support.aws.aws_fake_garble import EVERYWHERE, NO_FLEET_ID
from tests.support.aws.aws_parts import a_script, settings_for, shared_session
from tests.support.aws.aws_world import Fault, told_time
from tests.support.faults.scripted_cloud import ScriptedTime

# The SDK's own waits, shortened: a hang costs a schedule a moment, and never forty seconds.
_READ_SECONDS: Final = 2.5
_HANG_SECONDS: Final = 2.8
_NOTICE_SECONDS: Final = 120.0
_TYPES: Final = ("g5.xlarge", "g6.xlarge")
_ACTIONS: Final = (
    "CreateFleet",
    "DescribeInstances",
    "TerminateInstances",
    "DescribeSpotPriceHistory",
    "ReceiveMessage",
)
_LAUNCH_ERRORS: Final = (
    "InsufficientInstanceCapacity",
    "UnfulfillableCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "SpotMaxPriceTooLow",
    "Unsupported",
)


class _KeptClients:
    """A boto3 session whose clients are made once: a new one takes 40 ms, and knows no more."""

    def __init__(self) -> None:
        self._session = shared_session()
        self._clients: dict[tuple[str, str, int], Any] = {}
        self.get_available_partitions = self._session.get_available_partitions
        self.get_available_regions = self._session.get_available_regions

    def client(self, service: str, *, region_name: str, config: Config, endpoint_url: str) -> Any:
        key = (service, region_name, id(config))
        if key not in self._clients:
            self._clients[key] = self._session.client(
                service, region_name=region_name, endpoint_url=endpoint_url, config=config
            )
        return self._clients[key]


class ScriptedAws:
    """Implements `ScriptedCloud`."""

    name = "aws"

    def __init__(self, fake: AwsFake, time: ScriptedTime, dice: Dice) -> None:
        self.fake, self.time = fake, time
        world = fake.world
        world.pending_seconds = dice.choice((0.0, 0.0, 20.0))
        world.ending_seconds = dice.choice((0.0, 15.0))
        world.hidden_looks = dice.choice((0, 0, 1, 3))
        world.page_size = dice.choice((5, 1_000))
        self._hangs = int(dice.chance(0.25))
        self._session = _KeptClients()

    def connect(self) -> tuple[CloudProvider, PriceSource]:
        provider, prices = open_aws(
            settings_for(self.fake),
            shipped_catalog("aws"),
            deployment_id=lambda: str(UUID(int=1)),
            render=a_script,
            session=self._session,
        )
        prices._now = self.time.now
        return provider, prices

    def misbehave(self, dice: Dice) -> str:
        """An error of a call or override, an answer lost or damaged, a hang, no room, no quota."""
        kind = dice.choice(("call", "fleet", "lost", "garble", "hang", "room", "quota", "price"))
        action = dice.choice(_ACTIONS)
        if kind == "call":
            code, status = dice.choice(
                (("RequestLimitExceeded", 503), ("InternalError", 500), ("Unavailable", 503))
            )
            self.fake.fail(action, code, status, times=dice.between(1, 3))
            return f"{action} answers {code}"
        if kind == "fleet":
            code = dice.choice(_LAUNCH_ERRORS)
            place = f"{dice.choice(('us-east-1', 'us-west-2'))}{dice.choice('abc')}"
            self.fake.fail("CreateFleet", code, where=place, times=2)
            return f"{code} in {place}"
        if kind == "lost":
            self.fake.world.lost[action] += 1
            return f"the answer of {action} is lost"
        if kind == "garble":
            how = dice.choice((*EVERYWHERE, NO_FLEET_ID) if action == "CreateFleet" else EVERYWHERE)
            self.fake.garble(action, how)
            return f"the answer of {action} arrives damaged: {how}"
        if kind == "hang" and self._hangs:
            self._hangs -= 1
            fault = Fault(action, "InternalError", 500, hang_seconds=_HANG_SECONDS)
            self.fake.world.faults.append(fault)
            return f"{action} hangs"
        return self._market(kind, dice)

    def harm(self, dice: Dice) -> str | None:
        """With or without notice, event or reason, at the machine's start or later."""
        living = [one.machine_id for one in self.fake.world.machines.values() if one.lives]
        if not living:
            return None
        machine_id = dice.choice(living)
        spot = self.fake.world.machines[machine_id].spot
        kind = dice.choice(("kill", "notice", "empty notice", "power off", "outsider", "capacity"))
        if kind == "outsider":
            self.fake.terminate_by_another(machine_id)
        elif kind == "capacity":
            rented = self.fake.world.machines[machine_id]
            if rented.pending_until is None or self.time.now() >= rented.pending_until:
                return None
            self.fake.end(machine_id, "Server.InsufficientInstanceCapacity")
        elif kind == "power off":
            self._end(dice, machine_id, "Client.InstanceInitiatedShutdown")
        elif not spot:
            return None
        elif kind == "kill":
            self._end(dice, machine_id, "Server.SpotInstanceTermination")
        else:
            self._warn(dice, machine_id)
            if kind == "notice":
                self.time.plan(
                    _NOTICE_SECONDS,
                    lambda: self._end(dice, machine_id, "Server.SpotInstanceTermination"),
                )
        return f"{kind}: {machine_id}"

    def calm(self) -> None:
        world = self.fake.world
        world.faults.clear()
        world.lost.clear()
        world.garbled.clear()
        world.quotas.clear()
        world.room.clear()

    def running(self) -> dict[str, str]:
        now = self.time.now()
        found = [
            one.machine_id
            for one in self.fake.world.machines.values()
            if one.lives and (one.pending_until is None or one.pending_until <= now)
        ]
        return {machine_id: self._script(machine_id) for machine_id in found}

    def living(self) -> set[str]:
        return {one.machine_id for one in self.fake.world.machines.values() if one.lives}

    def forgotten(self) -> list[str]:
        return [
            volume.id
            for region in ("us-east-1", "us-west-2")
            for volume in self.fake.records(region).describe_volumes()
            if volume.status == "available"
        ]

    def started(self) -> Counter[str]:
        machines = [self.fake.instance(machine_id) for machine_id in self.fake.world.machines]
        tags = [tag for machine in machines for tag in machine.get_tags()]
        return Counter(tag["value"] for tag in tags if tag["key"] == "lowtide:token")

    def launches(self) -> Counter[str]:
        return Counter(self.fake.world.launches)

    def bill(self) -> dict[str, int]:
        return self.fake.world.bill()

    def _end(self, dice: Dice, machine_id: str, code: str) -> None:
        """End it; the event that tells of it may come twice, or never."""
        rented = self.fake.world.machines[machine_id]
        if not rented.lives:
            return
        if code == "Server.SpotInstanceTermination":
            self.fake.take(machine_id)
        else:
            self.fake.end(machine_id, code)
        detail = {"instance-id": machine_id, "state": "terminated"}
        for _ in range(dice.choice((0, 1, 1, 2))):
            kind = "EC2 Instance State-change Notification"
            self.fake.publish(kind, detail, rented.ended_at)

    def _warn(self, dice: Dice, machine_id: str) -> None:
        detail = {"instance-id": machine_id, "instance-action": "terminate"}
        for _ in range(dice.choice((1, 1, 2))):
            self.fake.publish("EC2 Spot Instance Interruption Warning", detail)

    def _market(self, kind: str, dice: Dice) -> str:
        world, zone = self.fake.world, f"us-east-1{dice.choice('abc')}"
        name = dice.choice(_TYPES)
        if kind == "quota":
            world.quotas["G and VT", True] = dice.choice((0, 4, 8))
            return "a small quota"
        if kind == "price":
            price = round(world.price_at(name, zone, self.time.now()) * dice.uniform(0.8, 1.3))
            world.set_price(name, zone, price, self.time.now().replace(microsecond=0))
            return f"another price of {name} in {zone}"
        world.room[name, zone, True] = dice.choice((0, 0, 1))
        return f"little room for {name} in {zone}"

    def _script(self, machine_id: str) -> str:
        data = base64.b64decode(self.fake.instance(machine_id).user_data)
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


@contextmanager
def scripted_aws(time: ScriptedTime, dice: Dice) -> Iterator[ScriptedAws]:
    """A new account that lives in `time`, and SDK clients that wait for some seconds at most."""
    mock_random.seed(dice.between(0, 1 << 30))  # the account's ids, which orders follow
    quick = Config(connect_timeout=_READ_SECONDS, read_timeout=_READ_SECONDS)
    with ExitStack() as stack:
        for name in ("_READ", "_WRITE"):
            stack.enter_context(patch.object(clients, name, getattr(clients, name).merge(quick)))
        stack.enter_context(told_time(time.now))
        yield ScriptedAws(stack.enter_context(open_aws_fake(queue_waits=False)), time, dice)
