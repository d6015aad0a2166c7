"""Replays a triple: rows into a database, the trigger, and what came of it.

Not here: the code that decides (`todays_code`), or where triples are kept (`triples_file`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.decisions.outcome import Outcome, outcome_of
from tests.decisions.row_journal import begin_journal, changes_since, one_connection
from tests.decisions.stored_state import LoadedRows, State
from tests.decisions.todays_code import ControlPlane


@dataclass(frozen=True)
class Situation:
    """The first of the three: all that a decision may rest on.

    limits: the deployment's periods and bounds that are not as usual.
    """

    world: str
    at: datetime
    limits: Mapping[str, Any]
    trigger: Mapping[str, Any]
    state: State


class Replays:
    """Replays situations in one database, whose rows are its own."""

    def __init__(self, url: str) -> None:
        """url: of a migrated database without rows."""
        begin_journal(url)
        self._engine = one_connection(url)
        self._rows = LoadedRows()
        self._seq = 0

    def outcome(self, situation: Situation) -> Outcome:
        """What the code of today decides there, and does."""
        with self._engine.begin() as connection:
            self._rows.load(connection, situation.state)
        try:
            ControlPlane(self._engine, situation.at, situation.limits).decide(situation.trigger)
        finally:
            with self._engine.connect() as connection:
                changes = changes_since(connection, self._seq)
            self._seq = changes[-1].seq if changes else self._seq
            self._rows.changed(changes)
        return outcome_of(situation.trigger, changes, situation.at)

    def close(self) -> None:
        """No further ones."""
        self._engine.dispose()


@contextmanager
def replays(url: str) -> Iterator[Replays]:
    """Replays that say nothing in logs."""
    made = Replays(url)
    try:
        with quiet("app.orchestration"):
            yield made
    finally:
        made.close()


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Nothing is logged under this name."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
