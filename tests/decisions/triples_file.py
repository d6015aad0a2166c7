"""How triples lie in their file: JSON lines under xz, each world's rows as changes from the last.

Ids and digests of a world are numbered, instants are told in seconds from its beginning: what
chance has drawn is not kept. Not here: what a state is (`stored_state`) or which are kept.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from app.simulation.engine.virtual_clock import MICROSECONDS, STARTS_AT
from tests.decisions.outcome import Outcome
from tests.decisions.replaying import Situation
from tests.decisions.row_journal import KEYS, Row, place_of
from tests.decisions.stored_state import State

RECORDED: Final = Path(__file__).with_name("recorded.jsonl.xz")
FORMAT: Final = 1

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_FOUND = re.compile(rf"({_UUID})|\b([0-9a-f]{{64}})\b|(\d{{4}}-\d\d-\d\dT[\d:.]+\+00:00)")
_NAMED = re.compile(r"~([uht])(-?[\d.]+)~")
# Digests that the control plane computes from what a state holds, and compares.
_COMPUTED = frozenset({"work_digest", "capacity_key", "project_id"})


@dataclass(frozen=True)
class Triple:
    """A situation, and what came of it."""

    situation: Situation
    outcome: Outcome


class Names:
    """Short names for the ids, digests and instants of one world."""

    def __init__(self, documents: Iterable[Any]) -> None:
        """documents: everything that is to be named."""
        ids: set[str] = set()
        digests: set[str] = set()
        kept: set[str] = set()
        for document in documents:
            _gather(document, ids, digests, kept)
        self._names = {name: f"~u{n}~" for n, name in enumerate(sorted(ids - kept))}
        self._names |= {name: f"~h{n}~" for n, name in enumerate(sorted(digests - kept))}

    def short(self, value: Any) -> Any:
        """The value with short names."""
        return _each_text(value, lambda text: _FOUND.sub(self._short, text))

    def _short(self, found: re.Match[str]) -> str:
        if found[3] is None:
            return self._names.get(found[0], found[0])
        since = (datetime.fromisoformat(found[3]) - STARTS_AT) / timedelta(microseconds=1)
        return f"~t{since / MICROSECONDS:.6f}".rstrip("0").rstrip(".") + "~"


def long(value: Any) -> Any:
    """The value with ids, digests and instants as a database takes them."""
    return _each_text(value, lambda text: _NAMED.sub(_long, text) if "~" in text else text)


def _long(found: re.Match[str]) -> str:
    kind, number = found[1], found[2]
    if kind == "u":
        return f"00000000-0000-7000-8000-{int(number):012x}"
    if kind == "h":
        return f"{int(number):064x}"
    past = timedelta(microseconds=round(float(number) * MICROSECONDS))
    return (STARTS_AT + past).isoformat()


def _gather(value: Any, ids: set[str], digests: set[str], kept: set[str]) -> None:
    if isinstance(value, Mapping):
        for name, one in value.items():
            if name in _COMPUTED and isinstance(one, str):
                kept.add(one)
            _gather(one, ids, digests, kept)
    elif isinstance(value, list | tuple):
        for one in value:
            _gather(one, ids, digests, kept)
    elif isinstance(value, str):
        for found in _FOUND.finditer(value):
            if found[1] is not None:
                ids.add(found[1])
            elif found[2] is not None:
                digests.add(found[2])


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _each_text(one, change) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each_text(one, change) for one in value]
    return value


def renamed(situations: Sequence[Situation]) -> list[Situation]:
    """A world's situations as they will be read from a file: with other ids, in the same order."""
    names = Names([[*one.state.values(), one.trigger] for one in situations])
    rows: dict[int, Row] = {}
    found = []
    for one in situations:
        state: State = {}
        for (table, _), row in one.state.items():
            if id(row) not in rows:
                rows[id(row)] = long(names.short(row))
            state[place_of(table, rows[id(row)])] = rows[id(row)]
        trigger = long(names.short(one.trigger))
        found.append(Situation(one.world, one.at, one.limits, trigger, state))
    return found


