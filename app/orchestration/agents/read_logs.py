"""Read a job's logs back: which streams there are, and their bytes.

Not here: how they came (`append_logs`), or how they are shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from app.domain.units.errors import NotFound
from app.domain.wording.attempt_words import stream_ordinal, stream_words
from app.orchestration.frame.runtime import Runtime
from app.ports.object_store import ObjectStore
from app.storage.jobs.log_repository import LogChunk, LogStream

READ_BYTES_MAX = 1 << 20
_GAP_NOTE = (
    "\n[lowtide] {count} bytes of log are missing here: they could not be sent in time, and the "
    "end was sent first\n"
)


@dataclass(frozen=True)
class LogPart:
    """Bytes of a stream from `byte_offset` on; `size_bytes` is what the stream has by now."""

    byte_offset: int
    content: bytes
    size_bytes: int

    @property
    def next_offset(self) -> int:
        """Where to read on; what was asked for, when there was nothing."""
        return self.byte_offset + len(self.content)


def list_logs(runtime: Runtime, job_id: UUID) -> list[LogStream]:
    """The job's streams, by name."""
    with runtime.begin() as uow:
        return uow.logs.streams(job_id)


def stream_names(runtime: Runtime, job_id: UUID, streams: Iterable[str]) -> dict[str, str]:
    """What people call each stream: by the count of its attempt, not by its fence."""
    with runtime.begin() as uow:
        ordinals = uow.attempts.ordinals(job_id)
    return {one: stream_words(one, stream_ordinal(one, ordinals)) for one in streams}


def read_log(
    runtime: Runtime, job_id: UUID, stream: str, byte_offset: int, limit: int = READ_BYTES_MAX
) -> LogPart:
    """At most `limit` bytes from `byte_offset` on; a negative offset counts from the end.

    Raises NotFound for an unknown stream, ObjectStoreError when the store does not answer.
    """
    with runtime.begin() as uow:
        size = uow.logs.stream_size(job_id, stream)
        if size is None:
            raise NotFound(f"The job has no log named {stream[:200]}.", "stream")
        start = max(0, size + byte_offset) if byte_offset < 0 else byte_offset
        end = min(size, start + max(0, min(limit, READ_BYTES_MAX)))
        chunks = uow.logs.chunks(job_id, stream, start, end) if start < end else []
    parts = []
    for chunk in chunks:
        skip = max(0, start - chunk.byte_offset)
        length = min(chunk.size_bytes, end - chunk.byte_offset) - skip
        parts.append(read_piece(runtime.object_store, chunk, skip, length))
    return LogPart(start, b"".join(parts), size)


def gap_note(chunk: LogChunk) -> bytes:
    """What people read at the beginning of a gap; no longer than the gap."""
    return _GAP_NOTE.format(count=chunk.size_bytes).encode()[: chunk.size_bytes]


def read_piece(store: ObjectStore, chunk: LogChunk, skip: int, length: int) -> bytes:
    """Exactly `length` bytes of a chunk after its first `skip`; a gap is its note, then zeros.

    So every byte of a stream keeps its place, whether or not the gap is filled later.
    """
    if not chunk.is_gap:
        return store.get_range(chunk.object_key, skip, length)
    return gap_note(chunk)[skip : skip + length].ljust(length, b"\0")
