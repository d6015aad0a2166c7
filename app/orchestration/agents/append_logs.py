"""Take what machines send of their logs: bytes into the object store, where they lie into rows.

Lives here: appending, and what happens when the same bytes come twice. Not here: reading
(`read_logs`), or what is written into logs (the agent).

The object is written first and the row after it, with no transaction open in between. A crash
between the two leaves an object without a row; the bytes then come again, and the object that is
there already with the same content serves.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from uuid import UUID

from app.domain.units.errors import DomainError, InvalidValue
from app.orchestration.agents.receive_agent_report import instance_of_credential
from app.orchestration.frame.runtime import Runtime
from app.ports.object_store import ObjectExists, ObjectStore
from app.storage.jobs.log_repository import GAP_KEY, LogChunk, LogStream
from app.storage.unit_of_work import UnitOfWork

CHUNK_BYTES_MAX = 1 << 20
GAP_BYTES_MAX = 64 << 20
JOB_BYTES_MAX = 1 << 30
_STREAM = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}(/[a-z0-9][a-z0-9_-]{0,39}){0,2}\.log", re.ASCII)
_FULL = (
    b"\n[lowtide] The logs of this job have reached 1 GiB: what its machines write from here on "
    b"is not kept.\n"
)


class LogOffsetRefused(DomainError):
    """The bytes do not begin where the stream ends (HTTP 409); `next_offset` is where it does."""

    def __init__(self, stream: str, next_offset: int) -> None:
        super().__init__(
            f"{stream} has {next_offset} bytes; send what follows them.", "byte_offset"
        )
        self.next_offset = next_offset


class LogStreamRefused(DomainError):
    """The stream belongs to another machine of the job (HTTP 403)."""


@dataclass(frozen=True)
class Appended:
    """Where the stream ends now; `kept` is False when the job's logs are full."""

    next_offset: int
    kept: bool


def append_log(
    runtime: Runtime,
    credential_hash: str,
    stream: str,
    byte_offset: int,
    content: bytes,
    gap_bytes: int = 0,
) -> Appended:
    """Append to a stream of the machine's job, iff `byte_offset` is its size.

    gap_bytes: leave a place of so many bytes before the content, for bytes that come later
    (`fill_log_gap`); none is left where the job's logs would be full with it.

    Once a job's logs are full its streams say so and further bytes are dropped: a machine whose
    bytes were refused would try them again for ever, and its other streams would wait behind.
    Raises CredentialRefused, InvalidValue for a bad name, LogStreamRefused, LogOffsetRefused.
    """
    _check_name(stream)
    with runtime.begin() as uow:
        instance_id, job_id = instance_of_credential(uow, credential_hash)
        _lock_at(uow, job_id, stream, instance_id, byte_offset)
        room = JOB_BYTES_MAX - uow.logs.job_bytes(job_id)
    if not content or room <= 0:
        return Appended(byte_offset, kept=not content)
    if gap_bytes + len(content) > room:
        gap_bytes = 0
    if len(content) > room:
        content = content[:room] + _FULL
    at = byte_offset + gap_bytes
    key = _store_new(runtime.object_store, f"logs/{job_id}/{stream}/{at:012d}", content)
    with runtime.begin() as uow:
        _lock_at(uow, job_id, stream, instance_id, byte_offset)
        if gap_bytes:
            gap = LogChunk(byte_offset, gap_bytes, GAP_KEY)
            uow.logs.add_chunk(job_id, stream, gap, uow.now)
        uow.logs.add_chunk(job_id, stream, LogChunk(at, len(content), key), uow.now)
    return Appended(at + len(content), kept=True)


def fill_log_gap(
    runtime: Runtime, credential_hash: str, stream: str, byte_offset: int, content: bytes
) -> Appended:
    """Put bytes into a gap of a stream, iff `byte_offset` is where the gap begins now.

    `next_offset` of the answer is where it begins then; of LogOffsetRefused, too, or the stream's
    end where no gap follows. Raises as `append_log` does, and InvalidValue for more bytes than
    the gap has.
    """
    _check_name(stream)
    with runtime.begin() as uow:
        instance_id, job_id = instance_of_credential(uow, credential_hash)
        _lock_gap(uow, job_id, stream, instance_id, byte_offset, len(content))
    if not content:
        return Appended(byte_offset, kept=True)
    key = f"logs/{job_id}/{stream}/{byte_offset:012d}"
    key = _store_new(runtime.object_store, key, content)
    with runtime.begin() as uow:
        gap = _lock_gap(uow, job_id, stream, instance_id, byte_offset, len(content))
        chunk = LogChunk(byte_offset, len(content), key)
        uow.logs.fill_gap(job_id, stream, gap, chunk, uow.now)
    return Appended(byte_offset + len(content), kept=True)


def _check_name(stream: str) -> None:
    if _STREAM.fullmatch(stream) is None:
        raise InvalidValue(
            "A stream is named like attempt-0001/node-0.log: at most three parts of up to 40 "
            "lower-case letters, digits, - and _, then .log.",
            "stream",
        )


def _lock_at(
    uow: UnitOfWork, job_id: UUID, stream: str, instance_id: UUID, byte_offset: int
) -> None:
    """Lock the stream; raises when it is another machine's, or does not end at the offset."""
    known = _lock_own(uow, job_id, stream, instance_id)
    if known.size_bytes != byte_offset:
        raise LogOffsetRefused(stream, known.size_bytes)


def _lock_gap(
    uow: UnitOfWork, job_id: UUID, stream: str, instance_id: UUID, byte_offset: int, size: int
) -> LogChunk:
    """Lock the stream and find the gap; raises when none begins at the offset."""
    known = _lock_own(uow, job_id, stream, instance_id)
    gap = uow.logs.next_gap(job_id, stream, byte_offset)
    if gap is None or gap.byte_offset != byte_offset:
        raise LogOffsetRefused(stream, known.size_bytes if gap is None else gap.byte_offset)
    if size > gap.size_bytes:
        raise InvalidValue(f"The gap has {gap.size_bytes} bytes, not {size}.", "content")
    return gap


def _lock_own(uow: UnitOfWork, job_id: UUID, stream: str, instance_id: UUID) -> LogStream:
    known = uow.logs.lock_stream(job_id, stream, instance_id, uow.now)
    if known.instance_id != instance_id:
        raise LogStreamRefused(f"{stream} is written by another machine; use a name of your own.")
    return known


def _store_new(store: ObjectStore, key: str, content: bytes) -> str:
    """Create the object; the key it has got.

    Bytes that were stored but not indexed may come again cut otherwise. Then the key is taken by
    other content, and this content's own digest makes a key of its own.
    """
    try:
        store.put_new(key, content)
        return key
    except ObjectExists:
        if store.get(key) == content:
            return key
    own = f"{key}-{hashlib.sha256(content).hexdigest()[:32]}"
    try:
        store.put_new(own, content)
    except ObjectExists:
        pass  # its name says that it is the same content
    return own
