"""The kinds of value that say what a machine is and what lies on it: disk, image, types, folders.

Each is an annotated type; its reader says what is accepted and in which words it is refused. Not
here: whether a place may be named in this deployment, or a type exists (`submission.spec_places`).
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final

from app.domain.spec.spec_value import Written, checked_text, kind_of, matching, refusal
from trainer.protocol.run_config import folder_variable

MIN_DISK_GB: Final = 10
MAX_DISK_GB: Final = 16_384
"""A gp3 volume's most (EBS user guide); Google's balanced disks go to 65,536 GB."""

MAX_SHM_MB: Final = 16_000_000
MAX_FOLDERS: Final = 16
MAX_INSTANCE_TYPES: Final = 32

_SIZE = re.compile(r"([0-9]{1,8})(MB|GB|TB)", re.ASCII | re.IGNORECASE)
_MEGABYTES: Final = {"MB": 1, "GB": 1_000, "TB": 1_000_000}
_TYPE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}", re.ASCII)
_FOLDER = re.compile(r"/?[A-Za-z0-9._@+-]+(?:/[A-Za-z0-9._@+-]+)*", re.ASCII)
_BUCKET = re.compile(r"(?:s3|gs)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](?:/[^\s?#]*)?", re.ASCII)
_FILE = re.compile(r"file://(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._@+=,-]+)+/?", re.ASCII)

# The system's own, whole, and Lowtide's: nothing of a job's may cover what is below them.
_SYSTEM: Final = (
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "lowtide", "opt/lowtide",
    "proc", "root", "run", "sbin", "scratch", "sys", "usr", "var",
)  # fmt: skip
# Folders that programs expect to be there; one below them is free.
_SHARED: Final = ("home", "media", "mnt", "opt", "srv", "tmp")


def _read_megabytes(value: object, least: int, most: int, how: str) -> int:
    parts = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if parts is None:
        raise refusal(f"must be a size like {how}, not {kind_of(value)}")
    megabytes = int(parts[1]) * _MEGABYTES[parts[2].upper()]
    if not least <= megabytes <= most:
        raise refusal(f"must be {_size_text(least)} to {_size_text(most)}")
    return megabytes


def _size_text(megabytes: int) -> str:
    return f"{megabytes // 1_000}GB" if megabytes % 1_000 == 0 else f"{megabytes}MB"


def _read_disk(value: object) -> int:
    """Whole GB, rounded up."""
    return -(-_read_megabytes(value, MIN_DISK_GB * 1_000, MAX_DISK_GB * 1_000, "500GB") // 1_000)


def _read_shm(value: object) -> int:
    return _read_megabytes(value, 1, MAX_SHM_MB, "16GB")


def _read_types(value: object) -> tuple[str, ...]:
    """Sorted: any of them will do."""
    types = value if isinstance(value, list | tuple) else [value]
    if not 1 <= len(types) <= MAX_INSTANCE_TYPES:
        raise refusal(f"must name 1 to {MAX_INSTANCE_TYPES} types of machine, like p4d.24xlarge")
    for one in types:
        if not isinstance(one, str) or _TYPE.fullmatch(one) is None:
            raise refusal(f"must name types like p3.2xlarge or a3-highgpu-1g, not {kind_of(one)}")
    return tuple(sorted(set(types)))


def _read_inputs(value: object) -> dict[str, str]:
    folders = _read_folders(value)
    relative = next((path for path in folders if not path.startswith("/")), None)
    if relative is not None:
        raise refusal(f"{relative!r} must be a whole path, like /{relative}")
    return folders


def _read_folders(value: object) -> dict[str, str]:
    """Folders on the machine with the address of each, by folder."""
    if not isinstance(value, dict):
        raise refusal(f"must be a mapping like {{/data: s3://bucket/path}}, not {kind_of(value)}")
    if len(value) > MAX_FOLDERS:
        raise refusal(f"must name at most {MAX_FOLDERS} folders, not {len(value)}")
    folders: dict[str, str] = {}
    for written, address in value.items():
        path = _folder(written)
        if path in folders:
            raise refusal(f"names the folder {path!r} twice; keep one of them")
        folders[path] = _address(path, address)
    return dict(sorted(folders.items()))


def _folder(written: object) -> str:
    if not isinstance(written, str) or len(written) > 256:
        raise refusal(f"names a folder by {kind_of(written)}; write a path like /data")
    path = written.rstrip("/")
    parts = PurePosixPath(path).parts
    if _FOLDER.fullmatch(path) is None or ".." in parts or "." in path.split("/"):
        raise refusal(
            f"{written[:60]!r} is not a folder; write a path like /data, of letters, digits and "
            "._@+-"
        )
    below = path.removeprefix("/")
    covered = path.startswith("/") and (
        below in _SHARED or any(f"{below}/".startswith(f"{one}/") for one in _SYSTEM)
    )
    if covered:
        raise refusal(f"{path!r} would hide a system folder; write one like /data", path)
    return path


def _address(path: str, value: object) -> str:
    address = checked_text(value, 1_024) if isinstance(value, str) else ""
    usable = _BUCKET.fullmatch(address) or _FILE.fullmatch(address)
    if usable is None or ".." in address.split("/"):
        shown = repr(address[:60]) if address else kind_of(value)
        raise refusal(
            f"{shown} is not an address; write s3://bucket/path, gs://bucket/path or file:///a/folder",
            path,
        )
    return address.rstrip("/")


def check_folders(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Raises a refusal where two folders overlap, or two would share a variable's name."""
    paths = [*inputs, *outputs]
    for index, path in enumerate(paths):
        for other in paths[index + 1 :]:
            if f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/"):
                field = "outputs" if other in outputs else "inputs"
                raise refusal(f"{other!r} and {path!r} overlap; keep them apart", field)
    for field, noun, folders in (("inputs", "INPUT", inputs), ("outputs", "OUTPUT", outputs)):
        named: dict[str, str] = {}
        for path in folders:
            variable = folder_variable(noun, path)
            if variable in named:
                raise refusal(
                    f"{path!r} and {named[variable]!r} would both be {variable}; rename one", field
                )
            named[variable] = path


_TEXT = {"type": "string"}
_FOLDERS_FORM = {"type": "object", "additionalProperties": _TEXT}
_TYPES_FORM = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}], "examples": [["p4d.24xlarge"]]}

DiskSize = Annotated[
    int, Written(_read_disk, {**_TEXT, "examples": ["500GB", "2TB"]}, lambda gb: f"{gb}GB")
]
ShmSize = Annotated[int, Written(_read_shm, {**_TEXT, "examples": ["16GB"]}, _size_text)]
InstanceTypes = Annotated[tuple[str, ...], Written(_read_types, _TYPES_FORM, list)]
Inputs = Annotated[dict[str, str], Written(_read_inputs, _FOLDERS_FORM)]
Outputs = Annotated[dict[str, str], Written(_read_folders, _FOLDERS_FORM)]
Image = Annotated[
    str,
    matching(
        r"[a-z0-9][a-z0-9.-]*(?::[0-9]{1,5}(?=/))?(?:/[a-z0-9][a-z0-9._-]*)*"
        r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
        "write an image like pytorch/pytorch:2.9 or nvcr.io/nvidia/pytorch:25.05-py3",
    ),
]
