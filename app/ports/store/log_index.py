"""The part of the unit of work that knows where logs lie in the object store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

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


class LogIndex(Protocol):
    """Streams and chunks."""

    def lock_stream(self, job_id: UUID, stream: str, instance_id: UUID, now: datetime) -> LogStream:
        """The stream under its row lock; made, empty and owned by the instance, when it is new."""
        ...

    def add_chunk(self, job_id: UUID, stream: str, chunk: LogChunk, now: datetime) -> None:
        """Index a chunk and grow its stream, which is locked, by its size."""
        ...

    def next_gap(self, job_id: UUID, stream: str, start: int) -> LogChunk | None:
        """The first gap that begins at `start` or after it."""
        ...

    def fill_gap(
        self, job_id: UUID, stream: str, gap: LogChunk, chunk: LogChunk, now: datetime
    ) -> None:
        """Put a chunk at the beginning of a gap, no larger than it, into the locked stream."""
        ...

    def streams(self, job_id: UUID) -> list[LogStream]:
        """All streams of a job, by name."""
        ...

    def stream_size(self, job_id: UUID, stream: str) -> int | None:
        """Bytes of a stream; None when there is no such stream."""
        ...

    def job_bytes(self, job_id: UUID) -> int:
        """Bytes of all streams of a job."""
        ...

    def chunks(self, job_id: UUID, stream: str, start: int, end: int) -> list[LogChunk]:
        """Chunks that hold bytes of [start, end), in order; at most as many as lie there."""
        ...
