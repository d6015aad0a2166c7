"""What only the world can tell of the machine a spec asks for: its types, and where its data lies.

Not here: the fields' own rules (`domain`), or the packed folder and the checkpoints (`spec_body`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.adapters.providers.local.catalog import RECORDINGS
from app.adapters.providers.machine_catalog import CATALOG_PROVIDERS, load_catalog
from app.domain.errors import InvalidValue, SpecError
from app.domain.job_spec import JobSpec
from app.domain.spec_value import nearest
from trainer.protocol.run_config import TRAINING_DATA_INPUT


def check_data_places(spec: JobSpec, allowed: Collection[str]) -> None:
    """Raises SpecError for an input, output or training data outside of what is allowed.

    Machines read and write there with the deployment's rights, whoever's job it is.
    """
    for field, folders in (("inputs", spec.brought_folders()), ("outputs", spec.outputs)):
        for path, uri in folders.items():
            if not any(_lies_in(uri, place) for place in allowed):
                name = "trainer.data" if path == TRAINING_DATA_INPUT else f"{field}.{path}"
                listed = ", ".join(sorted(allowed)) or "none"
                raise SpecError.of(
                    f"{name}: {uri} lies outside of the places that the setting "
                    f"LOWTIDE_DATA_PLACES allows ({listed}); name one inside",
                    name,
                )


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


def lies_in_bucket(uri: str, place: str) -> bool:
    """Whether a bucket's address lies in another, as those who open it read both.

    They decode `%2e` and follow `..`: an address with either may lead out of what it begins with.
    """
    odd = "%" in uri or not {".", ".."}.isdisjoint(uri.split("/"))
    return not odd and f"{uri}/".startswith(f"{place.rstrip('/')}/")


def _lies_in(uri: str, place: str) -> bool:
    if not place.startswith("file://"):
        return lies_in_bucket(uri, place)
    if not uri.startswith("file://"):
        return False
    try:
        # Where it really lies: a link must not lead out of the folders that are allowed.
        return _folder(uri).resolve().is_relative_to(_folder(place).resolve())
    except (OSError, RuntimeError):
        return False


def _folder(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


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
