"""What the deployment alone can tell of a spec: whether it may be submitted here, and now.

Lives here: the checks before a job is stored, and the route that makes them without storing one.
Not here: the fields' own rules (`spec.job_spec`), single places and types (`spec_places`).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.adapters.storage_issuers import secret_grant_problem
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import SpecSubmitter
from app.api.serving.json_answers import as_json
from app.api.serving.shapes import Shape
from app.api.submission.collected_problems import CollectedProblems
from app.api.submission.data_places import DeploymentPlaces
from app.api.submission.spec_body import check_places, read_spec
from app.api.submission.spec_places import check_grants
from app.domain.access.may import Resource, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.projects.resolve_spec import ResolvedSpec, SpecSource
from app.domain.spec.infra_choice import InfraChoice
from app.domain.spec.job_spec import JobSpec
from app.domain.units.errors import CommandRefused, SpecError, SpecProblem
from app.orchestration.notifications.manage_channels import require_channels
from app.orchestration.placement.unmet_requirements import require_docker
from app.orchestration.queue.hidden_env import has_hidden_env, with_env_of_jobs
from app.orchestration.queue.submit_job import name_candidates, name_taken
from app.orchestration.secrets.allow_cloud_secrets import cloud_name_of
from app.orchestration.secrets.name_secrets import require_named_secrets
from app.settings import Settings
from trainer.protocol.run_config import TRAINING_DATA_INPUT

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

EVALUATORS = CapacityLimiter(2)
"""Of what takes up to a fifth of a second of a processor, while agents wait behind."""


class SpecAccepted(Shape):
    """The spec could be submitted now. `warnings`: sentences, as of a submission.

    `spec`: as it would be stored, with what the project gives; `spec_sources`: as of a job.
    """

    ok: Literal[True]
    warnings: list[str]
    spec: dict[str, Any]
    spec_sources: dict[str, SpecSource]


@router.post("/check", response_model=None, responses={200: {"model": SpecAccepted}})
async def check(
    request: Request,
    caller: SpecSubmitter,
    uploaded: Annotated[
        bool, Query(description="Whether the spec's `workdir` must have been uploaded")
    ] = True,
) -> Response:
    """Check a job spec as a submission would, and store nothing. The body is the job spec.

    Refuses what a submission refuses (name, places, types, image, rights), and also data on this
    machine that is not there. Deadline and budget are weighed by `POST /estimates`. Whether a
    bucket holds anything is seen by the machines alone, which have the right to read it.
    """
    parts, spec = parts_of(request), await read_spec(request)
    caller = await parts.keys.in_project_of(caller, spec)
    resolved = await check_spec(parts, caller, spec, uploaded=uploaded)
    document = resolved.spec.to_json()
    return as_json(
        {
            "ok": True,
            "warnings": warnings_of(parts, resolved.spec),
            # As its author wrote it: what a copy hides stays hidden.
            "spec": {**document, "env": {**document["env"], **spec.env}},
            "spec_sources": resolved.sources,
        }
    )


def warnings_of(parts: ApiParts, spec: JobSpec) -> list[str]:
    """What a spec that may be submitted will not do as its author may expect; no full stops."""
    places = spec.infra
    local = places is None or any(place.provider == "local" for place in places)
    told = [parts.local_warning] if parts.local_warning and local else []
    if spec.run is not None and spec.checkpoint.interval_seconds is not None:
        told.append(
            "checkpoint.interval does nothing for a `run`: your own command decides when it saves; "
            "save there as often as you want, and leave the field out"
        )
    return told


async def check_spec(
    parts: ApiParts, caller: Principal, written: JobSpec, *, uploaded: bool
) -> ResolvedSpec:
    """The spec as it would be stored.

    Raises SpecError with all that a submission would refuse of it, also where data on this machine
    is not there, and CommandRefused where only the name is taken; deadline and budget are not
    weighed.
    """
    resolved = await _resolved(parts, caller, await with_values(parts, caller, written))
    spec = resolved.spec
    found = await _problems_here(parts, caller, spec, uploaded)
    with found.collecting():
        await to_thread.run_sync(_check_data, spec, parts.settings.active_providers)
    with found.collecting():
        spec.require_deadline_ahead(parts.runtime.clock.now())
    taken = await _name_taken(parts, caller, spec)
    if taken is not None:
        if not found:
            raise taken
        found.add(SpecProblem("name", taken.message.rstrip(".")))
    found.raise_any()
    return resolved


async def _name_taken(parts: ApiParts, caller: Principal, spec: JobSpec) -> CommandRefused | None:
    if spec.name is None:
        return None
    names = [spec.name, *name_candidates(spec.name)]
    taken = await parts.hot.taken_names(caller.project_id, names)
    return name_taken(spec.name, taken) if spec.name in taken else None


async def with_values(parts: ApiParts, caller: Principal, written: JobSpec) -> JobSpec:
    """The spec with the values of `env` that a copy hides. Raises SpecError."""
    if not has_hidden_env(written):
        return written
    require(caller, Action.SUBMIT, Resource(caller.project_id))

    def read() -> JobSpec:
        with parts.runtime.begin() as uow:
            return with_env_of_jobs(uow, caller.project_id, written)

    return await to_thread.run_sync(read, limiter=EVALUATORS)


async def check_submission(
    parts: ApiParts, caller: Principal, written: JobSpec, *, uploaded: bool = True
) -> ResolvedSpec:
    """The spec as it would be stored. uploaded: its workdir must be. caller: in the spec's project.

    Raises Forbidden for who may not submit there, SpecError for what the project's rules refuse and
    for all that this deployment cannot run of it.
    """
    resolved = await _resolved(parts, caller, written)
    found = await _problems_here(parts, caller, resolved.spec, uploaded)
    found.raise_any()
    return resolved


async def _resolved(parts: ApiParts, caller: Principal, written: JobSpec) -> ResolvedSpec:
    """The spec under the project's rules. Raises Forbidden and SpecError."""
    require(caller, Action.SUBMIT, Resource(caller.project_id))
    if not caller.takes_jobs:
        raise SpecError.of(
            f"project: {caller.project_name!r} is archived and takes no new jobs; use another one, "
            "or ask an admin to take it back (`lowtide project restore`)",
            "project",
        )
    return await parts.rules.resolve(caller, written)


