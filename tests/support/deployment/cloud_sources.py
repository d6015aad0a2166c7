"""The two fake clouds as hosts of machines: what runs there, and what their images know.

Here: user data as each cloud hands it over, roles in the metadata, notices and power cuts. Not
here: processes (`cloud_machines`), or the clouds' own rules (`aws_fake`, `gce_fake`).
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.agent.fake_metadata import FakeMetadata
from tests.support.aws.aws_fake import AwsFake
from tests.support.deployment.cloud_machines import RentedMachine, Running
from tests.support.gce.gce_fake import FakeGce

ROLE_KEY = "ASIAROLE"
_ROLE = "lowtide-machine"
_NOTICE_SECONDS = 120
"""What EventBridge's warning means, whatever shorter notice a test gives."""


class AwsMachines:
    """EC2 as a host. store: variables that name an S3 server in place of Amazon's."""

    def __init__(self, fake: AwsFake, store: dict[str, str]) -> None:
        self._fake = fake
        self._store = store
        self._timers: list[threading.Timer] = []

    def running(self) -> list[Running]:
        """Machines past their start that nobody has ended."""
        with self._fake.world.lock:
            living = [one for one in self._fake.world.machines.values() if one.lives]
            return [Running(one.machine_id, self._script(one.machine_id)) for one in living]

    def equip(self, metadata: FakeMetadata) -> dict[str, str]:
        """The role's keys are at the machine's own metadata alone."""
        metadata.arm("iam/security-credentials/", _ROLE)
        keys = {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": ROLE_KEY,
            "SecretAccessKey": "of-the-role",
            "Token": "of-the-role",
            "Expiration": f"{datetime.now(UTC) + timedelta(hours=6):%Y-%m-%dT%H:%M:%SZ}",
        }
        metadata.arm(f"iam/security-credentials/{_ROLE}", keys)
        return {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.url,
            "AWS_METADATA_ENDPOINT": metadata.url,
            **self._store,
        }

    def powered_off(self, machine_id: str) -> None:
        """Power-off terminates, as the launch asked for."""
        self._fake.end(machine_id, "Client.InstanceInitiatedShutdown")

    def notice(self, machine_id: str, machine: RentedMachine, seconds: int) -> None:
        """Warn in the metadata and by EventBridge, and take the machine at the deadline."""
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        told = {"action": "terminate", "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        machine.metadata.arm("spot/instance-action", told)
        detail = {"instance-id": machine_id, "instance-action": "terminate"}
        warned_at = at - timedelta(seconds=_NOTICE_SECONDS)
        self._fake.publish("EC2 Spot Instance Interruption Warning", detail, warned_at)
        self._later(seconds, lambda: self._fake.take(machine_id))

    def close(self) -> None:
        """Nothing more is taken."""
        for timer in self._timers:
            timer.cancel()
            timer.join()

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, what)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _script(self, machine_id: str) -> bytes:
        data = base64.b64decode(self._fake.instance(machine_id).user_data)
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


class GceMachines:
    """Compute Engine as a host. store: variables that name object stores, and keys for one that
    the machines' own service account does not open.
    """

    def __init__(self, fake: FakeGce, store: dict[str, str]) -> None:
        self._fake = fake
        self._store = store

    def running(self) -> list[Running]:
        """Machines that run."""
        engine = self._fake.engine
        with engine.lock:
            engine.settle()
            found = [vm for vm in engine.live.values() if vm.status == "RUNNING"]
            return [Running(vm.name, _startup_script(vm.body)) for vm in found]

    def equip(self, metadata: FakeMetadata) -> dict[str, str]:
        """The service account's token is at the machine's own metadata alone."""
        token = {"access_token": "of-the-machine", "expires_in": 3_600, "token_type": "Bearer"}
        metadata.set_value("service-accounts/default/token", json.dumps(token))
        return {"GCE_METADATA_HOST": metadata.url.removeprefix("http://"), **self._store}

    def preempt(self, machine_id: str, machine: RentedMachine) -> None:
        """Take it after the notice that it was granted, which its metadata tells at once."""
        self._fake.engine.preempt(machine_id)
        machine.metadata.set_value("preempted", "TRUE")

    def powered_off(self, machine_id: str) -> None:
        """The guest has ended: the machine stays until it is deleted."""
        self._fake.engine.shut_down_inside(machine_id)


def _startup_script(body: dict[str, Any]) -> bytes:
    (script,) = [
        item["value"] for item in body["metadata"]["items"] if item["key"] == "startup-script"
    ]
    return str(script).encode()