def write_triples(path: Path, triples: Iterable[Triple], more: Iterable[Any] = ()) -> int:
    """The file's bytes. triples: world by world, each world's by time. more: further lines."""
    lines: list[Any] = [{"format": FORMAT}]
    world, state, names = "", State(), Names(())
    for triple in triples:
        situation, outcome = triple.situation, triple.outcome
        if situation.world != world:
            world, state = situation.world, {}
            lines.append({"world": world, "limits": situation.limits})
        rows, gone = _difference(state, situation.state)
        state = situation.state
        document = {
            "at": situation.at.isoformat(),
            "trigger": situation.trigger,
            "rows": rows,
            "gone": gone,
            "kind": outcome.kind,
            "decision": outcome.decision,
            "effects": outcome.effects,
        }
        lines.append(_own_names(names, document))
    lines.extend(more)
    packed = lzma.compress(
        b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines),
        preset=9 | lzma.PRESET_EXTREME,
    )
    path.write_bytes(packed)
    return len(packed)


_OWN = re.compile(r"00000000-0000-7000-8000-([0-9a-f]{12})|\b(0{48}[0-9a-f]{16})\b")


def _own_names(names: Names, document: Any) -> Any:
    """Back to the short names that `renamed` has seen to."""

    def short(found: re.Match[str]) -> str:
        return f"~u{int(found[1], 16)}~" if found[1] else f"~h{int(found[2], 16)}~"

    return names.short(_each_text(document, lambda text: _OWN.sub(short, text)))


def _difference(old: State, new: State) -> tuple[list[Any], list[Any]]:
    """Rows that came or changed, with the columns that did, and keys of those that went."""
    rows: list[Any] = []
    for place, row in sorted(new.items(), key=lambda one: (one[0][0], str(one[0][1]))):
        before = old.get(place)
        if before == row:
            continue
        if before is not None:
            changed = [name for name in {*before, *row} if row.get(name) != before.get(name)]
            row = {name: row.get(name) for name in (*KEYS[place[0]], *sorted(changed))}
        rows.append([place[0], row])
    gone = [[place[0], list(place[1])] for place in old if place not in new]
    return rows, sorted(gone, key=str)


def read_lines(path: Path = RECORDED) -> Iterator[Any]:
    """The file's lines, the first one left out. Raises ValueError for another format."""
    with lzma.open(path) as file:
        first = orjson.loads(file.readline())
        if first != {"format": FORMAT}:
            raise ValueError(f"{path.name} is of another format: {first}")
        for line in file:
            yield orjson.loads(line)


def read_triples(
    path: Path = RECORDED, wanted: Callable[[int], bool] = lambda place: True
) -> Iterator[Triple]:
    """The triples of rows at the places that are wanted, counted from 0, in the file's order."""
    world, limits, state, place = "", dict[str, Any](), State(), -1
    known: dict[int, tuple[Row, Row]] = {}
    for line in read_lines(path):
        if "world" in line:
            world, limits, state, known = line["world"], line["limits"], {}, {}
        elif "at" in line:
            place += 1
            _advance(state, line)
            if wanted(place):
                at = datetime.fromisoformat(long(line["at"]))
                trigger, rows = long(line["trigger"]), _long_rows(state, known)
                told = long({name: line[name] for name in ("kind", "decision", "effects")})
                yield Triple(Situation(world, at, limits, trigger, rows), Outcome(**told))


def _advance(state: State, line: Mapping[str, Any]) -> None:
    for table, key in line["gone"]:
        del state[table, tuple(key)]
    for table, columns in line["rows"]:
        place = place_of(table, columns)
        row = {**state.get(place, {}), **columns}
        state[place] = {name: value for name, value in row.items() if value is not None}


def _long_rows(state: State, known: dict[int, tuple[Row, Row]]) -> State:
    """The rows as a database takes them; known: by the short one's identity, which it keeps."""
    found: State = {}
    for (table, _), row in state.items():
        if id(row) not in known:
            known[id(row)] = (row, long(row))
        made = known[id(row)][1]
        found[place_of(table, made)] = made
    return found
