"""What only the world can tell of the machine a spec asks for: its types, and where its data lies.

Not here: the fields' own rules (`domain`), which addresses are whose (`data_places`), or the packed
folder (`spec_body`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from app.adapters.providers.local.market.recordings import RECORDINGS
from app.adapters.providers.machine_catalog import CATALOG_PROVIDERS, load_catalog
from app.adapters.storage_issuers import grant_problem
from app.api.submission.data_places import (
    DeploymentPlaces,
    below_place,
    place_to_use,
    why_no_checkpoints,
)
from app.domain.market.storage_places import job_places
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.spec_value import nearest
from app.domain.units.errors import InvalidValue, SpecError
from trainer.protocol.run_config import TRAINING_DATA_INPUT

_NAME_ONE = "name one inside, or leave it out for the deployment's own store"


def check_data_places(spec: JobSpec, places: DeploymentPlaces, folder: str) -> None:
    """Raises SpecError for an input, output or training data outside of what is allowed.

    Machines read and write there with the deployment's rights, whoever's job it is. folder: of the
    project's data, where they share a place with checkpoints.
    """
    for field, folders in (("inputs", spec.brought_folders()), ("outputs", spec.outputs)):
        for path, uri in folders.items():
            name = "trainer.data" if path == TRAINING_DATA_INPUT else f"{field}.{path}"
            try:
                instead = place_to_use(places, uri, folder, reads=field == "inputs")
            except LookupError:
                listed = ", ".join(_usable(places, folder)) or "none"
                raise SpecError.of(
                    f"{name}: {uri} is outside of the places that the setting "
                    f"LOWTIDE_DATA_PLACES allows ({listed}); name one inside",
                    name,
                ) from None
            if instead is not None:
                raise SpecError.of(
                    f"{name}: {uri} reaches checkpoints, logs or packed folders of jobs, or data "
                    f"of other projects; this project's data are in {instead}",
                    name,
                )


def _usable(places: DeploymentPlaces, folder: str) -> list[str]:
    """Where this project's data may lie: of a shared place only the project's own folder."""
    found = (place_to_use(places, one, folder, reads=False) or one for one in places.data)
    return sorted(set(found))


def check_checkpoint_place(spec: JobSpec, places: DeploymentPlaces) -> None:
    """Raises SpecError for checkpoints outside of what is allowed, or among data or another job's.

    Old checkpoints are deleted by the service: it must not be sent to just any place. A folder is
    made and written in, as the checkpoints will.
    """
    uri = spec.checkpoint.uri
    if uri is None:
        return
    if uri.startswith("file://"):
        allowed = sorted(map(str, places.checkpoint_roots))
        inside = any(below_place(uri, Path(one).absolute().as_uri()) is not None for one in allowed)
        noun, setting = "folders", "LOWTIDE_CHECKPOINT_ROOTS"
    else:
        allowed = sorted(places.checkpoint_buckets)
        inside = any(below_place(uri, one) is not None for one in allowed)
        noun, setting = "buckets", "LOWTIDE_CHECKPOINT_BUCKETS"
    if not inside:
        listed = ", ".join(allowed) or "none"
        raise SpecError.of(
            f"checkpoint.uri: {uri} is outside of the {noun} that the setting {setting} allows "
            f"({listed}); {_NAME_ONE}",
            "checkpoint.uri",
        )
    why = why_no_checkpoints(places, uri)
    if why is not None:
        raise SpecError.of(f"checkpoint.uri: {uri} {why}; {_NAME_ONE}", "checkpoint.uri")
    if uri.startswith("file://"):
        _check_writable(uri)


def check_data_path(spec: JobSpec) -> None:
    """Raises SpecError for data in a working folder that the job does not bring."""
    data = "" if spec.trainer is None else spec.trainer.data
    if "/" in data and "://" not in data and not data.startswith("/") and spec.workdir is None:
        raise SpecError.of(
            f"trainer.data: {data} is a path in the working folder, and the job has none; give "
            "`workdir`, an absolute path such as one of `inputs`, or a bucket",
            "trainer.data",
        )


def check_types(spec: JobSpec, state_dir: Path | None) -> None:
    """Raises SpecError for a type of machine that no cloud has, or whose GPUs are more than used.

    A type with several GPUs trains on all of them only where the spec says how many they are.
    """
    if not spec.instance_types:
        return
    known = _gpus_by_type(state_dir)
    for name in spec.instance_types:
        gpus = known.get(name)
        if gpus is None:
            raise SpecError.of(
                f"instance_types: {name!r} is not a type of machine with GPUs that Lowtide knows; "
                f"`lowtide catalog` lists them{nearest(name, known)}",
                "instance_types",
            )
        if gpus > 1 and not spec.gpu_choices:
            raise SpecError.of(
                f"instance_types: {name} carries {gpus} GPUs; say that you use them, as in "
                f"resources: {{gpu: 'NAME:{gpus}'}}",
                "instance_types",
            )


def check_grants(spec: JobSpec, services: Collection[str], checkpoint_root: str) -> None:
    """Raises SpecError where no credentials could be limited to what the job's machines need."""
    root = (spec.checkpoint.uri or checkpoint_root).rstrip("/")
    job_id = str(UUID(int=0))
    places = job_places(job_id, f"{root}/{job_id}", spec.brought_folders(), spec.outputs)
    problem = grant_problem(services, places)
    if problem is not None:
        field = "inputs" if spec.brought_folders() else "outputs" if spec.outputs else "checkpoint"
        raise SpecError.of(f"{field}: {problem}", field)


def _check_writable(uri: str) -> None:
    folder = Path(unquote(urlsplit(uri).path))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, probe = tempfile.mkstemp(prefix=".lowtide-probe-", dir=folder)
        try:
            os.write(descriptor, b"lowtide")
        finally:
            os.close(descriptor)
            Path(probe).unlink()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError.of(
            f"checkpoint.uri: {uri} cannot be written ({reason}); name a folder that the service "
            "may write, or leave it out for the deployment's own store",
            "checkpoint.uri",
        ) from error


def _gpus_by_type(state_dir: Path | None) -> Mapping[str, int]:
    gpus = {one.instance_type: one.hardware.gpu_count for one in RECORDINGS}
    for provider in CATALOG_PROVIDERS:
        try:
            catalog = load_catalog(provider, state_dir)
        except InvalidValue:
            # A refreshed file that is damaged is the doctor's to tell, not this job's.
            catalog = load_catalog(provider)
        gpus.update((one.name, one.gpu_count) for one in catalog.types)
    return gpus