async def _problems_here(
    parts: ApiParts, caller: Principal, spec: JobSpec, uploaded: bool
) -> CollectedProblems:
    """What this deployment refuses of a spec that the project allows."""
    runtime, found = parts.runtime, CollectedProblems()
    with found.collecting():
        check_infra(spec.infra or (), parts.settings)
    places = DeploymentPlaces.of(parts.settings)
    store = runtime.object_store if uploaded else None
    with found.collecting():
        await check_places(spec, caller, store, places, parts.settings.state_dir)
    if spec.image is not None:
        with found.collecting():
            await to_thread.run_sync(require_docker, parts.reports, spec, limiter=EVALUATORS)
    if spec.names_secrets:
        with found.collecting():
            await to_thread.run_sync(
                require_named_secrets, runtime, caller, spec, limiter=EVALUATORS
            )
    if spec.notify:
        with found.collecting():
            await to_thread.run_sync(
                require_channels, runtime, caller, spec.notify, limiter=EVALUATORS
            )
    # It asks for credentials to the places that were checked.
    if not found:
        with found.collecting():
            check_grants(spec, runtime.storage_services, runtime.checkpoint_root_uri)
        with found.collecting():
            check_secret_grants(spec, parts.settings, runtime.storage_services)
    return found


def check_secret_grants(spec: JobSpec, settings: Settings, services: Collection[str]) -> None:
    """Raises SpecError where machines cannot be given credentials for its secrets of clouds."""
    named = [cloud_name_of(use) for use in spec.cloud_secrets]
    problem = secret_grant_problem(settings, services, named)
    if problem is not None:
        raise SpecError.of(f"secrets: {problem}", "secrets")


def check_infra(choices: tuple[InfraChoice, ...], settings: Settings) -> None:
    """Raises SpecError where none of the places is one that this deployment rents from."""
    active = settings.active_providers
    regions = {"aws": settings.aws_regions, "gcp": settings.gcp_regions}

    def rented(choice: InfraChoice) -> bool:
        known = regions.get(choice.provider, ())
        return choice.provider in active and (
            choice.region is None or not known or choice.region in known
        )

    if not choices or any(map(rented, choices)):
        return
    first = choices[0]
    if first.provider in active:
        listed = ", ".join(f"{first.provider}/{one}" for one in regions[first.provider])
        raise SpecError.of(
            f"infra: this deployment does not rent in {first}, only in {listed}; name one of "
            "these, or leave `infra` out",
            "infra",
        )
    why = settings.provider_problems.get(first.provider)
    turned_on = why or f"whoever runs it can add {first.provider} to LOWTIDE_PROVIDERS"
    raise SpecError.of(
        f"infra: this deployment does not rent from {first.provider}, only from "
        f"{', '.join(active) or 'nowhere'}; name one of these, or leave `infra` out ({turned_on})",
        "infra",
    )


def _check_data(spec: JobSpec, active: tuple[str, ...]) -> None:
    """Raises SpecError for folders that only this machine can have, and has not."""
    for path, uri in spec.brought_folders().items():
        name = "trainer.data" if path == TRAINING_DATA_INPUT else f"inputs.{path}"
        if uri.startswith("file://") and not _exists(Path(unquote(urlsplit(uri).path))):
            raise SpecError.of(f"{name}: {uri} is not there; correct the address", name)
    data = "" if spec.trainer is None else spec.trainer.data
    # On rented machines, in an image or after a setup there may be what is not here.
    here = active == ("local",) and spec.image is None and spec.setup is None
    brought = any(f"{data}/".startswith(f"{path}/") for path in spec.inputs)
    if data.startswith("/") and here and not brought and not _exists(Path(data)):
        raise SpecError.of(
            f"trainer.data: {data} is not there; name a folder of this machine, one of `inputs`, "
            "a bucket, or built-in data such as digits",
            "trainer.data",
        )


def _exists(path: Path) -> bool:
    """Also where it may not be looked at: then the machine will tell."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True
