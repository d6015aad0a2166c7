"""Compute Engine's warnings from its metadata server.

`instance/preempted` is asked with a hanging GET that returns when the value changes, and is asked
anew after its own time limit, so that a half-open connection cannot hide the change. Source:
Compute Engine documentation, "Spot VMs" and "View and query VM metadata".
"""

from __future__ import annotations

from urllib.parse import quote

from trainer.agent.notices import Notice, NoticeKind, notice_id_of
from trainer.agent.notices.metadata_http import MetadataAnswer, MetadataUnknown, call

WAIT_SECONDS = 20
MAINTENANCE_SECONDS = 3_600.0
"""GPU machines are told this long before maintenance ends them (Compute Engine, host events)."""
OK = 200
_INSTANCE = "/computeMetadata/v1/instance"
_FLAVOR = {"Metadata-Flavor": "Google"}


class GceNotices:
    """Each `poll` hangs up to `wait_seconds`; `notice_seconds` is what the machine was granted."""

    pause_seconds = 0.05

    def __init__(
        self, url: str, notice_seconds: float = 30.0, wait_seconds: int = WAIT_SECONDS
    ) -> None:
        self._url = url
        self._notice_seconds = notice_seconds
        self._wait_seconds = wait_seconds
        self._etag: str | None = None
        self._preempted = False

    def instance_id(self) -> str:
        """The machine's name, which is its id at the provider; raises MetadataUnknown."""
        name = self._get(f"{_INSTANCE}/name", 5.0).text.strip()
        if not name:
            raise MetadataUnknown("instance/name is empty")
        return name

    def poll(self) -> Notice | None:
        """The warning there is, or None; raises MetadataUnknown when the server did not say."""
        path = f"{_INSTANCE}/preempted"
        if self._etag is not None and not self._preempted:
            etag = quote(self._etag, safe="")
            path += f"?wait_for_change=true&timeout_sec={self._wait_seconds}&last_etag={etag}"
        answer = self._get(path, self._wait_seconds + 5.0)
        self._etag = answer.headers.get("etag")
        self._preempted = answer.text.strip().upper() == "TRUE"
        if self._preempted:
            seconds, identity = self._notice_seconds, notice_id_of("preempted")
            return Notice(NoticeKind.INTERRUPTION, "preempt", seconds, "gce", identity)
        event = self._get(f"{_INSTANCE}/maintenance-event", 5.0).text.strip()
        if event.startswith("TERMINATE"):
            identity = notice_id_of("maintenance", event)
            return Notice(
                NoticeKind.MAINTENANCE, event.lower(), MAINTENANCE_SECONDS, "gce", identity
            )
        return None

    def _get(self, path: str, timeout_seconds: float) -> MetadataAnswer:
        answer = call(self._url, path, _FLAVOR, timeout_seconds)
        if answer.status != OK:
            raise MetadataUnknown(f"{path} answered {answer.status}")
        if answer.headers.get("metadata-flavor") != "Google":
            raise MetadataUnknown(f"{path} was not answered by the metadata server")
        return answer
