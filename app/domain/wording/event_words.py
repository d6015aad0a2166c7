"""What a job's history calls its kinds and who caused them, on pages and in the command line.

Kinds are stored and named after events of the state tables; scripts use them. Not here: the
sentences of the entries, which those write who record them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Final, Literal, Protocol, TypeVar, overload

from app.domain.lifecycle.attempt import AttemptEvent
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.domain.lifecycle.instance import InstanceEvent
from app.domain.lifecycle.job import JobEvent


class _Told(Protocol):
    """An entry of a history: its sentence, number, kind and time, and the machine it is about."""

    @overload
    def __getitem__(self, key: Literal["message"], /) -> str: ...

    @overload
    def __getitem__(self, key: Literal["seq"], /) -> int: ...

    def __setitem__(self, key: Literal["machine"], value: None, /) -> None: ...

    def get(self, key: Literal["machine", "kind", "message", "at"], /) -> object: ...


Row = TypeVar("Row", bound=_Told)

_J, _A, _I, _K = JobEvent, AttemptEvent, InstanceEvent, JobEventKind
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

EVENT_WORDS: Final[Mapping[str, str]] = {
    _K.SUBMITTED: "submitted",
    _J.CLAIMED: "attempt begins",
    _J.ATTEMPT_STARTED: "trainer starts",
    _J.ATTEMPT_SUCCEEDED: "succeeded",
    _J.COMPLETION_FOUND: "succeeded",
    _J.ATTEMPT_ENDED_FRESH: "back in the queue",
    _J.ATTEMPT_ENDED_RETRYABLE: "trying again",
    _J.ATTEMPT_ENDED_FATAL: "failed",
    _J.STOP_ORDERED: "stopping",
    _J.STOPPED_FOR_USER: "cancelled",
    _J.STOPPED_FOR_LIMIT: "stopped at a limit",
    _J.STOPPED_FOR_BUDGET: "paused by a budget",
    _J.STOPPED_FOR_PAUSE: "paused",
    _J.RESUMED: "resumed",
    _J.BUDGET_PERIOD_BEGAN: "back in the queue",
    _J.GIVEN_UP: "given up",
    _A.MEMBER_MISSING: "machine missing",
    _A.MEMBERS_REGISTERED: "machines ready",
    _A.OFFERS_EXHAUSTED: "no machines",
    _A.PROVISIONING_EXPIRED: "start timed out",
    _A.TRAINER_STARTED: "trainer starts",
    _A.DRAIN_ORDERED_STOP: "saving to stop",
    _A.DRAIN_ORDERED_INTERRUPTION: "saving to leave",
    _A.DRAIN_ORDERED_YIELD: "saving to move",
    _A.ALL_MEMBERS_FINISHED: "training finished",
    _A.ALL_DRAINED_STOP: "saved",
    _A.ALL_DRAINED_INTERRUPTION: "saved",
    _A.ALL_DRAINED_YIELD: "saved",
    _A.MEMBER_ENDED: "trainer ended",
    _A.MEMBER_GONE: "machine gone",
    _A.STALL_DETECTED: "stalled",
    _A.DRAIN_EXPIRED: "saving timed out",
    _A.VERDICT_SUCCEEDED: "attempt succeeded",
    _A.VERDICT_INTERRUPTED: "attempt interrupted",
    _A.VERDICT_FAILED: "attempt failed",
    _A.VERDICT_STOPPED: "attempt stopped",
    _A.VERDICT_YIELDED: "attempt moved",
    _A.VERDICT_LOST: "attempt lost",
    _I.LAUNCH_SUBMITTED: "machine requested",
    _I.LAUNCH_ACCEPTED: "machine rented",
    _I.LAUNCH_REFUSED: "refused by the cloud",
    _I.AGENT_REGISTERED: "machine ready",
    _I.INTERRUPTION_NOTICED: "interruption notice",
    _I.RELEASE_ORDERED: "releasing",
    _I.STOP_OBSERVED: "shutting down",
    _I.OVERDUE: "notice overdue",
    _I.ABSENCE_CONFIRMED: "machine gone",
    _K.WAITING: "waiting",
    _K.REPLACEMENT_REQUESTED: "replacement requested",
    _K.GANG_SIZED: "number of machines",
    _K.GROWTH_REQUESTED: "growing",
    _K.INSTANCE_UNREACHABLE: "machine silent",
    _K.INSTANCE_HEARD_AGAIN: "machine reports again",
    _K.INSTANCE_ADOPTED: "machine adopted",
    _K.CREDENTIAL_REFUSED: "credential refused",
    _K.BOOT_FAILED: "boot failed",
    _K.BOOT_WARNED: "boot warning",
    _K.MEMBER_PREPARED: "machine prepared",
    _K.TRAINING_RESUMED: "training resumed",
    _K.MEMBER_DRAINED: "machine saved",
    _K.MEMBER_FINISHED: "machine finished",
    _K.CHECKPOINT_COMMITTED: "checkpoint saved",
    _K.FINISHED_WITHOUT_CHECKPOINT: "finished, nothing saved",
    _K.IMAGE_PINNED: "image pinned",
    _K.OUTPUTS_SAVED: "outputs saved",
    _K.OUTPUTS_NOT_SAVED: "outputs not saved",
    _K.CHECKPOINT_REJECTED: "checkpoint rejected",
    _K.ATTEMPT_FENCED: "attempt cut off",
    _K.BUDGET_CHANGED: "budget changed",
    _K.DEADLINE_UNSAFE: "deadline at risk",
    _K.DEADLINE_MISSED: "deadline missed",
    _K.MOVED_TO_ON_DEMAND: "moved to on-demand",
    _K.MOVED_TO_SPOT: "moved to spot",
    _K.MIGRATION_BEGUN: "moving",
    _K.MIGRATION_GIVEN_UP: "move cancelled",
    _K.STALE_RESULT: "late result",
    _K.LATE_FACT: "late report",
    _K.DISK_FULL: "disk full",
    _K.DISK_HAS_ROOM: "disk has space again",
    _K.STORAGE_ACCESS_FAILS: "no access to storage",
    _K.STORAGE_ACCESS_BACK: "access to storage back",
    _K.SECRETS_DELIVERED: "secrets given",
    _K.REBALANCE_RECOMMENDED: "interruption more likely",
    _K.START_REVISED: "start corrected",
    _K.END_REVISED: "end corrected",
    _K.COST_WAIVED: "not charged",
}


_VERDICTS: Final = frozenset(
    {
        _A.VERDICT_SUCCEEDED,
        _A.VERDICT_INTERRUPTED,
        _A.VERDICT_FAILED,
        _A.VERDICT_STOPPED,
        _A.VERDICT_YIELDED,
        _A.VERDICT_LOST,
    }
)
_ATTEMPT_ENDS: Final = frozenset(
    {_J.ATTEMPT_ENDED_FRESH, _J.ATTEMPT_ENDED_RETRYABLE, _J.ATTEMPT_ENDED_FATAL}
)


def event_words(kind: str) -> str:
    """What a kind is called; of another version's kind its own words."""
    return EVENT_WORDS.get(kind) or kind.replace("_", " ")


