"""What can go wrong in a simulated world, by name, and how often it does in a seed's.

Not here: what each does to the world (`faults`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What can go wrong."""

    WORKER_DIES = "worker_dies"  # between any two phases
    COMMIT_LOST = "commit_lost"  # the process dies before its commit
    COMMIT_UNKNOWN = "commit_unknown"  # the commit holds, its answer is lost
    STALE_LEASE = "stale_lease"  # a phase comes after its lease has ended
    RING_LOST = "ring_lost"
    RING_DOUBLED = "ring_doubled"
    CLOCK_JUMP = "clock_jump"
    OUTAGE = "outage"  # the whole control plane is away
    API_KILLED = "api_killed"  # one of its processes, and its memory of agents with it
    EXCHANGE_FAILS = "exchange_fails"  # what one process has answered is written late
    EXCHANGE_SLOW = "exchange_slow"
    REPORT_LOST = "report_lost"
    REPLY_LOST = "reply_lost"
    REPORT_LATE = "report_late"
    REPORT_DOUBLED = "report_doubled"
    AGENT_CUT_OFF = "agent_cut_off"  # it reaches the store, and not the control plane
    AGENT_RESTARTS = "agent_restarts"
    GPU_FAULT = "gpu_fault"
    STORE_AWAY = "store_away"
    THROTTLED = "throttled"
    CLOUD_UNAVAILABLE = "cloud_unavailable"
    LAUNCH_REPLY_LOST = "launch_reply_lost"
    LIST_INCOMPLETE = "list_incomplete"
    NOTICE = "notice"
    NOTICE_WITHOUT_KILL = "notice_without_kill"
    KILL_WITHOUT_NOTICE = "kill_without_notice"
    NOTICE_WHILE_BOOTING = "notice_while_booting"
    MACHINE_HANGS = "machine_hangs"  # it still costs money, and says nothing any more
    MACHINE_FAILS = "machine_fails"
    CANCEL = "cancel"
    CANCEL_WHILE_LAUNCHING = "cancel_while_launching"
    PAUSE = "pause"  # and resume an hour later
    # Of those who should be believed: `byzantine_faults`.
    FENCE_OF_OTHERS = "fence_of_others"  # an agent speaks for an attempt that it is not in
    OTHER_SESSION = "other_session"
    REPORT_REPLAYED = "report_replayed"  # after newer ones
    STEP_FALLS = "step_falls"
    ENDED_FENCE = "ended_fence"  # facts of an attempt that has ended
    SECOND_AGENT = "second_agent"  # with the launch token of the first
    FORMER_AGENT = "former_agent"  # its registration comes after that of its successor
    OTHER_MACHINE = "other_machine"
    AFTER_ITS_END = "after_its_end"  # a machine that is known to be gone reports
    REPORT_TORN = "report_torn"
    AGENT_DISK_FULL = "agent_disk_full"
    CLOCKS_DRIFT = "clocks_drift"  # those of agents
    FALSE_ABSENCE = "false_absence"  # a complete list, and a look, lack a machine that lives
    ABSENT_BRIEFLY = "absent_briefly"  # every look does, for seconds
    SHOWN_LATE = "shown_late"  # a new machine, a minute after its launch
    PRICE_JUMPS = "price_jumps"
    LAUNCH_OVERTAKEN = "launch_overtaken"  # its result comes under another worker's lease
    RELEASE_OVERTAKEN = "release_overtaken"
    LAUNCH_CALLED_LATE = "launch_called_late"  # its lease is over before its call
    RELEASE_CALLED_LATE = "release_called_late"
    CLOCKS_APART = "clocks_apart"  # those of the database, and of api and worker
    STORE_FULL = "store_full"
    BACKUP_RESTORED = "backup_restored"
    BACKUP_UNDER_API = "backup_under_api"  # restored while the api processes run on


RATES: Mapping[Fault, float] = {
    Fault.WORKER_DIES: 0.5,
    Fault.COMMIT_LOST: 0.5,
    Fault.COMMIT_UNKNOWN: 0.5,
    Fault.STALE_LEASE: 0.3,
    Fault.RING_LOST: 2.0,
    Fault.RING_DOUBLED: 1.0,
    Fault.CLOCK_JUMP: 0.06,
    Fault.OUTAGE: 0.12,
    Fault.API_KILLED: 0.4,
    Fault.EXCHANGE_FAILS: 0.4,
    Fault.EXCHANGE_SLOW: 0.4,
    Fault.REPORT_LOST: 1.0,
    Fault.REPLY_LOST: 1.0,
    Fault.REPORT_LATE: 0.5,
    Fault.REPORT_DOUBLED: 0.5,
    Fault.AGENT_CUT_OFF: 0.2,
    Fault.AGENT_RESTARTS: 0.1,
    Fault.GPU_FAULT: 0.04,
    Fault.STORE_AWAY: 0.1,
    Fault.THROTTLED: 0.5,
    Fault.CLOUD_UNAVAILABLE: 0.4,
    Fault.LAUNCH_REPLY_LOST: 0.3,
    Fault.LIST_INCOMPLETE: 0.3,
    Fault.NOTICE: 0.35,
    Fault.NOTICE_WITHOUT_KILL: 0.1,
    Fault.KILL_WITHOUT_NOTICE: 0.2,
    Fault.NOTICE_WHILE_BOOTING: 0.2,
    Fault.MACHINE_HANGS: 0.1,
    Fault.MACHINE_FAILS: 0.1,
    Fault.CANCEL: 0.02,
    Fault.CANCEL_WHILE_LAUNCHING: 0.02,
    Fault.PAUSE: 0.06,
    Fault.FENCE_OF_OTHERS: 0.4,
    Fault.OTHER_SESSION: 0.4,
    Fault.REPORT_REPLAYED: 0.4,
    Fault.STEP_FALLS: 0.3,
    Fault.ENDED_FENCE: 0.5,
    Fault.SECOND_AGENT: 0.3,
    Fault.FORMER_AGENT: 0.5,
    Fault.OTHER_MACHINE: 0.3,
    Fault.AFTER_ITS_END: 0.4,
    Fault.REPORT_TORN: 0.4,
    Fault.AGENT_DISK_FULL: 0.15,
    Fault.CLOCKS_DRIFT: 0.1,
    Fault.FALSE_ABSENCE: 0.2,
    Fault.ABSENT_BRIEFLY: 0.15,
    Fault.SHOWN_LATE: 0.3,
    Fault.PRICE_JUMPS: 0.1,
    Fault.LAUNCH_OVERTAKEN: 0.15,
    Fault.RELEASE_OVERTAKEN: 0.15,
    Fault.LAUNCH_CALLED_LATE: 0.15,
    Fault.RELEASE_CALLED_LATE: 0.15,
    Fault.CLOCKS_APART: 0.1,
    Fault.STORE_FULL: 0.1,
    Fault.BACKUP_RESTORED: 0.05,
    Fault.BACKUP_UNDER_API: 0.05,
}
"""How often each happens to a seed's world, per virtual hour."""


@dataclass
class FaultHistory:
    """What was injected, and for how long nobody could act on what was spent."""

    counts: dict[Fault, int] = field(default_factory=dict)
    away_seconds: float = 0.0
