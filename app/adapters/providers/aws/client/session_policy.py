"""The session policy that narrows the role of jobs' data to one job's folders.

What a session may do is what the role's policy and the session's both allow (IAM user guide,
"Session policies"). At most 2,048 characters (STS API reference, AssumeRole, `Policy`), so it is
written without a space more than it needs. Imports no SDK: submissions are checked with it.

What the order of a lineage rests on (fences, manifests) can be created, and not written over: there
s3:PutObject is allowed with the header If-None-Match alone (S3 user guide, "Enforce conditional
writes on Amazon S3 buckets"; Service Authorization Reference, s3:PutObject, s3:if-none-match).
Large files of a checkpoint come in parts, and our client cannot complete those with that header;
their hashes are in the manifest, so that one written over is found out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from app.domain.market.storage_places import StoragePlace, StorageRight, odd_place

POLICY_CHARACTERS_MAX: Final = 2_048
_READS: Final = (StorageRight.LINEAGE, StorageRight.READ)
_CREATES: Final = (StorageRight.LINEAGE,)
_WRITES: Final = (StorageRight.WRITE,)
_FILES: Final = "data"


def policy_problem(places: Sequence[StoragePlace]) -> str | None:
    """Why no session policy can name these places; None if one can."""
    odd = odd_place(places)
    if odd is not None:
        return (
            f"{odd} has characters that a policy of AWS cannot name; use letters, digits and "
            "!_.()@:+=,&;-"
        )
    size = len(session_policy(places))
    if size <= POLICY_CHARACTERS_MAX:
        return None
    return (
        f"the job's places in S3 need a policy of {size:,} characters, and AWS takes "
        f"{POLICY_CHARACTERS_MAX:,}: name fewer inputs and outputs, or folders that contain them"
    )


def session_policy(places: Iterable[StoragePlace], partition: str = "aws") -> str:
    """The document. partition: of the role's ARN."""
    wanted = sorted(places)
    files = [
        replace(one, folder=f"{one.folder}/{_FILES}".lstrip("/"), right=StorageRight.WRITE)
        for one in wanted
        if one.right in _CREATES
    ]
    written = _objects([*wanted, *files], _WRITES, partition)
    created = _allow(["s3:PutObject"], _objects(wanted, _CREATES, partition))
    created["Condition"] = {"Null": {"s3:if-none-match": "false"}}
    statements: list[dict[str, Any]] = [
        _allow(["s3:GetObject"], _objects(wanted, _READS, partition)),
        created,
        _allow(["s3:PutObject", "s3:AbortMultipartUpload"], written),
    ]
    for bucket in sorted({one.bucket for one in wanted if one.right in _READS}):
        folders = _outermost(
            one.folder for one in wanted if one.bucket == bucket and one.right in _READS
        )
        lists = _allow(["s3:ListBucket"], [f"arn:{partition}:s3:::{bucket}"])
        if "" not in folders:
            # Without this key a request lists the whole bucket: it must be there, and fit.
            below = [f"{folder}/*" for folder in folders]
            lists["Condition"] = {"StringLike": {"s3:prefix": _lone(below)}}
        statements.append(lists)
    # A key of one's own is used in the session's name; the role decides which (docs/aws.md).
    keys = _allow(["kms:Decrypt", "kms:GenerateDataKey"], ["*"])
    keys["Condition"] = {"StringLike": {"kms:ViaService": "s3.*"}}
    statements.append(keys)
    told = {"Version": "2012-10-17", "Statement": [one for one in statements if one["Resource"]]}
    return json.dumps(told, separators=(",", ":"))


def _allow(actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": _lone(actions), "Resource": _lone(resources)}


def _objects(
    places: Iterable[StoragePlace], rights: Iterable[StorageRight], partition: str
) -> list[str]:
    of_bucket: dict[str, list[str]] = {}
    for one in places:
        if one.right in rights:
            of_bucket.setdefault(one.bucket, []).append(one.folder)
    return [
        f"arn:{partition}:s3:::{bucket}/{folder}/*"
        if folder
        else f"arn:{partition}:s3:::{bucket}/*"
        for bucket, folders in sorted(of_bucket.items())
        for folder in _outermost(folders)
    ]


def _outermost(folders: Iterable[str]) -> list[str]:
    """Those that lie in no other one."""
    kept: list[str] = []
    for folder in sorted(set(folders)):
        if not any(one == "" or f"{folder}/".startswith(f"{one}/") for one in kept):
            kept.append(folder)
    return kept


def _lone(values: list[str]) -> Any:
    return values[0] if len(values) == 1 else values
