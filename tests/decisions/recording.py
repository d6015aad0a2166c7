"""Records triples: worlds are simulated, and some of each kind of decision in them are kept.

Kept are all decisions of a rare kind, and of a common one so many in each world, drawn by a digest
of world and place, so that a change elsewhere leaves the draw as it is. What a triple says came of
its state is what the code does there from a standing start (`replaying`). Not here: the worlds.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from app.domain.units.errors import DomainError
from app.orchestration.frame.runtime import Limits
from app.simulation.engine.scratch_database import ScratchDatabases
from app.simulation.runs.run_world import WorldRun, run_world
from app.simulation.simulated.world import WorldSettings
from tests.decisions.outcome import Outcome, outcome_of, source_of
from tests.decisions.replaying import Situation, replays
from tests.decisions.row_journal import begin_journal
from tests.decisions.stored_state import states_at
from tests.decisions.triples_file import Triple, read_triples, renamed, write_triples
from tests.decisions.watch_world import Moment, Watch
from tests.decisions.worlds import RecordedWorld

OF_NO_CHANGE_MAX = 3
"""Of a kind of which nothing about machines was decided, at most so many in each world."""

_NOT_REPLAYED = frozenset({"find"})


@dataclass
class Tally:
    """How the recording went.

    same, other: decisions that the world's own control plane came to just so, or otherwise, as with
    something remembered, or with offers read a moment before. refused: commands that are no
    decision, as a report of a machine that was released.
    """

    moments: int = 0
    kept: int = 0
    same: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        others = ", ".join(f"{count} x {name}" for name, count in self.other.most_common())
        refused = ", ".join(f"{count} x {name}" for name, count in self.refused.most_common())
        return (
            f"{self.kept} of {self.moments} moments; {self.same.total()} as the world decided, "
            f"otherwise {others or 'none'}; refused {refused or 'none'}"
        )


def record_world(world: RecordedWorld, databases: ScratchDatabases, tally: Tally) -> list[Triple]:
    """A world's triples, by time."""
    watch = _watched(world, databases)
    moments = sorted(watch.moments, key=lambda one: one.seq)
    tally.moments += len(moments)
    chosen = list(_sampled(world, moments))
    states = list(states_at(watch.changes, [one.seq for one in chosen]))
    limits = unusual(world.limits)
    situations = renamed(
        [
            Situation(world.name, one.at, limits, one.trigger, state)
            for one, state in zip(chosen, states, strict=True)
        ]
    )
    found: list[Triple] = []
    seen: set[bytes] = set()
    with databases.one() as url, replays(url) as again:
        for moment, situation in zip(chosen, situations, strict=True):
            try:
                outcome = again.outcome(situation)
            except DomainError as error:
                tally.refused[f"{source_of(situation.trigger)}: {type(error).__name__}"] += 1
                continue
            _compare(tally, moment, outcome)
            told = [source_of(situation.trigger), outcome.decision, outcome.effects]
            digest = hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).digest()
            if digest not in seen:
                seen.add(digest)
                tally.kept += 1
                found.append(Triple(situation, outcome))
    return found


def unusual(limits: Limits) -> Mapping[str, Any]:
    """A deployment's limits that differ from the usual ones."""
    usual = asdict(Limits())
    return {name: value for name, value in asdict(limits).items() if value != usual[name]}


def _watched(world: RecordedWorld, databases: ScratchDatabases) -> Watch:
    watch = Watch()
    settings = WorldSettings(
        world.seed,
        world.hours,
        market=world.market,
        limits=world.limits,
        controllers=watch.controllers,
        project_cap_microusd=world.project_cap_microusd,
    )

    def begin(run: WorldRun) -> None:
        watch.begin(run)
        world.begin(run)

    def finish(run: WorldRun) -> None:
        watch.end()

    with databases.one() as url:
        begin_journal(url)
        run_world(url, settings, begin, world.hours, f"world {world.name}", finish=finish)
    return watch


def _sampled(world: RecordedWorld, moments: Sequence[Moment]) -> Iterator[Moment]:
    """Those that are kept, in their order."""
    by_kind: dict[str, list[tuple[bytes, int]]] = {}
    for place, moment in enumerate(moments):
        if moment.trigger.get("answer", {}).get("step") not in _NOT_REPLAYED:
            kind = outcome_of(moment.trigger, moment.did, moment.at).kind
            drawn = hashlib.sha256(f"{world.name} {place}".encode()).digest()
            by_kind.setdefault(kind, []).append((drawn, place))
    kept: set[int] = set()
    for kind, drawn_places in by_kind.items():
        most = OF_NO_CHANGE_MAX if _decides_nothing(kind) else world.of_a_kind_max
        kept |= {place for _, place in sorted(drawn_places)[:most]}
    return (moments[place] for place in sorted(kept))


def _decides_nothing(kind: str) -> bool:
    """Of launches it is not known before they are replayed; of turns, where rows have changed."""
    source, _, came = kind.partition(": ")
    if source.startswith("report"):
        return came in ("nothing", "rows alone", "checkpoint_committed")
    return came == "nothing" and not source.startswith("launch")


def _compare(tally: Tally, moment: Moment, outcome: Outcome) -> None:
    """With what the world's own control plane did, where that was seen."""
    if moment.did:
        did = outcome_of(moment.trigger, moment.did, moment.at)
        alike = did.kind == outcome.kind and len(did.effects) == len(outcome.effects)
        (tally.same if alike else tally.other)[source_of(moment.trigger)] += 1


def record_parts(
    worlds: Sequence[RecordedWorld],
    databases: ScratchDatabases,
    parts: Path,
    told: Callable[[str], None],
) -> None:
    """A file for each world that has none: a recording that was cut off goes on."""
    for number, world in enumerate(worlds, 1):
        part = _part(parts, world)
        if not part.exists():
            tally = Tally()
            write_triples(fresh := part.with_suffix(".new"), record_world(world, databases, tally))
            fresh.rename(part)
            told(f"{number}/{len(worlds)}  {world.name}: {tally}")


def recorded_parts(worlds: Sequence[RecordedWorld], parts: Path) -> Iterator[Triple]:
    """The triples of all worlds that have been recorded."""
    for part in (_part(parts, world) for world in worlds):
        if part.exists():
            yield from read_triples(part)


def _part(parts: Path, world: RecordedWorld) -> Path:
    return parts / f"{world.name.replace(' ', '-')}.xz"
