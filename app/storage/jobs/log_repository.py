"""Where logs lie in the object store, in PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.storage.schema import tables
from app.storage.session.record_session import Repository

GAP_KEY: Final = "gap"


@dataclass(frozen=True)
class LogStream:
    """One stream of a job's logs: who writes it, and how many bytes it has."""

    job_id: UUID
    stream: str
    instance_id: UUID
    size_bytes: int
    updated_at: datetime


@dataclass(frozen=True)
class LogChunk:
    """Consecutive bytes of a stream, stored as one object.

    A gap is a chunk without an object, under GAP_KEY: its bytes have not been sent, for the end of
    the stream was sent before them.
    """

    byte_offset: int
    size_bytes: int
    object_key: str

    @property
    def is_gap(self) -> bool:
        """Whether its bytes are missing."""
        return self.object_key == GAP_KEY


_streams = tables.log_streams
_chunks = tables.log_chunks
_COLUMNS = (
    _streams.c.job_id,
    _streams.c.stream,
    _streams.c.instance_id,
    _streams.c.size_bytes,
    _streams.c.updated_at,
)


class LogRepository(Repository):
    """Streams and chunks."""

    def lock_stream(self, job_id: UUID, stream: str, instance_id: UUID, now: datetime) -> LogStream:
        """The stream under its row lock; made, empty and owned by the instance, when it is new."""
        self._session.execute(
            upsert(_streams)
            .values(
                job_id=job_id,
                stream=stream,
                instance_id=instance_id,
                size_bytes=0,
                updated_at=now,
            )
            .on_conflict_do_nothing()
        )
        statement = (
            select(*_COLUMNS)
            .where(_streams.c.job_id == job_id, _streams.c.stream == stream)
            .with_for_update()
        )
        return LogStream(*self._session.execute(statement).one())

    def add_chunk(self, job_id: UUID, stream: str, chunk: LogChunk, now: datetime) -> None:
        """Index a chunk and grow its stream, which is locked, by its size."""
        self._session.execute(insert(_chunks).values(job_id=job_id, stream=stream, **vars(chunk)))
        self._session.execute(
            update(_streams)
            .where(_streams.c.job_id == job_id, _streams.c.stream == stream)
            .values(size_bytes=_streams.c.size_bytes + chunk.size_bytes, updated_at=now)
        )

    def next_gap(self, job_id: UUID, stream: str, start: int) -> LogChunk | None:
        """The first gap that begins at `start` or after it."""
        row = self._session.execute(
            select(_chunks.c.byte_offset, _chunks.c.size_bytes, _chunks.c.object_key)
            .where(
                _chunks.c.job_id == job_id,
                _chunks.c.stream == stream,
                _chunks.c.object_key == GAP_KEY,
                _chunks.c.byte_offset >= start,
            )
            .order_by(_chunks.c.byte_offset)
            .limit(1)
        ).one_or_none()
        return None if row is None else LogChunk(*row)

    def fill_gap(
        self, job_id: UUID, stream: str, gap: LogChunk, chunk: LogChunk, now: datetime
    ) -> None:
        """Put a chunk at the beginning of a gap, no larger than it, into the locked stream."""
        of_stream = {"job_id": job_id, "stream": stream}
        left = gap.size_bytes - chunk.size_bytes
        rest = LogChunk(gap.byte_offset + chunk.size_bytes, left, GAP_KEY)
        self._session.execute(
            delete(_chunks).where(
                _chunks.c.job_id == job_id,
                _chunks.c.stream == stream,
                _chunks.c.byte_offset == gap.byte_offset,
            )
        )
        for piece in (chunk, rest) if left > 0 else (chunk,):
            self._session.execute(insert(_chunks).values(**of_stream, **vars(piece)))
        self._session.execute(
            update(_streams)
            .where(_streams.c.job_id == job_id, _streams.c.stream == stream)
            .values(updated_at=now)
        )

    def streams(self, job_id: UUID) -> list[LogStream]:
        """All streams of a job, by name."""
        statement = select(*_COLUMNS).where(_streams.c.job_id == job_id).order_by(_streams.c.stream)
        return [LogStream(*row) for row in self._session.execute(statement)]

    def stream_size(self, job_id: UUID, stream: str) -> int | None:
        """Bytes of a stream; None when there is no such stream."""
        statement = select(_streams.c.size_bytes).where(
            _streams.c.job_id == job_id, _streams.c.stream == stream
        )
        size: int | None = self._session.execute(statement).scalar()
        return size

    def job_bytes(self, job_id: UUID) -> int:
        """Bytes of all streams of a job."""
        total = func.coalesce(func.sum(_streams.c.size_bytes), 0)
        return int(
            self._session.execute(select(total).where(_streams.c.job_id == job_id)).scalar_one()
        )

    def chunks(self, job_id: UUID, stream: str, start: int, end: int) -> list[LogChunk]:
        """Chunks that hold bytes of [start, end), in order; at most as many as lie there."""
        here = (_chunks.c.job_id == job_id, _chunks.c.stream == stream)
        # The chunk that holds `start` is the last one that begins at or before it: found by key.
        first = (
            select(func.max(_chunks.c.byte_offset))
            .where(*here, _chunks.c.byte_offset <= start)
            .scalar_subquery()
        )
        statement = (
            select(_chunks.c.byte_offset, _chunks.c.size_bytes, _chunks.c.object_key)
            .where(*here, _chunks.c.byte_offset >= first, _chunks.c.byte_offset < end)
            .order_by(_chunks.c.byte_offset)
        )
        return [LogChunk(*row) for row in self._session.execute(statement)]
