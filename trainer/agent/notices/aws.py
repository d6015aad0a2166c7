"""EC2's warnings from the instance metadata service, version 2 only.

Spot interruption: `spot/instance-action`, 404 until the instance is marked, then a fixed JSON of
action and time. Rebalance recommendation and scheduled events are looked at less often. Source:
EC2 User Guide, "Spot Instance interruption notices" and "Use IMDSv2". The legacy
`spot/termination-time` is not read: it may hold a value that is no time.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from trainer.agent.notices import Notice, NoticeKind, notice_id_of
from trainer.agent.notices.metadata_http import MetadataAnswer, MetadataUnknown, call

TOKEN_SECONDS = 3_600
TOKEN_SPARE_SECONDS = 60
REBALANCE_PERIOD_SECONDS = 5.0
SCHEDULED_PERIOD_SECONDS = 60.0
OK, UNAUTHORIZED, NOT_FOUND = 200, 401, 404


class Ec2Notices:
    """Ask once a second; each `poll` is at most a few local calls of `timeout_seconds`."""

    pause_seconds = 1.0

    def __init__(self, url: str, timeout_seconds: float = 2.0) -> None:
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._token: str | None = None
        self._token_until = 0.0
        self._rebalance_at = 0.0
        self._scheduled_at = 0.0

    def instance_id(self) -> str:
        """This machine's id at EC2; raises MetadataUnknown."""
        answer = self._get("/latest/meta-data/instance-id")
        if answer.status != OK or not answer.text.strip():
            raise MetadataUnknown(f"instance-id answered {answer.status}")
        return answer.text.strip()

    def poll(self) -> Notice | None:
        """The most urgent warning there is, the same one every time, or None.

        Raises MetadataUnknown when the server did not say: refusals, server errors, time limits.
        """
        interruption = self._json_of("/latest/meta-data/spot/instance-action")
        if interruption is not None:
            return _interruption(interruption)
        now = time.monotonic()
        if now >= self._rebalance_at:
            self._rebalance_at = now + REBALANCE_PERIOD_SECONDS
            hint = self._json_of("/latest/meta-data/events/recommendations/rebalance")
            if isinstance(hint, dict):
                told = str(hint.get("noticeTime"))
                identity = notice_id_of("rebalance", told)
                return Notice(NoticeKind.REBALANCE, "rebalance", None, "ec2", identity)
        if now >= self._scheduled_at:
            self._scheduled_at = now + SCHEDULED_PERIOD_SECONDS
            events = self._json_of("/latest/meta-data/events/maintenance/scheduled")
            if isinstance(events, list):
                return _first_scheduled(events)
        return None

    def _json_of(self, path: str) -> Any:
        """The parsed document, None for 404. A body that is no JSON is unknown, not a notice."""
        answer = self._get(path)
        if answer.status == NOT_FOUND:
            return None
        if answer.status != OK:
            raise MetadataUnknown(f"{path} answered {answer.status}")
        try:
            return json.loads(answer.text)
        except ValueError:
            raise MetadataUnknown(f"{path} is no JSON") from None

    def _get(self, path: str) -> MetadataAnswer:
        """GET with a token; a refused token is renewed once."""
        answer = self._get_once(path)
        if answer.status == UNAUTHORIZED:
            self._token = None
            answer = self._get_once(path)
        return answer

    def _get_once(self, path: str) -> MetadataAnswer:
        if self._token is None or time.monotonic() >= self._token_until:
            self._renew_token()
        headers = {"X-aws-ec2-metadata-token": self._token or ""}
        return call(self._url, path, headers, self._timeout_seconds)

    def _renew_token(self) -> None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
        asked_at = time.monotonic()
        answer = call(self._url, "/latest/api/token", headers, self._timeout_seconds, "PUT")
        if answer.status != OK:
            raise MetadataUnknown(f"the metadata token was refused with {answer.status}")
        self._token = answer.text.strip()
        self._token_until = asked_at + TOKEN_SECONDS - TOKEN_SPARE_SECONDS


def _interruption(document: object) -> Notice:
    """A document of another shape is still a warning: EC2 answers 404 when nothing is planned."""
    action, told = "terminate", ""
    if isinstance(document, dict):
        action = str(document.get("action") or action)
        told = str(document.get("time") or "")
    seconds = _seconds_until(told, "%Y-%m-%dT%H:%M:%SZ")
    if action == "hibernate":
        seconds = 0.0  # hibernation begins with the notice
    return Notice(
        NoticeKind.INTERRUPTION, action, seconds, "ec2", notice_id_of("spot", action, told)
    )


def _first_scheduled(events: list[Any]) -> Notice | None:
    active = [event for event in events if isinstance(event, dict) and _is_active(event)]
    if not active:
        return None
    event = min(active, key=lambda event: str(event.get("EventId")))
    code, begins = str(event.get("Code", "maintenance")), str(event.get("NotBefore", ""))
    return Notice(
        NoticeKind.MAINTENANCE,
        code,
        _seconds_until(begins, "%d %b %Y %H:%M:%S GMT"),
        "ec2",
        notice_id_of("scheduled", str(event.get("EventId")), code, begins),
    )


def _is_active(event: dict[str, Any]) -> bool:
    return str(event.get("State", "active")).lower() == "active"


def _seconds_until(told: str, pattern: str) -> float | None:
    try:
        at = datetime.strptime(told, pattern).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (at - datetime.now(UTC)).total_seconds()
