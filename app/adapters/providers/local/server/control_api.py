"""The verbs of the cloud's control socket: `POST /VERB` with a JSON object, a JSON object back.

Here: JSON to calls and back. Not here: what the verbs do (`local_cloud`), or who calls them
(`cloud_client`). A refused call answers 400 with `{"kind", "message"}`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.adapters.providers.local.machines.launching import CloudRefusal, read_order
from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.server.cloud_bill import attached_microusd, compute_microusd
from app.adapters.providers.local.server.http_server import LostReply
from app.adapters.providers.local.server.local_cloud import LocalCloud, now_us
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Pool
from app.ports.cloud_provider import MachineState, RefusalKind

_STOP_TIMEOUT_SECONDS = 20.0
_POINTS_MAX = 50_000

Document = dict[str, Any]


class ControlApi:
    """One cloud's verbs. `stopped` is set once the cloud has been told to stop and has."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.stopped = asyncio.Event()
        self._cloud = cloud
        self._replies_to_lose = 0
        self._verbs: dict[str, Callable[[Document], Awaitable[Document]]] = {
            "hello": self._hello,
            "launch": self._launch,
            "describe": self._describe,
            "find": self._find,
            "list": self._list,
            "terminate": self._terminate,
            "power_off": self._power_off,
            "interrupt": self._interrupt,
            "crash": self._crash,
            "offers": self._offers,
            "price_changes": self._price_changes,
            "invoice": self._invoice,
            "lose_replies": self._lose_replies,
            "stop": self._stop,
        }

    async def answer(self, request: Request) -> Response:
        """One request on the control socket."""
        verb = request.url.path.removeprefix("/")
        action = self._verbs.get(verb)
        if request.method != "POST" or action is None:
            return _refused(404, RefusalKind.REJECTED, f"no verb {verb!r}")
        try:
            document = json.loads(await request.body() or b"{}")
            answer = await action(document)
        except CloudRefusal as refusal:
            return _refused(400, refusal.kind, str(refusal))
        except (KeyError, TypeError, ValueError) as error:
            return _refused(400, RefusalKind.REJECTED, f"{verb}: {error!r}")
        if self._replies_to_lose > 0 and verb != "lose_replies":
            self._replies_to_lose -= 1
            return LostReply()
        return JSONResponse(answer)

    async def _hello(self, document: Document) -> Document:
        terms = self._cloud.terms
        return {"pid": os.getpid(), "epoch_us": terms.epoch_us}

    async def _launch(self, document: Document) -> Document:
        order = read_order(document, self._cloud.settings.machines_max)
        launch = await self._cloud.launch(order)
        machines = [self._cloud.find(machine_id) for machine_id in launch["machine_ids"]]
        return {"machines": [_shown(one) for one in machines], "refused": launch["refused"]}

    async def _describe(self, document: Document) -> Document:
        wanted = set(document["machine_ids"])
        return self._all_shown(lambda machine: machine.machine_id in wanted)

    async def _find(self, document: Document) -> Document:
        token = document["client_token"]
        return self._all_shown(lambda machine: machine.client_token == token)

    async def _list(self, document: Document) -> Document:
        region, tag = document["region"], self._cloud.settings.deployment_tag

        def is_ours(machine: Machine) -> bool:
            tagged = tag is None or machine.tags.get(tag[0]) == tag[1]
            return machine.pool.region == region and tagged

        return self._all_shown(is_ours)

    async def _terminate(self, document: Document) -> Document:
        wanted = set(document["machine_ids"])
        for machine in self._cloud.machines():
            if machine.machine_id in wanted:
                self._cloud.end(machine, EndedBy.US)
        return {}

    async def _power_off(self, document: Document) -> Document:
        self._cloud.end(self._cloud.find(document["machine_id"]), EndedBy.OS_SHUTDOWN)
        return {}

    async def _interrupt(self, document: Document) -> Document:
        if "notice_seconds" not in document:
            return {"ends_at_us": self._cloud.interrupt_as_usual(document["machine_id"])}
        seconds = document["notice_seconds"]
        if seconds is not None and not 0 <= seconds <= 86_400:
            message = "notice_seconds is 0 to 86400, or none for no notice at all"
            raise CloudRefusal(RefusalKind.REJECTED, message)
        return {"ends_at_us": self._cloud.interrupt(document["machine_id"], seconds)}

    async def _crash(self, document: Document) -> Document:
        await self._cloud.crash(document["machine_id"])
        return {}

    async def _offers(self, document: Document) -> Document:
        at_us, markets = now_us(), self._cloud.markets
        running: dict[Pool, int] = {}
        for machine in self._cloud.machines():
            if machine.state is not MachineState.TERMINATED:
                running[machine.pool] = running.get(machine.pool, 0) + 1
        offers = []
        for market in markets.pools():
            room = markets.offered(market.pool, at_us)
            if room is not None:
                room = max(0, room - running.get(market.pool, 0))
            offers.append(
                {
                    "pool": market.pool.key,
                    "cloud": market.cloud,
                    "hardware": market.hardware.to_json(),
                    "price_microusd_per_hour": markets.price_at(market.pool, at_us),
                    "on_demand_microusd_per_hour": market.on_demand_microusd,
                    "source": market.source,
                    "available": room,
                }
            )
        terms = self._cloud.terms
        attachments = {
            "disk_gb": terms.disk_gb,
            "disk_microusd_per_gb_month": terms.disk_microusd_per_gb_month,
            "public_ip_microusd_per_hour": terms.public_ip_microusd_per_hour,
        }
        return {
            "at_us": at_us,
            "offers": offers,
            "billing_speed": int(terms.billing_speed),
            "attachments": attachments,
            "epoch_us": terms.epoch_us,
        }

    async def _price_changes(self, document: Document) -> Document:
        since_us, until_us, markets = document["since_us"], now_us(), self._cloud.markets
        changes: list[tuple[str, int, int, str]] = []
        for market in markets.pools():
            for point in markets.price_points(market.pool, since_us, until_us):
                price = point.microusd_per_hour
                changes.append((market.pool.key, point.at_us, price, market.source))
                if len(changes) > _POINTS_MAX:
                    message = f"more than {_POINTS_MAX} price changes since then; ask for fewer"
                    raise CloudRefusal(RefusalKind.REJECTED, message)
        return {"changes": changes}

    async def _invoice(self, document: Document) -> Document:
        until_us = document["until_us"]
        until_us = now_us() if until_us is None else until_us
        speed = self._cloud.terms.billing_speed
        bill = {}
        for machine in self._cloud.machines():
            amount = compute_microusd(machine, self._cloud.markets, speed, until_us)
            if amount is not None:
                beside = attached_microusd(machine, self._cloud.terms, until_us)
                bill[machine.machine_id] = {"compute": amount, **beside}
        return {"invoice": bill}

    async def _lose_replies(self, document: Document) -> Document:
        self._replies_to_lose = int(document["count"])
        return {}

    async def _stop(self, document: Document) -> Document:
        left = await self._cloud.stop(_STOP_TIMEOUT_SECONDS)
        asyncio.get_running_loop().call_later(0.05, self.stopped.set)
        return {"still_there": left}

    def _all_shown(self, wanted: Callable[[Machine], bool]) -> Document:
        return {"machines": [_shown(one) for one in self._cloud.shown() if wanted(one)]}


def _shown(machine: Machine) -> Document:
    return {
        "machine_id": machine.machine_id,
        "client_token": machine.client_token,
        "pool": machine.pool.key,
        "state": machine.state,
        "launched_at_us": machine.launched_at_us,
        "ended_by": machine.ended_by,
        "ended_at_us": machine.ended_at_us,
        "tags": machine.tags,
    }


def _refused(status: int, kind: RefusalKind, message: str) -> Response:
    return JSONResponse({"kind": kind, "message": message}, status)
