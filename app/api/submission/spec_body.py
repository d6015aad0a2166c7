"""The body of a submission: JSON or YAML by content type, within bounds, to a valid spec.

Lives here: reading the body, and what only the world can tell of a spec: whether its packed folder
was uploaded and its checkpoints may lie where it says. Not here: the fields' rules (`domain`).
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from anyio import to_thread
from fastapi import HTTPException, Request

from app.adapters.input_checks.spec_reader import SpecUnreadable
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.submission.collected_problems import CollectedProblems
from app.api.submission.data_places import DeploymentPlaces, data_folder
from app.api.submission.spec_places import (
    check_checkpoint_place,
    check_data_path,
    check_data_places,
    check_types,
)
from app.domain.access.principal import Principal
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.spec_text import SpecTextType, parse_spec_text
from app.domain.units.errors import InvalidValue, SpecError
from app.orchestration.agents.read_workdir import workdir_key
from app.orchestration.queue.submit_job import IDEMPOTENCY_KEY_LENGTH_MAX
from app.ports.object_store import ObjectMissing, ObjectStore

_YES, _NO = frozenset({"true", "1"}), frozenset({"false", "0"})
# Parsing the worst JSON of this length takes 5 ms.
_INLINE_BYTES_MAX = 16 << 10
_TYPES: dict[str, SpecTextType] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
}


async def read_spec(request: Request) -> JobSpec:
    """The spec in a request's body. Raises 415, and SpecError for everything wrong in it.

    Short JSON is parsed at once; all else by the child process, one spec at a time, with 503 when
    too many wait.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    text_type = _TYPES.get(content_type)
    if text_type is None:
        raise HTTPException(
            415, "Send the job spec as Content-Type: application/json or application/yaml."
        )
    body = await request.body()
    if text_type == "json" and len(body) <= _INLINE_BYTES_MAX:
        return parse_spec(parse_spec_text(body, "json"))
    return await parse_in_turn(parts_of(request), body, text_type)


async def parse_in_turn(parts: ApiParts, body: bytes, text_type: SpecTextType) -> JobSpec:
    """The spec in a text, by the child process. Raises SpecError, and 503 when too many wait."""
    async with parts.spec_turns.turn():
        try:
            plain = await to_thread.run_sync(
                parts.specs.parse, body, text_type, limiter=parts.spec_thread
            )
        except SpecUnreadable as error:
            raise HTTPException(
                503, f"The spec could not be read: {error}; try again.", {"Retry-After": "2"}
            ) from error
    return parse_spec(plain)


def read_idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key header; InvalidValue when it is not 1 to 200 printable characters."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not (0 < len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX and key.isascii() and key.isprintable()):
        raise InvalidValue(
            f"Idempotency-Key: must be 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII "
            "characters; a UUID, for example",
            "Idempotency-Key",
        )
    return key


def read_accept_risk(request: Request) -> bool:
    """Whether the caller insists on a promise that may not be kept."""
    written = request.query_params.get("accept_risk", "false").lower()
    if written not in _YES | _NO:
        raise InvalidValue("accept_risk: write true or false", "accept_risk")
    return written in _YES


async def check_places(
    spec: JobSpec,
    caller: Principal,
    store: ObjectStore | None,
    places: DeploymentPlaces,
    state_dir: Path | None = None,
) -> None:
    """Raises SpecError when the project, packed folder, a type or an address cannot be used, with
    everything that cannot.

    caller: whose project it is. store: of packed folders; None before the folder is uploaded.
    state_dir: where refreshed catalogs of machines are kept.
    """
    if spec.project is not None and spec.project != caller.project_name:
        raise SpecError.of(
            f"project: this is the project {caller.project_name!r}; leave `project` out, or submit "
            f"in {spec.project!r}",
            "project",
        )
    found = CollectedProblems()
    with found.collecting():
        check_types(spec, state_dir)
    with found.collecting():
        check_data_path(spec)
    if spec.brought_folders() or spec.outputs:
        folder = data_folder(caller.project_name, caller.project_id)
        with found.collecting():
            await to_thread.run_sync(check_data_places, spec, places, folder)
    if spec.workdir is not None and store is not None:
        with found.collecting():
            await to_thread.run_sync(_check_workdir, store, caller.project_id, spec.workdir)
    if spec.checkpoint.uri is not None:
        with found.collecting():
            await to_thread.run_sync(check_checkpoint_place, spec, places)
    found.raise_any()


def workdir_exists(store: ObjectStore, project_id: UUID, digest: str) -> bool:
    """Whether somebody of the project has uploaded a packed folder."""
    try:
        store.get_range(workdir_key(project_id, digest), 0, 1)
    except ObjectMissing:
        return False
    return True


def _check_workdir(store: ObjectStore, project_id: UUID, digest: str) -> None:
    if not workdir_exists(store, project_id, digest):
        raise SpecError.of(
            f"workdir: {digest} was never uploaded to this project; `lowtide submit` packs and "
            "uploads a folder, or PUT the archive to /api/v1/workdirs/ first",
            "workdir",
        )
