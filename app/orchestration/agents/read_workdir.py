"""Hand a machine the packed working folder of its own job, and no other.

Not here: packing and storing it (the command line and the api), or unpacking (the agent).
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from app.domain.units.errors import NotFound
from app.orchestration.agents.receive_agent_report import instance_of_credential
from app.orchestration.frame.runtime import Runtime
from app.ports.object_store import ObjectMissing

PIECE_BYTES = 1 << 20


def workdir_key(project_id: UUID, digest: str) -> str:
    """Key of a project's packed folder in the object store; `digest`: sha256:<64 hex digits>."""
    return f"workdirs/{project_id}/{digest.removeprefix('sha256:')}.tar.gz"


def _earlier_key(digest: str) -> str:
    """Where releases before kept it, for all projects alike.

    Only jobs that they accepted read there: a job is accepted now with a folder of its project.
    """
    return f"workdirs/{digest.removeprefix('sha256:')}.tar.gz"


def read_workdir(runtime: Runtime, credential_hash: str, digest: str) -> Iterator[bytes]:
    """The packed folder in pieces; the first one is read before this returns.

    Raises CredentialRefused, NotFound when it is not the folder of the machine's job, and
    ObjectStoreError when the store does not have it.
    """
    with runtime.begin() as uow:
        _, job_id = instance_of_credential(uow, credential_hash)
        job = uow.jobs.get(job_id)
        if job is None or job.spec.get("workdir") != digest:
            raise NotFound("This is not the working folder of this machine's job.", "digest")
    key = workdir_key(job.project_id, digest)
    try:
        first = runtime.object_store.get_range(key, 0, PIECE_BYTES)
    except ObjectMissing:
        key = _earlier_key(digest)
        first = runtime.object_store.get_range(key, 0, PIECE_BYTES)
    return _pieces(runtime, key, first)


def _pieces(runtime: Runtime, key: str, first: bytes) -> Iterator[bytes]:
    piece, offset = first, 0
    while piece:
        yield piece
        offset += len(piece)
        if len(piece) < PIECE_BYTES:
            return
        piece = runtime.object_store.get_range(key, offset, PIECE_BYTES)
