"""What can go wrong in a simulated world, by name, and how often it does in a seed's.

Not here: what each does to the world (`faults`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What can go wrong, and how often it does in a seed's world, per virtual hour."""

    per_hour: float

    def __new__(cls, value: str, per_hour: float) -> Fault:
        """A member with its name in logs and its rate."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.per_hour = per_hour
        return kind

    WORKER_DIES = "worker_dies", 0.5  # between any two phases
    COMMIT_LOST = "commit_lost", 0.5  # the process dies before its commit
    COMMIT_UNKNOWN = "commit_unknown", 0.5  # the commit holds, its answer is lost
    STALE_LEASE = "stale_lease", 0.3  # a phase comes after its lease has ended
    RING_LOST = "ring_lost", 2.0
    RING_DOUBLED = "ring_doubled", 1.0
    CLOCK_JUMP = "clock_jump", 0.06
    OUTAGE = "outage", 0.12  # the whole control plane is away
    API_KILLED = "api_killed", 0.4  # one of its processes, and its memory of agents with it
    EXCHANGE_FAILS = "exchange_fails", 0.4  # what one process has answered is written late
    EXCHANGE_SLOW = "exchange_slow", 0.4
    REPORT_LOST = "report_lost", 1.0
    REPLY_LOST = "reply_lost", 1.0
    REPORT_LATE = "report_late", 0.5
    REPORT_DOUBLED = "report_doubled", 0.5
    AGENT_CUT_OFF = "agent_cut_off", 0.2  # it reaches the store, and not the control plane
    AGENT_RESTARTS = "agent_restarts", 0.1
    GPU_FAULT = "gpu_fault", 0.04
    STORE_AWAY = "store_away", 0.1
    THROTTLED = "throttled", 0.5
    CLOUD_UNAVAILABLE = "cloud_unavailable", 0.4
    LAUNCH_REPLY_LOST = "launch_reply_lost", 0.3
    LIST_INCOMPLETE = "list_incomplete", 0.3
    NOTICE = "notice", 0.35
    NOTICE_WITHOUT_KILL = "notice_without_kill", 0.1
    KILL_WITHOUT_NOTICE = "kill_without_notice", 0.2
    NOTICE_WHILE_BOOTING = "notice_while_booting", 0.2
    MACHINE_HANGS = "machine_hangs", 0.1  # it still costs money, and says nothing any more
    MACHINE_FAILS = "machine_fails", 0.1
    CANCEL = "cancel", 0.02
    CANCEL_WHILE_LAUNCHING = "cancel_while_launching", 0.02
    PAUSE = "pause", 0.06  # and resume an hour later
    # Of those who should be believed: `byzantine_faults`.
    FENCE_OF_OTHERS = "fence_of_others", 0.4  # an agent speaks for an attempt that it is not in
    OTHER_SESSION = "other_session", 0.4
    REPORT_REPLAYED = "report_replayed", 0.4  # after newer ones
    STEP_FALLS = "step_falls", 0.3
    ENDED_FENCE = "ended_fence", 0.5  # facts of an attempt that has ended
    SECOND_AGENT = "second_agent", 0.3  # with the launch token of the first
    FORMER_AGENT = "former_agent", 0.5  # its registration comes after that of its successor
    OTHER_MACHINE = "other_machine", 0.3
    AFTER_ITS_END = "after_its_end", 0.4  # a machine that is known to be gone reports
    REPORT_TORN = "report_torn", 0.4
    AGENT_DISK_FULL = "agent_disk_full", 0.15
    CLOCKS_DRIFT = "clocks_drift", 0.1  # those of agents
    FALSE_ABSENCE = "false_absence", 0.2  # a complete list, and a look, lack a machine that lives
    ABSENT_BRIEFLY = "absent_briefly", 0.15  # every look does, for seconds
    SHOWN_LATE = "shown_late", 0.3  # a new machine, a minute after its launch
    PRICE_JUMPS = "price_jumps", 0.1
    LAUNCH_OVERTAKEN = "launch_overtaken", 0.15  # its result comes under another worker's lease
    RELEASE_OVERTAKEN = "release_overtaken", 0.15
    LAUNCH_CALLED_LATE = "launch_called_late", 0.15  # its lease is over before its call
    RELEASE_CALLED_LATE = "release_called_late", 0.15
    CLOCKS_APART = "clocks_apart", 0.1  # those of the database, and of api and worker
    STORE_FULL = "store_full", 0.1
    BACKUP_RESTORED = "backup_restored", 0.05
    BACKUP_UNDER_API = "backup_under_api", 0.05  # restored while the api processes run on


RATES: Mapping[Fault, float] = {kind: kind.per_hour for kind in Fault}
"""The usual rate of each."""


@dataclass
class FaultHistory:
    """What was injected, and for how long nobody could act on what was spent."""

    counts: dict[Fault, int] = field(default_factory=dict)
    away_seconds: float = 0.0
