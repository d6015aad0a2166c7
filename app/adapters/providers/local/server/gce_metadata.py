"""A machine's metadata as Google Compute Engine serves it.

The header rule, `wait_for_change`, `last_etag` and `timeout_sec` follow the Compute Engine
documentation ("View and query VM metadata", "Spot VMs"). Not here: when a notice is given
(`local_cloud`).
"""

from __future__ import annotations

import asyncio
import hashlib

from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.server.http_server import Reply, Request

_PREFIX = "/computeMetadata/v1/"
_FLAVOR = {"Metadata-Flavor": "Google"}
_WAIT_SECONDS_MAX = 3600.0


class GceMetadata:
    """The endpoint of one machine. Call `changed` after changing the machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._change = asyncio.Event()

    def changed(self) -> None:
        """Wake whoever waits for a change."""
        self._change.set()
        self._change = asyncio.Event()

    async def answer(self, request: Request) -> Reply:
        """One request, as Compute Engine answers it."""
        if request.headers.get("metadata-flavor") != "Google":
            return Reply(403, b"Missing Metadata-Flavor:Google header.\n", headers=_FLAVOR)
        if "x-forwarded-for" in request.headers:
            return Reply(403, headers=_FLAVOR)
        if request.method != "GET":
            return Reply(405, headers=_FLAVOR)
        if not request.path.startswith(_PREFIX):
            return Reply(404, headers=_FLAVOR)
        name = request.path.removeprefix(_PREFIX).rstrip("/")
        text = self._texts().get(name)
        if text is None:
            return Reply(404, headers=_FLAVOR)
        if request.query.get("wait_for_change", "").lower() == "true":
            seconds = _timeout_seconds(request)
            if seconds is None:
                return Reply(400, b"timeout_sec is a number of seconds\n", headers=_FLAVOR)
            text = await self._wait(name, text, request, seconds)
        headers = {**_FLAVOR, "ETag": _etag(text)}
        return Reply(200, text.encode(), "application/text", headers)

    async def _wait(self, name: str, text: str, request: Request, seconds: float) -> str:
        """The value once it differs from what the caller knows, at the latest after `seconds`."""
        known = request.query.get("last_etag", _etag(text))
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        gone = asyncio.ensure_future(request.hung_up())
        try:
            while _etag(text) == known and not gone.done() and loop.time() < ends:
                change = asyncio.ensure_future(self._change.wait())
                await asyncio.wait(
                    {change, gone},
                    timeout=ends - loop.time(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                change.cancel()
                text = self._texts()[name]
        finally:
            gone.cancel()
        return text

    def _texts(self) -> dict[str, str]:
        machine = self._machine
        taken = machine.noticed_at_us is not None
        number = int.from_bytes(hashlib.sha256(machine.machine_id.encode()).digest()[:7], "big")
        return {
            "instance/id": str(number),
            "instance/name": machine.machine_id,
            "instance/zone": f"projects/0/zones/{machine.pool.zone}",
            "instance/machine-type": f"projects/0/machineTypes/{machine.pool.instance_type}",
            "instance/maintenance-event": "NONE",
            "instance/preempted": "TRUE" if taken else "FALSE",
            **{f"instance/attributes/{key}": text for key, text in machine.user_data.items()},
        }


def _timeout_seconds(request: Request) -> float | None:
    text = request.query.get("timeout_sec")
    if text is None:
        return _WAIT_SECONDS_MAX
    if not (text.isascii() and text.isdigit()):
        return None
    return min(float(text), _WAIT_SECONDS_MAX)


def _etag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
