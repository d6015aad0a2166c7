"""What a machine is doing, and how several are called, in the words that every reader has.

Not here: since when, or what of it costs what (`app.web.job.machine_rows`, `cost_statement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from app.domain.lifecycle.instance import EndedBy, InstanceState
from app.domain.market.offer import Pool
from app.domain.units.durations import exact_duration
from trainer.protocol.agent_report import MachinePhase

PHASE_WORDS: Final[Mapping[str, str]] = {
    MachinePhase.BOOT: "booting",
    MachinePhase.SETUP: "setting up",
    MachinePhase.IDLE: "idle",
    MachinePhase.RESTORE: "restoring",
    MachinePhase.GANG_WAIT: "waiting for the others",
    MachinePhase.COMPILE: "compiling the model",
    MachinePhase.TRAIN: "training",
    MachinePhase.CHECKPOINT: "saving a checkpoint",
    MachinePhase.EVAL: "evaluating",
    MachinePhase.DRAIN: "saving to leave",
}
_STATE_WORDS: Final[Mapping[InstanceState, str]] = {
    InstanceState.REQUESTED: "requested",
    InstanceState.LAUNCHING: "requested",
    InstanceState.TERMINATING: "being released",
    InstanceState.TERMINATED: "gone",
    InstanceState.LAUNCH_FAILED: "refused by the cloud",
}
_ENDERS: Final[dict[str, str]] = {
    EndedBy.US: "Lowtide",
    EndedBy.OS_SHUTDOWN: "its own shutdown",
    EndedBy.RUN_LIMIT: "its run-time limit",
    EndedBy.OUTSIDER: "somebody else",
}
_BEFORE_ITS_FIRST_WORD: Final = "booting"
_CLOUDS: Final[Mapping[str, str]] = {
    "local": "the local cloud",
    "aws": "AWS",
    "gcp": "Google Cloud",
}


def cloud_words(provider: str) -> str:
    """Whose machine it is, as in "from the local cloud"; of a provider not known here, its name."""
    return _CLOUDS.get(provider, provider)


def ended_words(ended_by: str | None) -> str:
    """Who ended a machine, as in "ended by Lowtide"; of another version's values, their names."""
    known = ended_by or EndedBy.UNKNOWN
    return _ENDERS.get(known) or known.replace("_", " ")


def billing_speed_words(speed: int) -> str:
    """That each second is billed as several, where the local cloud does so; else ""."""
    if speed <= 1:
        return ""
    billed = exact_duration(speed)
    return f"The local cloud bills {billed} for each second; every cost here counts that."


def machine_words(state: InstanceState, phase: str | None) -> str:
    """What it is doing. phase: of its agent's newest report, None before the first."""
    if state in _STATE_WORDS:
        return _STATE_WORDS[state]
    if phase is None:
        return _BEFORE_ITS_FIRST_WORD
    return PHASE_WORDS.get(phase) or phase.replace("_", " ")


def machines_in_words(number: int) -> str:
    """ "1 machine", "3 machines"."""
    return "1 machine" if number == 1 else f"{number} machines"


def machines_at_hand(ready: int, coming: int) -> str:
    """What a new attempt has of the machines it needs: "1 machine ready, 1 on the way".

    ready: those whose agent has registered. coming: those requested, or not registered yet. Both 0:
    it needs all of its machines.
    """
    if not ready:
        return f"{machines_in_words(coming)} on the way" if coming else "requesting machines"
    told = f"{machines_in_words(ready)} ready"
    return f"{told}, {coming} on the way" if coming else told


def all_machines_are(number: int) -> str:
    """How a sentence on a whole gang begins: "The machine is", "Both machines are"."""
    few = {1: "The machine is", 2: "Both machines are"}
    return few.get(number, f"All {number} machines are")


def node_words(rank: int, count: int) -> str:
    """One machine of an attempt: "the machine", or "node 1 (one of 2 machines)" of a gang."""
    return "the machine" if count == 1 else f"node {rank} (one of {machines_in_words(count)})"


def gang_words(number: int, nodes: int | str) -> str:
    """ "3 machines", or "3 of 2–4 machines" where the number may change; nodes: of the spec."""
    if not isinstance(nodes, str):
        return machines_in_words(number)
    return f"{number} of {nodes.replace('..', '–')} machines"


def zone_words(pools: Iterable[Pool | None]) -> str:
    """ " in us-west-2a, us-west-2b"; "" where no place is known yet."""
    zones = sorted({pool.zone for pool in pools if pool is not None})
    return f" in {', '.join(zones)}" if zones else ""
