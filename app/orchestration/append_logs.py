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

from app.domain.errors import DomainError, InvalidValue
from app.orchestration.receive_agent_report import instance_of_credential
from app.orchestration.runtime import Runtime
from app.ports.log_index import LogChunk
from app.ports.object_store import ObjectExists, ObjectStore
from app.ports.unit_of_work import UnitOfWork

CHUNK_BYTES_MAX = 1 << 20
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
    runtime: Runtime, credential_hash: str, stream: str, byte_offset: int, content: bytes
) -> Appended:
    """Append to a stream of the machine's job, iff `byte_offset` is its size.

    Once a job's logs are full its streams say so and further bytes are dropped: a machine whose
    bytes were refused would try them again for ever, and its other streams would wait behind.
    Raises CredentialRefused, InvalidValue for a bad name, LogStreamRefused, LogOffsetRefused.
    """
    if _STREAM.fullmatch(stream) is None:
        raise InvalidValue(
            "A stream is named like attempt-0001/node-0.log: at most three parts of up to 40 "
            "lower-case letters, digits, - and _, then .log.",
            "stream",
        )
    with runtime.begin() as uow:
        instance_id, job_id = instance_of_credential(uow, credential_hash)
        _lock_at(uow, job_id, stream, instance_id, byte_offset)
        room = JOB_BYTES_MAX - uow.logs.job_bytes(job_id)
    if not content or room <= 0:
        return Appended(byte_offset, kept=not content)
    if len(content) > room:
        content = content[:room] + _FULL
    key = _store_new(runtime.object_store, f"logs/{job_id}/{stream}/{byte_offset:012d}", content)
    with runtime.begin() as uow:
        _lock_at(uow, job_id, stream, instance_id, byte_offset)
        uow.logs.add_chunk(job_id, stream, LogChunk(byte_offset, len(content), key), uow.now)
    return Appended(byte_offset + len(content), kept=True)


def _lock_at(
    uow: UnitOfWork, job_id: UUID, stream: str, instance_id: UUID, byte_offset: int
) -> None:
    """Lock the stream; raises when it is another machine's, or does not end at the offset."""
    known = uow.logs.lock_stream(job_id, stream, instance_id, uow.now)
    if known.instance_id != instance_id:
        raise LogStreamRefused(f"{stream} is written by another machine; use a name of your own.")
    if known.size_bytes != byte_offset:
        raise LogOffsetRefused(stream, known.size_bytes)


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
