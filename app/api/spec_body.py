"""The body of a submission: JSON or YAML by content type, within bounds, to a valid spec.

Lives here: reading the body, and what only the world can tell of a spec: whether its packed folder
was uploaded and its checkpoint folder can be written. Not here: the fields' rules (`domain`).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from anyio import to_thread
from fastapi import HTTPException, Request

from app.domain.errors import InvalidValue, SpecError
from app.domain.job_spec import JobSpec, parse_spec
from app.domain.spec_text import SpecTextType, parse_spec_text
from app.orchestration.read_workdir import workdir_key
from app.orchestration.submit_job import IDEMPOTENCY_KEY_LENGTH_MAX
from app.ports.object_store import ObjectMissing, ObjectStore

_TYPES: dict[str, SpecTextType] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
}


async def read_spec(request: Request) -> JobSpec:
    """The spec in a request's body. Raises 415, and SpecError for everything wrong in it."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    text_type = _TYPES.get(content_type)
    if text_type is None:
        raise HTTPException(
            415, "Send the job spec as Content-Type: application/json or application/yaml."
        )
    return parse_spec(parse_spec_text(await request.body(), text_type))


def read_idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key header; InvalidValue when it is not 1 to 200 printable characters."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not (0 < len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX and key.isascii() and key.isprintable()):
        raise InvalidValue(
            f"Idempotency-Key: must be 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII "
            "characters; a UUID will do",
            "Idempotency-Key",
        )
    return key


async def check_places(spec: JobSpec, project_name: str, store: ObjectStore) -> None:
    """Raises SpecError when the project, packed folder or checkpoint folder cannot be used."""
    if spec.project is not None and spec.project != project_name:
        raise SpecError.of(
            f"project: this key belongs to the project {project_name!r}; leave `project` out, or "
            f"use a key of {spec.project!r}",
            "project",
        )
    if spec.workdir is not None:
        await to_thread.run_sync(_check_workdir, store, spec.workdir)
    if spec.checkpoint.uri is not None:
        await to_thread.run_sync(_check_writable, spec.checkpoint.uri)


def workdir_exists(store: ObjectStore, digest: str) -> bool:
    """Whether a packed folder was uploaded."""
    try:
        store.get_range(workdir_key(digest), 0, 1)
    except ObjectMissing:
        return False
    return True


def _check_workdir(store: ObjectStore, digest: str) -> None:
    if not workdir_exists(store, digest):
        raise SpecError.of(
            f"workdir: {digest} was never uploaded; `lowtide submit` packs and uploads a folder, "
            "or PUT the archive to /api/v1/workdirs/ first",
            "workdir",
        )


def _check_writable(uri: str) -> None:
    """Make the folder and write in it, as the checkpoints will."""
    folder = Path(unquote(urlsplit(uri).path))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, probe = tempfile.mkstemp(prefix=".lowtide-probe-", dir=folder)
        try:
            os.write(descriptor, b"lowtide")
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError.of(
            f"checkpoint.uri: {uri} cannot be written ({reason}); name a folder that the service "
            "may write, or leave it out for the deployment's own store",
            "checkpoint.uri",
        ) from error
