"""The one way a state changes: a complete table of (state, event) pairs.

Every pair is a move, a stay or illegal. Facts (something the world did) are never illegal: they
are recorded and then move the state or leave it. Commands (something a person or one of our own
decisions asked for) are illegal wherever no row allows them. The tables themselves live with their
nouns in `job`, `attempt` and `instance`; nothing here knows what a state means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Generic, Literal, TypeVar

from app.domain.units.errors import CommandRefused

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class Unmoved(Enum):
    """The two outcomes that leave the state as it is."""

    STAY = "stay"
    ILLEGAL = "illegal"


STAY: Final = Unmoved.STAY
ILLEGAL: Final = Unmoved.ILLEGAL


@dataclass(frozen=True, slots=True)
class Move(Generic[S]):
    """The state becomes `to`, which always differs from the state it came from."""

    to: S


Outcome = Move[S] | Literal[Unmoved.STAY, Unmoved.ILLEGAL]


@dataclass(frozen=True, slots=True)
class TransitionRow(Generic[S, E]):
    """From any of `sources`, `event` leads to `to`; a row onto its own source is a legal stay."""

    sources: tuple[S, ...]
    event: E
    to: S
    note: str = ""


class IllegalTransition(CommandRefused):
    """A command that the present state does not allow; its text can be shown to a person."""

    def __init__(self, noun: str, state: str, event: str, allowed_in: Iterable[str]) -> None:
        self.noun = noun
        self.state = state
        self.event = event
        self.allowed_in = tuple(allowed_in)
        where = ", ".join(self.allowed_in) or "no state"
        super().__init__(
            f"The {noun} is {state}, and '{event.replace('_', ' ')}' does not apply there; "
            f"it applies while the {noun} is: {where}."
        )


class TransitionTable(Generic[S, E]):
    """All pairs of `states` × `events`, checked for completeness when it is built.

    Raises ValueError when facts and commands do not part the events exactly, a row starts in a
    terminal state, two rows claim one pair, an event has no row, or a state that is not terminal
    has no way out.
    """

    def __init__(
        self,
        noun: str,
        *,
        states: type[S],
        events: type[E],
        commands: frozenset[E],
        facts: frozenset[E],
        terminal: frozenset[S],
        rows: Iterable[TransitionRow[S, E]],
    ) -> None:
        self.noun = noun
        self.states: tuple[S, ...] = tuple(states)
        self.events: tuple[E, ...] = tuple(events)
        self.commands = commands
        self.facts = facts
        self.terminal = terminal
        self.rows: tuple[TransitionRow[S, E], ...] = tuple(rows)
        self._check_events()
        self._outcomes = self._fill(self._rows_by_pair())
        self._check_ways_out()

    @property
    def initial(self) -> S:
        """The state a new row of this noun is born in: the first one of the enum."""
        return self.states[0]

    def on(self, state: S, event: E) -> Outcome[S]:
        """What `event` does to `state`; never raises for a known pair."""
        return self._outcomes[state, event]

    def next_state(self, state: S, event: E) -> S:
        """The state after `event`; raises IllegalTransition when the pair is illegal."""
        outcome = self.on(state, event)
        if isinstance(outcome, Move):
            return outcome.to
        if outcome is ILLEGAL:
            raise IllegalTransition(self.noun, state, event, self.sources_of(event))
        return state

    def allows(self, state: S, event: E) -> bool:
        """Whether `next_state` would answer rather than raise."""
        return self.on(state, event) is not ILLEGAL

    def sources_of(self, event: E) -> tuple[S, ...]:
        """States in which a row gives `event` a meaning, in the enum's order."""
        named = {source for row in self.rows if row.event is event for source in row.sources}
        return tuple(state for state in self.states if state in named)

    def pairs(self) -> Iterator[tuple[S, E, Outcome[S]]]:
        """Every pair with its outcome, in the order of the enums."""
        for (state, event), outcome in self._outcomes.items():
            yield state, event, outcome

    def _check_events(self) -> None:
        both = self.facts & self.commands
        missing = set(self.events) - self.facts - self.commands
        if both or missing:
            raise ValueError(
                f"{self.noun}: events in both facts and commands: {sorted(both)}; "
                f"in neither: {sorted(missing)}"
            )
        unused = set(self.events) - {row.event for row in self.rows}
        if unused:
            raise ValueError(f"{self.noun}: events without a row: {sorted(unused)}")

    def _rows_by_pair(self) -> dict[tuple[S, E], TransitionRow[S, E]]:
        found: dict[tuple[S, E], TransitionRow[S, E]] = {}
        for row in self.rows:
            for source in row.sources:
                if source in self.terminal:
                    raise ValueError(f"{self.noun}: {source} is terminal; {row.event} leaves it")
                if (source, row.event) in found:
                    raise ValueError(f"{self.noun}: two rows for {source} on {row.event}")
                found[source, row.event] = row
        return found

    def _fill(self, rows: dict[tuple[S, E], TransitionRow[S, E]]) -> dict[tuple[S, E], Outcome[S]]:
        outcomes: dict[tuple[S, E], Outcome[S]] = {}
        for state in self.states:
            for event in self.events:
                row = rows.get((state, event))
                if row is None:
                    outcomes[state, event] = STAY if event in self.facts else ILLEGAL
                else:
                    outcomes[state, event] = STAY if row.to is state else Move(row.to)
        return outcomes

    def _check_ways_out(self) -> None:
        with_exit = {state for state, _, outcome in self.pairs() if isinstance(outcome, Move)}
        stuck = set(self.states) - with_exit - self.terminal
        if stuck:
            raise ValueError(f"{self.noun}: no way out of {sorted(stuck)}")
