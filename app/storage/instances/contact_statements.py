"""What was heard of agents, in PostgreSQL: hand-written statements over many contacts at once.

Lives here: the flush of contacts, the check for changed jobs, and the questions of silence. Not
here: one contact under its job's lock (`instance_repository`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import orjson
from sqlalchemy import bindparam, func, select, text

from app.domain.lifecycle.attempt_verdict import MemberOutcome
from app.domain.lifecycle.instance import InstanceState
from app.storage.schema import tables
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession
from trainer.protocol.agent_report import EXIT_DRAINED, Pace


@dataclass(frozen=True)
class AnsweredReport:
    """The newest report of a machine that was answered without a transaction of its own.

    answered_seconds_ago: age of the answer when it is stored, >= 0; instants are the store's.
    step, total_steps: None when the report carried no progress; what is stored then stays. pace:
    what the agent measured of the attempt's steps.
    """

    instance_id: UUID
    session_id: str
    seq: int
    answered_seconds_ago: float
    phase: str
    step: int | None = None
    total_steps: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    pace: Pace | None = None


@dataclass(frozen=True)
class UnheardInstance:
    """A registered instance that is marked unreachable, and when it was last answered."""

    instance_id: UUID
    job_id: UUID
    answered_at: datetime


@dataclass(frozen=True)
class Neighbours:
    """How many other registered instances there are, and how many of them were heard lately."""

    others: int
    heard: int


_instances = tables.instances
_contacts = tables.contacts
# Second half of the advisory lock's key: flushes of several api processes take turns, for two
# statements that update the same rows in different orders could otherwise wait for each other.
_FLUSH = (0x10DE, 0x0F10)

_TAKE_TURNS = Ready(select(func.pg_advisory_xact_lock(*_FLUSH)), frozenset())
_ONE_INSTANT = Ready(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))

# No indexed column is written and the table keeps room on each page, so every new version of a
# row stays on its page and no index is touched.
_STORE = Ready(
    text(
        """
    WITH moved AS (UPDATE contacts SET
        seq = heard.seq,
        answered_at = GREATEST(contacts.answered_at, heard.answered_at),
        phase = heard.phase,
        step = COALESCE(heard.step, contacts.step),
        total_steps = COALESCE(heard.total_steps, contacts.total_steps),
        metrics = CASE WHEN heard.step IS NULL THEN contacts.metrics
                       ELSE CAST(heard.metrics AS jsonb) END,
        step_at = CASE WHEN heard.step IS NOT NULL AND heard.step IS DISTINCT FROM contacts.step
                       THEN heard.answered_at ELSE contacts.step_at END,
        first_step = COALESCE(heard.first_step, contacts.first_step),
        last_step = COALESCE(heard.last_step, contacts.last_step),
        stepping_seconds = COALESCE(heard.stepping_seconds, contacts.stepping_seconds),
        start_up_seconds = COALESCE(heard.start_up_seconds, contacts.start_up_seconds)
    FROM unnest(
        CAST(:instance_ids AS uuid[]), CAST(:session_ids AS text[]), CAST(:seqs AS int[]),
        CAST(:answered_ats AS timestamptz[]), CAST(:phases AS text[]), CAST(:steps AS bigint[]),
        CAST(:total_steps AS bigint[]), CAST(:metrics AS text[]),
        CAST(:first_steps AS bigint[]), CAST(:last_steps AS bigint[]),
        CAST(:stepping_seconds AS float8[]), CAST(:start_up_seconds AS float8[])
    ) AS heard(instance_id, session_id, seq, answered_at, phase, step, total_steps, metrics,
        first_step, last_step, stepping_seconds, start_up_seconds)
    WHERE contacts.instance_id = heard.instance_id
      AND contacts.session_id = heard.session_id
      AND contacts.seq <= heard.seq
    RETURNING 1)
    SELECT count(*) FROM moved
    """
    )
)
_CHANGED = Ready(
    text(
        """
    SELECT known.job_id
    FROM unnest(CAST(:job_ids AS uuid[]), CAST(:versions AS int[])) AS known(job_id, version)
    LEFT JOIN jobs ON jobs.id = known.job_id
    WHERE jobs.version IS DISTINCT FROM known.version
    ORDER BY known.job_id
    """
    )
)
_LISTENING = Ready(
    text(
        """
    UPDATE deployment SET
        hearing_since_at = CASE
            WHEN hearing_since_at IS NULL OR listening_at IS NULL OR listening_at < :gap_began_at
            THEN :now ELSE hearing_since_at END,
        listening_at = GREATEST(listening_at, :now)
    WHERE id = 1
    RETURNING hearing_since_at = :now
    """
    )
)
_NOW = "COALESCE(CAST(:now AS timestamptz), clock_timestamp())"
# The two above at once while hearing goes on; a NULL among the rows: after a gap, nothing is noted.
_STILL_LISTENING = Ready(
    text(
        f"""
    WITH heard AS (
        UPDATE deployment SET listening_at = GREATEST(listening_at, {_NOW})
        WHERE id = 1 AND hearing_since_at <> {_NOW} AND listening_at >= {_NOW} - :gap
        RETURNING 1
    )
    SELECT known.job_id
    FROM unnest(CAST(:job_ids AS uuid[]), CAST(:versions AS int[])) AS known(job_id, version)
    LEFT JOIN jobs ON jobs.id = known.job_id
    WHERE jobs.version IS DISTINCT FROM known.version
    UNION ALL SELECT NULL WHERE NOT EXISTS (SELECT FROM heard)
    ORDER BY job_id NULLS LAST
    """
    )
)
_HEAR_ANEW = text("UPDATE deployment SET hearing_since_at = :now WHERE id = 1")
# One row for each proof of life of a machine's newest attempt: members' newer steps while it ran,
# members that finished (exit status 0) or saved on request, which takes all of them, and
# checkpoints of its fence. A member that has left it reports no fence: its last step still counts.
_SIGN_OF_LIFE = Ready(
    text(
        f"""
    WITH its AS (
        SELECT attempts.id, attempts.job_id, attempts.fence, attempts.trained_at, attempts.ended_at
        FROM attempt_members JOIN attempts ON attempts.id = attempt_members.attempt_id
        WHERE attempt_members.instance_id = :instance_id
        ORDER BY attempts.fence DESC
        LIMIT 1
    ), peers AS (
        SELECT attempt_members.*, its.fence, its.trained_at, its.ended_at AS attempt_ended_at
        FROM its JOIN attempt_members ON attempt_members.attempt_id = its.id
        WHERE attempt_members.instance_id <> :instance_id
    )
    SELECT max(at) FROM (
        SELECT contacts.step_at AS at
        FROM peers JOIN contacts ON contacts.instance_id = peers.instance_id
        WHERE (contacts.fence = peers.fence OR contacts.fence IS NULL)
          AND contacts.step_at >= peers.trained_at
          AND contacts.step_at <= COALESCE(peers.attempt_ended_at, 'infinity')
        UNION ALL
        SELECT ended_at FROM peers
        WHERE {tables.one_of("outcome", (MemberOutcome.DRAINED, MemberOutcome.FINISHED))}
          AND exit_code IN (0, {EXIT_DRAINED})
        UNION ALL
        SELECT checkpoints.committed_at
        FROM its JOIN checkpoints
            ON checkpoints.job_id = its.job_id AND checkpoints.fence = its.fence
    ) AS proofs WHERE at > :after
    """
    )
)
_IS_HEARD = text(
    f"instances.{tables.one_of('state', (InstanceState.REGISTERED, InstanceState.INTERRUPTING))}"
)
_FIRST_SILENT = Ready(
    select(func.min(_contacts.c.answered_at))
    .join(_instances, _instances.c.id == _contacts.c.instance_id)
    .where(_IS_HEARD, _instances.c.unreachable_at.is_(None))
)
_NEIGHBOURS = Ready(
    select(func.count(), func.count().filter(_contacts.c.answered_at > bindparam("after")))
    .select_from(_instances)
    .join(_contacts, _contacts.c.instance_id == _instances.c.id)
    .where(_IS_HEARD, _instances.c.id != bindparam("but"))
)
_UNREACHABLE = Ready(
    select(_instances.c.id, _instances.c.job_id, _contacts.c.answered_at)
    .join(_contacts, _contacts.c.instance_id == _instances.c.id)
    .where(
        text(f"instances.state = '{InstanceState.REGISTERED.value}'"),
        _instances.c.unreachable_at.is_not(None),
        _instances.c.job_id.is_not(None),
    )
    .order_by(_contacts.c.answered_at, _instances.c.id)
    .limit(bindparam("at_most"))
)


class ContactStatements:
    """Contacts of many agents at once."""

    def __init__(
        self, session: RecordSession, read_clock: Callable[[], datetime] | None = None
    ) -> None:
        """read_clock: instead of the database's clock."""
        self._session = session
        self._read_clock = read_clock

    def store(self, reports: Sequence[AnsweredReport], now: datetime) -> int:
        """Move contacts on, in one statement; never back, and never another session's.

        Returns how many rows were moved.
        """
        if not reports:
            return 0
        self._session.rows(_TAKE_TURNS)
        paces = [report.pace for report in reports]
        moved: int = self._session.scalar(
            _STORE,
            {
                "instance_ids": [report.instance_id for report in reports],
                "session_ids": [report.session_id for report in reports],
                "seqs": [report.seq for report in reports],
                "answered_ats": [
                    now - timedelta(seconds=max(0.0, report.answered_seconds_ago))
                    for report in reports
                ],
                "phases": [report.phase for report in reports],
                "steps": [report.step for report in reports],
                "total_steps": [report.total_steps for report in reports],
                "metrics": [orjson.dumps(report.metrics).decode() for report in reports],
                "first_steps": [pace and pace.first_step for pace in paces],
                "last_steps": [pace and pace.last_step for pace in paces],
                "stepping_seconds": [pace and pace.stepping_seconds for pace in paces],
                "start_up_seconds": [pace and pace.start_up_seconds for pace in paces],
            },
        )
        return moved

    def changed_jobs(self, versions: Mapping[UUID, int]) -> list[UUID]:
        """Those jobs whose version is not the given one, or which are gone; by id."""
        if not versions:
            return []
        given = {"job_ids": _literal(versions), "versions": _literal(versions.values())}
        return self._session.ids(_CHANGED, given)

    def read_one_instant(self) -> None:
        """Make this transaction read one instant and write nothing; call it before anything."""
        self._session.rows(_ONE_INSTANT)

    def record_listening(self, now: datetime, gap_seconds: float) -> bool:
        """An api process hears agents now. True: after a longer gap, so hearing starts anew."""
        gap_began_at = now - timedelta(seconds=gap_seconds)
        given = {"now": now, "gap_began_at": gap_began_at}
        return bool(self._session.scalar(_LISTENING, given))

    def still_listening(
        self, versions: Mapping[UUID, int], gap_seconds: float | None
    ) -> list[UUID] | None:
        """`record_listening` and `changed_jobs` at once, while agents are heard without a gap.

        It is a transaction of its own, before anything else in this one. None: after a gap, of
        which nothing is noted yet. gap_seconds: None where nobody listens.
        """
        given: dict[str, object] = {
            "job_ids": _literal(versions), "versions": _literal(versions.values())
        }  # fmt: skip
        if gap_seconds is None:
            return [row[0] for row in self._session.rows_alone(_CHANGED, given)]
        given["now"] = None if self._read_clock is None else self._read_clock()
        given["gap"] = timedelta(seconds=gap_seconds)
        found = [row[0] for row in self._session.rows_alone(_STILL_LISTENING, given)]
        return None if None in found else found

    def hear_anew(self, now: datetime) -> None:
        """Hearing starts anew now, as after a gap: what is older may not be all there was."""
        self._session.execute(_HEAR_ANEW, {"now": now})

    def first_silent_at(self) -> datetime | None:
        """The oldest answer among registered instances that are not marked unreachable."""
        return self._session.instant(_FIRST_SILENT)

    def unreachable(self, limit: int) -> list[UnheardInstance]:
        """Registered instances marked unreachable, longest unheard first."""
        found = self._session.rows(_UNREACHABLE, {"at_most": limit})
        return [UnheardInstance(*row) for row in found]

    def last_sign_of_life(self, instance_id: UUID, after: datetime) -> datetime | None:
        """The newest proof later than `after` that the instance's newest attempt went on.

        That is another member's newer step, its end as it should be (finished, or saved on
        request), or a checkpoint of the attempt's fence. The attempt may have ended since.
        """
        given = {"instance_id": instance_id, "after": after}
        return self._session.instant(_SIGN_OF_LIFE, given)

    def neighbours(self, instance_id: UUID, answered_after: datetime) -> Neighbours:
        """What is heard of all other registered instances of the deployment."""
        given = {"but": instance_id, "after": answered_after}
        return Neighbours(*self._session.rows(_NEIGHBOURS, given)[0])


def _literal(values: Iterable[UUID | int]) -> str:
    """An array as PostgreSQL reads it: the driver needs ten times as long to look at each value."""
    return "{" + ",".join(map(str, values)) + "}"
