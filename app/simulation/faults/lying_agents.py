"""Agents that lie and repeat themselves, and that nothing comes of it.

Each lie is told to the production verbs and judged at once: either it is refused, or the rows that
it speaks of are the same before and after. Not here: when lies are told (`byzantine_faults`), or
an agent's honest reports (`agent_line`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import text

from app.domain.units.errors import CommandRefused
from app.orchestration.agents.receive_agent_report import CredentialRefused, FenceRefused
from app.orchestration.agents.register_agent import NotKnownYet, TokenRefused
from app.simulation.engine.invariant_error import InvariantError
from app.simulation.simulated.api_process import Unreachable
from app.simulation.simulated.simulated_agent import SimulatedAgent
from app.simulation.simulated.world import World
from trainer.protocol.agent_report import AgentReport, Fact, FactKind
from trainer.protocol.wire import encode

_FAR_AHEAD = 10_000
_MANY_STEPS = 5_000
_REFUSALS = (CredentialRefused, FenceRefused, CommandRefused, TokenRefused, NotKnownYet)

# What no lie may change. A job's version, its timers and its estimates may move with any report.
_WHOSE = text("SELECT job_id FROM instances WHERE provider_instance_id = :machine_id")
_JOB = text(
    "SELECT state, stop_cause, next_fence, committed_step, retries_used, node_count, "
    "attempts_without_progress, end_reason FROM jobs WHERE id = :id"
)
_ATTEMPTS = text("SELECT * FROM attempts WHERE job_id = :id ORDER BY fence")
_MEMBERS = text(
    "SELECT attempt_members.* FROM attempt_members JOIN attempts ON attempts.id = attempt_id "
    "WHERE job_id = :id ORDER BY fence, node_rank"
)
_KNOWN = text(
    "SELECT session_id, seq, fact_no FROM contacts JOIN instances ON instances.id = instance_id "
    "WHERE provider_instance_id = :machine_id AND nonce_hash IS NOT NULL "
    "ORDER BY requested_at DESC LIMIT 1"
)
_COMMITTED = text("SELECT committed_step FROM jobs WHERE id = :id")
_HISTORY = text("SELECT event_seq FROM jobs WHERE id = :id")
_CONTACT = text(
    "SELECT contacts.* FROM contacts JOIN instances ON instances.id = instance_id "
    "WHERE job_id = :id ORDER BY instance_id"
)
_LATE = text("SELECT count(*) FROM events WHERE job_id = :id AND kind = 'late_fact'")
_ENDED_FENCES = text(
    "SELECT fence, attempts.ended_at IS NOT NULL AS ended, "
    "EXISTS (SELECT FROM attempt_members WHERE attempt_id = attempts.id AND node_rank = 0 "
    " AND prepared_at IS NOT NULL) AS has_begun, "
    "EXISTS (SELECT FROM attempt_members WHERE attempt_id = attempts.id "
    " AND instance_id = :instance_id) AS mine FROM attempts WHERE job_id = :id ORDER BY fence"
)


class LyingAgents:
    """Everything that an agent of this world may say and that is not so."""

    def __init__(self, world: World) -> None:
        self._world = world

    def fence_of_others(self, agent: SimulatedAgent) -> bool:
        """It speaks for an attempt that it is no member of, and says that the work is done."""
        last = _last(agent)
        if last is None:
            return False
        fence = (last.fence or 0) + _FAR_AHEAD
        return self._refused(
            "a report for an attempt of others", lambda: self._send(agent, _boast(last, fence))
        )

    def other_machine(self, agent: SimulatedAgent, other: SimulatedAgent) -> bool:
        """It speaks for another machine, with its own credential."""
        last, whose = _last(agent), _last(other)
        if last is None or whose is None or last.instance_id == whose.instance_id:
            return False
        return self._refused(
            "a report for another machine", lambda: self._send(agent, replace(whose, facts=()))
        )

    def after_its_end(self, agent: SimulatedAgent) -> bool:
        """A machine that is known to be gone reports once more."""
        last = _last(agent)
        if last is None or not self._world.network.exchange_now():
            return False  # an api may not know as yet that its machine has ended
        return self._refused("a report of a machine that is gone", lambda: self._send(agent, last))

    def second_agent(self, agent: SimulatedAgent) -> bool:
        """Somebody else who has read its launch token registers for the same machine."""
        if not agent.line.registrations or self._known(agent) is None:
            return False
        forged = replace(agent.line.registrations[-1], nonce="f" * 64)
        return self._refused("a second agent", lambda: self._world.network.register(forged))

    def former_agent(self, agent: SimulatedAgent) -> bool:
        """A registration of its former self was held up on the way, and arrives now."""
        known = agent.line.registrations
        if len({one.session_id for one in known}) < 2:
            return False
        row = self._known(agent)
        if row is None or row.session_id != known[-1].session_id:
            return False  # the newest registration went with the rows that were lost
        return self._refused(
            "the registration of a former agent", lambda: self._world.network.register(known[0])
        )

    def other_session(self, agent: SimulatedAgent) -> bool:
        """A report with facts under a session that the machine's agent does not have."""
        last = _last(agent)
        if last is None or last.fence is None:
            return False
        forged = replace(_boast(last, last.fence), session_id="another-session", seq=_FAR_AHEAD)
        with self._unchanged(agent, "a report of another session", _CONTACT, _HISTORY):
            self._send(agent, forged)
        return True

    def replayed(self, agent: SimulatedAgent) -> bool:
        """Every report with facts of its present session arrives once more, oldest first."""
        last = _last(agent)
        if last is None:
            return False
        old = [
            one
            for one in agent.line.delivered
            if one.facts and one.session_id == last.session_id and one.seq < last.seq
        ]
        written, row = self._world.network.exchange_now(), self._known(agent)
        if not written or row is None or row.session_id != last.session_id:
            return False
        newest = max((fact.fact_no for report in old for fact in report.facts), default=0)
        if row.seq < last.seq or row.fact_no < newest:
            return False  # what they told went with the rows that were lost: it is news again
        with self._unchanged(agent, "a replayed report", _CONTACT, _HISTORY):
            for report in old:
                self._send(agent, report)
        return bool(old)

    def step_falls(self, agent: SimulatedAgent) -> bool:
        """It has committed a checkpoint, it says, far behind the newest one."""
        last, committed = _last(agent), self._committed_step(agent)
        if last is None or last.fence is None or committed < 2:
            return False
        data = {"step": committed // 2, "digest": "0" * 64, "final": False}
        with self._unchanged(agent, "a step that falls", without=(_ATTEMPTS,)):
            return self._add_facts(agent, [(FactKind.CHECKPOINT, last.fence, data)])

    def ended_fence(self, agent: SimulatedAgent) -> bool:
        """It tells facts of an attempt that it was in and that has ended."""
        fences = self._fences(agent)
        old = [row.fence for row in fences if row.ended and row.mine]
        if not old:
            return False
        fence, live = old[-1], fences[-1]
        facts: list[tuple[FactKind, int, dict[str, Any]]] = [
            (FactKind.TRAINER_ENDED, fence, {"outcome": "failed", "exit_code": 1, "step": 1}),
            (FactKind.PREPARED, fence, {"parent": None, "master_port": 1}),
            (FactKind.STALLED, fence, {"step": 1, "seconds": 1.0}),
            (FactKind.COMPLETION, fence, {"step": _MANY_STEPS, "digest": "0" * 64}),
        ]
        if not live.ended and live.has_begun:
            # Its successor has chosen where it starts: nothing can be added to it any more.
            data = {"step": _MANY_STEPS, "digest": "0" * 64, "final": False}
            facts.append((FactKind.CHECKPOINT, fence, data))
        before = self._late_facts(agent)
        with self._unchanged(agent, "a fact of an ended attempt"):
            told = self._add_facts(agent, facts)
        if told and self._late_facts(agent) == before:
            raise InvariantError("a late fact is written down", f"attempt {fence}")
        return told

    def torn(self, agent: SimulatedAgent, share: float) -> bool:
        """Only a part of its report arrives: it is no report at all."""
        last = _last(agent)
        if last is None:
            return False
        whole = orjson.dumps(encode(last))
        part = whole[: max(1, int(share * (len(whole) - 1)))]
        try:
            orjson.loads(part)
        except orjson.JSONDecodeError:
            agent.line.lose_requests()
            return True
        raise InvariantError("a torn report is refused", f"{len(part)} of {len(whole)} bytes")

    # --- how lies are told and judged ---

    def _send(self, agent: SimulatedAgent, report: AgentReport) -> None:
        self._world.network.report(agent.line.credential, report, is_copy=True)

    def _refused(self, what: str, tell: Callable[[], object]) -> bool:
        try:
            tell()
        except _REFUSALS:
            return True
        except Unreachable:
            return False
        raise InvariantError("what an agent may not say is refused", what)

    def _add_facts(
        self, agent: SimulatedAgent, facts: list[tuple[FactKind, int, dict[str, Any]]]
    ) -> bool:
        """Told in its own numbering and at once; False where its report does not arrive."""
        if agent.state is None or agent.state.facts.pending or not agent.line.clear:
            return False  # a lie that comes later than now would not be watched
        known = self._known(agent)
        if known is None or known.session_id != agent.state.session_id:
            return False
        backlog = agent.state.facts
        for kind, fence, data in facts:
            backlog = backlog.add(kind, agent.uptime(), fence, data)
        agent.state = replace(agent.state, facts=backlog)
        delivered = len(agent.line.delivered)
        agent.report_now()
        return len(agent.line.delivered) > delivered

    def _fences(self, agent: SimulatedAgent) -> list[Any]:
        last = _last(agent)
        instance_id = None if last is None else UUID(last.instance_id)
        given = {"id": self._job_id(agent), "instance_id": instance_id}
        with self._world.engine.connect() as connection:
            return list(connection.execute(_ENDED_FENCES, given))

    def _late_facts(self, agent: SimulatedAgent) -> int:
        with self._world.engine.connect() as connection:
            return int(connection.scalar(_LATE, {"id": self._job_id(agent)}) or 0)

    def _committed_step(self, agent: SimulatedAgent) -> int:
        with self._world.engine.connect() as connection:
            return int(connection.scalar(_COMMITTED, {"id": self._job_id(agent)}) or 0)

    def _known(self, agent: SimulatedAgent) -> Any:
        """How far the rows know the machine's agent; None where they know of none."""
        with self._world.engine.connect() as connection:
            given = {"machine_id": agent.machine.machine_id}
            return connection.execute(_KNOWN, given).first()

    def _job_id(self, agent: SimulatedAgent) -> Any:
        with self._world.engine.connect() as connection:
            return connection.scalar(_WHOSE, {"machine_id": agent.machine.machine_id})

    @contextmanager
    def _unchanged(
        self, agent: SimulatedAgent, what: str, *more: object, without: tuple[Any, ...] = ()
    ) -> Iterator[None]:
        """Raises InvariantError when what is said inside changes a row that it must not."""
        looked_at = (_JOB, _ATTEMPTS, _MEMBERS, *more)
        statements = [one for one in looked_at if all(one is not other for other in without)]
        before = self._rows(agent, statements)
        try:
            yield
        except (*_REFUSALS, Unreachable):
            pass  # refused as a whole, or it never arrived: what it left is looked at all the same
        after = self._rows(agent, statements)
        pairs = zip(before, after, strict=True)
        changed = [f"{old} became {new}" for old, new in pairs if old != new]
        if changed:
            raise InvariantError("a lie changes nothing", f"{what}: {'; '.join(changed)}")

    def _rows(self, agent: SimulatedAgent, statements: list[Any]) -> list[list[Any]]:
        given = {"id": self._job_id(agent)}
        with self._world.engine.connect() as connection:
            return [list(connection.execute(one, given)) for one in statements]


def _last(agent: SimulatedAgent) -> AgentReport | None:
    """The newest report that was answered."""
    return agent.line.delivered[-1] if agent.line.delivered else None


def _boast(last: AgentReport, fence: int) -> AgentReport:
    """The report as it was, saying now that this attempt has finished the work."""
    done: dict[str, Any] = {"outcome": "finished", "exit_code": 0, "step": _MANY_STEPS}
    saved: dict[str, Any] = {"step": _MANY_STEPS, "digest": "0" * 64, "final": True}
    facts = (
        Fact(_FAR_AHEAD, FactKind.CHECKPOINT, last.uptime_ms, fence, saved),
        Fact(_FAR_AHEAD + 1, FactKind.COMPLETION, last.uptime_ms, fence, saved),
        Fact(_FAR_AHEAD + 2, FactKind.TRAINER_ENDED, last.uptime_ms, fence, done),
    )
    return replace(last, fence=fence, facts=facts)