def actor_words(text: str, machine: str | None) -> str:
    """Who caused an entry, of `kind:name`: a key's name, control plane, cloud or a machine.

    machine: what the machine is called that the entry is about or that reported it.
    """
    try:
        actor = Actor.parse(text)
    except ValueError:
        return text  # of a later version
    match actor.kind:
        case ActorKind.PERSON:
            return actor.name
        case ActorKind.CONTROLLER:
            return "control plane"
        case ActorKind.CLOUD:
            return "cloud"
        case ActorKind.AGENT:
            return machine or ("a machine" if _ID.fullmatch(actor.name) else actor.name)


def without_doubles(events: Iterable[Row]) -> list[Row]:
    """Rows of a history, in either order of their numbers, each thing that happened told once.

    A job, its attempt and its machines each record what happens to all of them; of those, the entry
    that names its machine is kept, else the oldest. What happens to two machines alike is told of
    each, but for a request, which tells of all its machines. What an entry only announces is left
    out before the entry that tells it: the trainer's end and the attempt's before what follows for
    the job. That all machines are registered is left out after the entry of the last one.
    """
    rows = [copy(event) for event in events]
    turned = len(rows) > 1 and rows[0]["seq"] > rows[-1]["seq"]
    kept: list[Row] = []
    for row in reversed(rows) if turned else rows:
        _add(kept, row)
    return kept[::-1] if turned else kept


def _add(kept: list[Row], row: Row) -> None:
    """Add the next entry to those that are kept, or fold it into the last of them."""
    while kept and _announces(kept[-1], row):
        kept.pop()
    if not kept:
        kept.append(row)
    elif _is_ready_told(kept[-1], row):
        pass
    elif _is_one_request(kept[-1], row):
        kept[-1]["machine"] = None
    elif kept[-1]["message"] != row["message"] or row.get("kind") == _I.LAUNCH_SUBMITTED:
        kept.append(row)
    elif row.get("machine") not in (None, kept[-1].get("machine")):
        if kept[-1].get("machine") is None:
            kept.pop()
        kept.append(row)


def _announces(before: _Told, row: _Told) -> bool:
    """Whether the entry before tells a part of what this one tells in full."""
    kinds = before.get("kind"), row.get("kind")
    if kinds[0] == _A.MEMBER_ENDED:
        return kinds[1] in _VERDICTS
    same = before["message"] == row["message"]
    return kinds[0] in _VERDICTS and kinds[1] in _ATTEMPT_ENDS and not same


def _is_ready_told(before: _Told, row: _Told) -> bool:
    return before.get("kind") == _I.AGENT_REGISTERED and row.get("kind") == _A.MEMBERS_REGISTERED


def _is_one_request(before: _Told, row: _Told) -> bool:
    """Of one transaction: another attempt may request as many machines, too."""
    requested = row.get("kind") == before.get("kind") == _I.LAUNCH_SUBMITTED
    alike = before["message"] == row["message"] and before.get("at") == row.get("at")
    return requested and alike
