"""A machine's metadata as Google Compute Engine serves it.

The header rule, `wait_for_change`, `last_etag` and `timeout_sec` follow the Compute Engine
documentation ("View and query VM metadata", "Spot VMs"). Not here: when a notice is given
(`local_cloud`).
"""

from __future__ import annotations

import asyncio
import hashlib

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.adapters.providers.local.machines.machine import Machine

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

    async def answer(self, request: Request) -> Response:
        """One request, as Compute Engine answers it."""
        if request.headers.get("metadata-flavor") != "Google":
            return _refused(403, "Missing Metadata-Flavor:Google header.\n")
        if "x-forwarded-for" in request.headers:
            return _refused(403)
        if request.method != "GET":
            return _refused(405)
        if not request.url.path.startswith(_PREFIX):
            return _refused(404)
        name = request.url.path.removeprefix(_PREFIX).rstrip("/")
        text = self._texts().get(name)
        if text is None:
            return _refused(404)
        if request.query_params.get("wait_for_change", "").lower() == "true":
            seconds = _timeout_seconds(request)
            if seconds is None:
                return _refused(400, "timeout_sec is a number of seconds\n")
            text = await self._wait(name, text, request, seconds)
        headers = {**_FLAVOR, "ETag": _etag(text)}
        return Response(text, 200, headers, "application/text")

    async def _wait(self, name: str, text: str, request: Request, seconds: float) -> str:
        """The value once it differs from what the caller knows, at the latest after `seconds`."""
        known = request.query_params.get("last_etag", _etag(text))
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        await request.body()
        gone = asyncio.ensure_future(request.receive())  # the next message: the caller hung up
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


def _refused(status: int, text: str = "") -> Response:
    return PlainTextResponse(text, status, _FLAVOR)


def _timeout_seconds(request: Request) -> float | None:
    text = request.query_params.get("timeout_sec")
    if text is None:
        return _WAIT_SECONDS_MAX
    if not (text.isascii() and text.isdigit()):
        return None
    return min(float(text), _WAIT_SECONDS_MAX)


def _etag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
