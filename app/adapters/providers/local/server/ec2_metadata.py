"""A machine's metadata as Amazon EC2 serves it: IMDSv2 and nothing older.

Paths, token rules and the JSON of notices follow the EC2 User Guide ("Use the Instance Metadata
Service", "Spot Instance interruption notices", "EC2 instance rebalance recommendations").
Not here: when a notice is given (`local_cloud`).
"""

from __future__ import annotations

import json
import secrets
import time
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.adapters.providers.local.machines.machine import Machine
from app.domain.market.offer import Market

_TOKEN_PATH = "/latest/api/token"
_TTL_HEADER = "x-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "x-aws-ec2-metadata-token"
_TTL_SECONDS_MAX = 21_600
_TOKENS_MAX = 256


class Ec2Metadata:
    """The endpoint of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._tokens: dict[str, float] = {}

    async def answer(self, request: Request) -> Response:
        """One request, as EC2 answers it."""
        if request.url.path == _TOKEN_PATH:
            return self._new_token(request)
        if request.method != "GET":
            return Response(status_code=405)
        expires_at = self._tokens.get(request.headers.get(_TOKEN_HEADER, ""))
        if expires_at is None or expires_at <= time.monotonic():
            return Response(status_code=401)
        text = self._document(request.url.path.rstrip("/"))
        return Response(status_code=404) if text is None else PlainTextResponse(text)

    def _new_token(self, request: Request) -> Response:
        if request.method != "PUT":
            return Response(status_code=405)
        if "x-forwarded-for" in request.headers:
            return Response(status_code=403)
        ttl = request.headers.get(_TTL_HEADER, "")
        if not (ttl.isascii() and ttl.isdigit() and len(ttl) <= 5):
            return Response(status_code=400)
        if not 1 <= int(ttl) <= _TTL_SECONDS_MAX:
            return Response(status_code=400)
        now = time.monotonic()
        self._tokens = {token: end for token, end in self._tokens.items() if end > now}
        while len(self._tokens) >= _TOKENS_MAX:
            self._tokens.pop(next(iter(self._tokens)))
        token = secrets.token_urlsafe(40)
        self._tokens[token] = now + int(ttl)
        return PlainTextResponse(token, headers={"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": ttl})

    def _document(self, path: str) -> str | None:
        machine = self._machine
        if path == "/latest/dynamic/instance-identity/document":
            return self._identity()
        section, found, name = path.partition("/latest/meta-data/")
        if section or not found:
            return None
        spot = machine.pool.market is Market.SPOT
        texts = {
            "instance-id": machine.machine_id,
            "instance-type": machine.pool.instance_type,
            "instance-life-cycle": "spot" if spot else "on-demand",
            "local-ipv4": "127.0.0.1",
            "placement/availability-zone": machine.pool.zone,
            "placement/region": machine.pool.region,
            "events/maintenance/scheduled": "[]",
            "tags/instance": "\n".join(sorted(machine.tags)),
            **{f"tags/instance/{key}": value for key, value in machine.tags.items()},
            **self._notices(),
        }
        return texts.get(name)

    def _notices(self) -> dict[str, str]:
        """Nothing until the notice; then one deadline, the same at every look."""
        machine = self._machine
        if machine.deadline_at_us is None or machine.noticed_at_us is None:
            return {}
        ends = _whole_seconds(machine.deadline_at_us)
        return {
            "spot/instance-action": json.dumps(
                {"action": "terminate", "time": ends}, separators=(",", ":")
            ),
            "spot/termination-time": ends,
            "events/recommendations/rebalance": json.dumps(
                {"noticeTime": _whole_seconds(machine.noticed_at_us)}, separators=(",", ":")
            ),
        }

    def _identity(self) -> str:
        machine = self._machine
        return json.dumps(
            {
                "accountId": "000000000000",
                "architecture": "x86_64",
                "availabilityZone": machine.pool.zone,
                "imageId": "ami-00000000000000000",
                "instanceId": machine.machine_id,
                "instanceType": machine.pool.instance_type,
                "pendingTime": _whole_seconds(machine.launched_at_us),
                "privateIp": "127.0.0.1",
                "region": machine.pool.region,
                "version": "2017-09-30",
            },
            indent=2,
        )


def _whole_seconds(at_us: int) -> str:
    """EC2's form of an instant. Cut, not rounded: a deadline is never shown later than it is."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
