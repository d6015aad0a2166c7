"""What a job's machines need of object stores: which folders, and what may be done there.

Pure. The narrower it is the better: a machine runs other people's code. Not here: how a cloud
writes it down (`session_policy`, `access_boundary`), who may name which address (`data_places`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trainer.protocol.run_config import job_folder
from trainer.protocol.storage_access import GOOGLE, S3

SERVICES: Final = frozenset({S3, GOOGLE})
_PLAIN: Final = re.compile(r"[A-Za-z0-9/!_.()@:+=,&; -]*", re.ASCII)


class StorageRight(StrEnum):
    """What may be done below a folder. Nothing may be deleted by any of them on S3."""

    LINEAGE = "lineage"  # read, list, create
    READ = "read"  # read, list
    WRITE = "write"  # create and replace


@dataclass(frozen=True, order=True)
class StoragePlace:
    """A folder of a bucket. folder: without slashes at its ends; "" is the whole bucket."""

    service: str
    bucket: str
    folder: str
    right: StorageRight


def job_places(
    job_id: str, checkpoint_uri: str, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> tuple[StoragePlace, ...]:
    """All that a job's machines need; folders of this machine need no credentials.

    checkpoint_uri: the job's own lineage, not the root of them all.
    """
    wanted = [(checkpoint_uri, StorageRight.LINEAGE)]
    wanted += [(uri, StorageRight.READ) for uri in inputs.values()]
    wanted += [(job_folder(uri, job_id), StorageRight.WRITE) for uri in outputs.values()]
    found = set()
    for uri, right in wanted:
        service, _, rest = uri.partition("://")
        bucket, _, folder = rest.partition("/")
        if service in SERVICES:
            found.add(StoragePlace(service, bucket, folder.strip("/"), right))
    return tuple(sorted(found))


def odd_place(places: Iterable[StoragePlace]) -> str | None:
    """The address of a place that no policy can name as it is: policies have wildcards and
    variables of their own.
    """
    for one in places:
        if _PLAIN.fullmatch(one.folder) is None or "//" in one.folder:
            return f"{one.service}://{one.bucket}/{one.folder}"
    return None


def scope_digest(places: Iterable[StoragePlace], by: str) -> str:
    """Names a scope. by: what else changes it, such as the role."""
    told = "\n".join([by, *(f"{one.service} {one.bucket} {one.right} {one.folder}" for one in
                            sorted(places))])  # fmt: skip
    return hashlib.sha256(told.encode()).hexdigest()[:16]
