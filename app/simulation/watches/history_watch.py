"""Reads every job's new history and holds it against the tables and against the true world.

Lives here: numbering, moves only through the tables, and that nothing is lost on silence alone.
Not here: rows as they stand (`invariants`), money, or the checkpoint store (`lineage_watch`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text

from app.domain.lifecycle.attempt import ATTEMPT_TRANSITIONS, AttemptEvent
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import INSTANCE_TRANSITIONS, InstanceEvent, InstanceState
from app.domain.lifecycle.job import JOB_TRANSITIONS, JobEvent
from app.domain.lifecycle.transition_table import TransitionTable
from app.orchestration.frame.silence import GivenUpBy
from app.simulation.engine.invariant_error import InvariantError
from app.simulation.engine.virtual_clock import MICROSECONDS, microseconds
from app.simulation.simulated.simulated_machine import SimulatedMachine
from app.simulation.simulated.world import World
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession

_NEW_EVENTS = Ready(
    text(
        "SELECT seq, actor, kind, noun, noun_id, from_state, to_state, message, "
        "data->>'given_up_by' FROM events WHERE job_id = :job_id AND seq > :after ORDER BY seq"
    )
)
_MACHINE = Ready(text("SELECT provider, provider_instance_id FROM instances WHERE id = :id"))
_READ = text("SELECT id, event_seq FROM jobs ORDER BY id")
_STATES = text(
    "SELECT id, state FROM jobs UNION ALL SELECT id, state FROM attempts "
    "UNION ALL SELECT id, state FROM instances ORDER BY id"
)
_TABLES: dict[str, tuple[TransitionTable[Any, Any], type[Any], type[Any]]] = {
    "job": (JOB_TRANSITIONS, type(JOB_TRANSITIONS.initial), JobEvent),
    "attempt": (ATTEMPT_TRANSITIONS, type(ATTEMPT_TRANSITIONS.initial), AttemptEvent),
    "instance": (INSTANCE_TRANSITIONS, type(INSTANCE_TRANSITIONS.initial), InstanceEvent),
}
_SILENCE_WATCH = "controller:watch_contacts"
_CLOUDS_WORD = ("cloud:reconcile_instances", "cloud:sweep_deployment")
_TOLERANCE_SECONDS = 2.0
_GIVEN_UP_WITHIN_SECONDS = 300.0
_NEWBORN_SECONDS = 60.0


class HistoryLine(NamedTuple):
    """What a line of history says, in the order in which it is read."""

    seq: int
    actor: str
    kind: str
    noun: str
    noun_id: UUID
    from_state: str | None
    to_state: str | None
    message: str
    given_up_by: str | None


class HistoryWatch:
    """Remembers how far each job's history was read, and every noun's newest state."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read: dict[UUID, int] = {}
        self._states: dict[UUID, str] = {}
        self._launched_us: dict[UUID, int] = {}
        self._restored_us = 0
        self.events = 0
        self.newest: list[str] = []
        self.listeners: list[Callable[[str], None]] = []

    def check(self, reader: RecordSession, job_id: UUID, state: str, event_seq: int) -> None:
        """Read what is new; raises InvariantError."""
        after = self._read.get(job_id, 0)
        found = reader.rows(_NEW_EVENTS, {"job_id": job_id, "after": after})
        rows = [HistoryLine(*row) for row in found]
        self.newest = [row.kind for row in rows]
        for expected, row in enumerate(rows, start=after + 1):
            if row.seq != expected:
                raise InvariantError("history is numbered without gaps", f"{job_id}: {row}")
            self._check_move(row)
            self._record_launched(row)
            self._check_witness(reader, row)
            self._world.log.write(f"job {str(job_id)[-6:]}", f"{row.kind}: {row.message}")
            for listener in self.listeners:
                listener(row.kind)
        self.events += len(rows)
        self._read[job_id] = after + len(rows)
        if self._read[job_id] != event_seq:
            raise InvariantError(
                "history is numbered without gaps", f"{job_id}: {self._read[job_id]}, {event_seq}"
            )
        told = self._states.get(job_id)
        if told is not None and told != state:
            raise InvariantError(
                "a state changes only through its table", f"job {job_id} is {state}, not {told}"
            )

    def _check_move(self, row: HistoryLine) -> None:
        if row.to_state is None or row.noun not in _TABLES:
            return
        table, states, events = _TABLES[row.noun]
        if row.from_state is not None:
            known = self._states.get(row.noun_id, row.from_state)
            moved = table.next_state(states(row.from_state), events(row.kind))
            if known != row.from_state or moved != row.to_state:
                raise InvariantError("a state changes only through its table", str(row))
        self._states[row.noun_id] = row.to_state

    def _record_launched(self, row: HistoryLine) -> None:
        """Since when a machine is waited for; one that was found is not, until a person says so."""
        if row.to_state == InstanceState.LAUNCHED:
            self._launched_us[row.noun_id] = self._world.clock.true_us
        elif row.to_state is not None or row.kind == JobEventKind.INSTANCE_ADOPTED:
            self._launched_us.pop(row.noun_id, None)

    def check_registrations(self) -> None:
        """A machine whose agent does not come is given up, unless nobody is there to see to it."""
        clock, limits = self._world.clock, self._world.runtime.limits
        seconds = limits.registration_timeout_seconds + _GIVEN_UP_WITHIN_SECONDS
        before_us = clock.true_us - microseconds(seconds + clock.largest_error_seconds)
        if self._world.worker.up_since_us > before_us:
            return
        for instance_id, since_us in self._launched_us.items():
            if since_us < before_us:
                silent = (clock.true_us - since_us) / MICROSECONDS
                raise InvariantError(
                    "a machine whose agent does not come is given up",
                    f"instance {instance_id} was launched {silent:.0f} s ago",
                )

    def _check_witness(self, reader: RecordSession, row: HistoryLine) -> None:
        if row.actor == _SILENCE_WATCH and row.kind.startswith("drain_ordered"):
            raise InvariantError("nothing is drained on silence", str(row))
        if row.actor == _SILENCE_WATCH and row.kind == "release_ordered":
            self._check_silence(reader, row)
        if row.actor in _CLOUDS_WORD and row.kind in ("absence_confirmed", "stop_observed"):
            self._check_gone(reader, row)

    def rewind(self) -> None:
        """The rows have gone back to a backup, and with them all history since."""
        with self._world.engine.connect() as connection:
            self._read = {row.id: row.event_seq for row in connection.execute(_READ)}
            self._states = {row.id: row.state for row in connection.execute(_STATES)}
        self._launched_us.clear()
        self._restored_us = self._world.clock.true_us

    def _check_silence(self, reader: RecordSession, row: HistoryLine) -> None:
        """Given up by its silence: then it was truly unheard for as long as the rule asks.

        Silence counts only while somebody listens; a lease, whoever listens.
        """
        limits = self._world.runtime.limits
        if row.given_up_by is None:
            return  # released for what followed from it, as the end of its job
        lease_over = row.given_up_by == GivenUpBy.LEASE
        heard_us = self._world.network.answered_us.get(str(row.noun_id))
        if heard_us is None:
            raise InvariantError("silence counts only from an answer on", str(row))
        if lease_over and heard_us <= self._restored_us:
            return  # nobody knows of the answers that it got since the backup
        if not lease_over:
            heard_us = max(heard_us, self._world.network.hears_since_us)
        elif not self._world.clock.largest_error_seconds:
            self._check_lease(reader, row)
        silent = (self._world.clock.true_us - heard_us) / MICROSECONDS
        needed = limits.agent_lease_seconds if lease_over else limits.force_silence_seconds
        needed -= self._world.clock.largest_error_seconds
        if silent + _TOLERANCE_SECONDS < needed:
            raise InvariantError(
                "nothing is stopped or released on silence without a second witness",
                f"instance {row.noun_id} was answered {silent:.0f} s ago: {row.message}",
            )

    def _never_shown(self, machine: SimulatedMachine) -> bool:
        """Its cloud does not show it as yet, and by a clock that jumped it is no newborn."""
        clock = self._world.clock
        soon_us = machine.visible_us + microseconds(_NEWBORN_SECONDS)
        return clock.largest_error_seconds > 0 and clock.true_us < soon_us

    def _check_lease(self, reader: RecordSession, row: HistoryLine) -> None:
        """Its agent knows by its own clock that the lease is over."""
        ((_, machine_id),) = reader.rows(_MACHINE, {"id": row.noun_id})
        agent = self._world.agents.get(machine_id)
        if agent is not None and agent.has_lease():
            raise InvariantError("a lease is over for its agent first", f"{machine_id}: {row}")

    def _check_gone(self, reader: RecordSession, row: HistoryLine) -> None:
        """Called gone by its cloud: then it is, or is shutting down."""
        ((provider, machine_id),) = reader.rows(_MACHINE, {"id": row.noun_id})
        machine = self._world.clouds[provider].machines.get(machine_id)
        if machine is not None and machine.stopping_us is None:
            if self._never_shown(machine):
                return
            raise InvariantError(
                "only a machine that is gone is called gone", f"{machine.machine_id}: {row.message}"
            )
