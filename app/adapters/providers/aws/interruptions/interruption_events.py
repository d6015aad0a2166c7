"""What EventBridge's events say about our machines, as announcements.

Sources: EC2's event types "EC2 Spot Instance Interruption Warning", "EC2 Capacity Reservation
Instance Interruption Warning" (it tells its own time), "EC2 Instance Rebalance Recommendation" and
"EC2 Instance State-change Notification"; "AWS Health events Amazon EventBridge schema". An
instance is read from `detail`: the resource's ARN has another shape in each.
Not here: the queue (`interruption_queue`), or what an announcement does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.adapters.providers.aws.client.describing import STATES
from app.ports.interruption_feed import Announcement, AnnouncementKind

log = logging.getLogger(__name__)

NOTICE_SECONDS: Final = 120
"""EC2 writes a spot warning two minutes before it takes a machine."""

_KINDS: Final = {
    "EC2 Spot Instance Interruption Warning": AnnouncementKind.INTERRUPTION,
    "EC2 Capacity Reservation Instance Interruption Warning": AnnouncementKind.INTERRUPTION,
    "EC2 Instance Rebalance Recommendation": AnnouncementKind.REBALANCE,
    "EC2 Instance State-change Notification": AnnouncementKind.STATE_CHANGE,
}
_HEALTH: Final = ("aws.health", "AWS Health Event")
_INSTANCE: Final = "i-"


def read_message(message: Mapping[str, Any]) -> tuple[Announcement, ...]:
    """The announcements in an SQS message, none when it is about something else."""
    try:
        event, receipt = json.loads(message["Body"]), str(message["ReceiptHandle"])
        if (event["source"], event["detail-type"]) == _HEALTH:
            return _maintenance(event, receipt)
        kind = _KINDS.get(event["detail-type"]) if event["source"] == "aws.ec2" else None
        return () if kind is None else (_about_instance(kind, event, receipt),)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.warning("a message in the interruption queue cannot be read: %s", error)
        return ()


def _about_instance(kind: AnnouncementKind, event: Mapping[str, Any], receipt: str) -> Announcement:
    detail, at = event["detail"], _instant(event["time"])
    deadline = None
    if kind is AnnouncementKind.INTERRUPTION:
        told = detail.get("instance-termination-time")
        deadline = at + timedelta(seconds=NOTICE_SECONDS) if told is None else _instant(told)
    return Announcement(
        provider_instance_id=str(detail["instance-id"]),
        kind=kind,
        at=at,
        receipt=receipt,
        deadline=deadline,
        state=STATES.get(detail.get("state", "")),
        region=str(event.get("region", "")),
    )


def _maintenance(event: Mapping[str, Any], receipt: str) -> tuple[Announcement, ...]:
    """A reboot, retirement or other change that AWS plans for instances, days ahead.

    Told as a recommendation to leave: the machine goes on until then.
    """
    detail = event["detail"]
    planned = detail.get("eventTypeCategory") == "scheduledChange"
    if detail.get("service") != "EC2" or not planned or detail.get("statusCode") == "closed":
        return ()
    named = [str(one["entityValue"]) for one in detail.get("affectedEntities", [])]
    at = _instant(event["time"])
    return tuple(
        Announcement(one, AnnouncementKind.REBALANCE, at, receipt)
        for one in dict.fromkeys(named)
        if one.startswith(_INSTANCE)
    )


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
