"""The poll of the cloud's metadata for interruption notices, in a thread of its own.

Not here: what each cloud answers (`notices`) and what a notice changes (`supervisor`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from trainer.agent.machine.agent_settings import AgentSettings
from trainer.agent.notices import Notice
from trainer.agent.notices.aws import Ec2Notices
from trainer.agent.notices.gcp import GceNotices
from trainer.agent.notices.metadata_http import MetadataUnknown
from trainer.agent.rules.observations import NoticeSeen, Observation

AGAIN_SECONDS = 1.0


class NoticeSource(Protocol):
    """One cloud's metadata."""

    pause_seconds: float

    def instance_id(self) -> str:
        """The machine's id at its provider; raises MetadataUnknown."""
        ...

    def poll(self) -> Notice | None:
        """The warning there is, or None; raises MetadataUnknown."""
        ...


def notice_source(settings: AgentSettings) -> NoticeSource:
    """The watcher for the machine's cloud."""
    if settings.cloud == "ec2":
        return Ec2Notices(settings.metadata_url)
    return GceNotices(settings.metadata_url, settings.notice_seconds)


def watch_notices(
    source: NoticeSource, observe: Callable[[Observation], None], stopping: threading.Event
) -> None:
    """Poll until `stopping`; not knowing is never a notice, and is asked again soon."""
    pause, told = 0.0, None
    while not stopping.wait(pause):
        try:
            notice = source.poll()
        except MetadataUnknown:
            pause = AGAIN_SECONDS
            continue
        if notice is not None and notice.notice_id != told:
            told = notice.notice_id
            observe(NoticeSeen(notice))
        pause = source.pause_seconds if notice is None else AGAIN_SECONDS
