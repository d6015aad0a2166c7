"""Whether machines can be given credentials for their job's folders, and for no others.

Asks for one as for a job, and tries it. Not here: other checks (`diagnose`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from app.domain.deployment.check_result import CheckResult, warning
from app.domain.market.storage_places import job_places
from app.ports.object_store import ObjectStore, ObjectStoreDenied, ObjectStoreError
from app.ports.storage_grants import GrantRefused, StorageGrantIssuer

_NAME = "jobs' data"
_PAGE = "docs/object-stores.md, Credentials"


def check_storage_grants(
    issuers: Mapping[str, StorageGrantIssuer],
    root_uri: str,
    open_with: Callable[[str, Mapping[str, str]], ObjectStore],
    control: Callable[[str], ObjectStore],
    probe_id: UUID,
) -> tuple[CheckResult, ...]:
    """root_uri: of checkpoints. open_with: the store at an address, with a credential's values;
    control: with our own. probe_id: stands for a job's. Leaves nothing behind.
    """
    service = root_uri.partition("://")[0]
    if service == "file":
        return ()
    issuer = issuers.get(service)
    if issuer is None:
        told = "machines use the rights of their own role, which are not limited to their job"
        setting = "LOWTIDE_AWS_DATA_ROLE" if service == "s3" else "LOWTIDE_GCP_DATA_ACCOUNT"
        return (warning(_NAME, told, f"set {setting}: {_PAGE}"),)
    own, other = (f"{root_uri.rstrip('/')}/doctor-{one}" for one in (probe_id, f"not-{probe_id}"))
    try:
        values = issuer.issue(job_places(str(probe_id), own, {}, {}), probe_id).values
    except GrantRefused as error:
        return (CheckResult(_NAME, False, str(error), f"{_remedy(service)}: {_PAGE}"),)
    try:
        store = open_with(own, values)
        store.put_new("probe", b"lowtide")
        good = store.get("probe") == b"lowtide" and list(store.list_keys("")) == ["probe"]
    except ObjectStoreError as error:
        told = f"a credential for one job's folder cannot use it: {error}"
        return (CheckResult(_NAME, False, told, f"{_remedy(service)}: {_PAGE}"),)
    finally:
        control(own).delete("probe")
    if not good:
        return (
            CheckResult(_NAME, False, "an object does not come back as the job wrote it", _PAGE),
        )
    try:
        open_with(other, values).put_new("probe", b"lowtide")
    except ObjectStoreDenied:
        told = "a credential for one job's folder writes, reads and lists there, and nowhere else"
        return (CheckResult(_NAME, True, told),)
    control(other).delete("probe")
    told = "a credential for one job's folder writes into another's: the store does not limit it"
    return (CheckResult(_NAME, False, told, "use a store that evaluates session policies"),)


def _remedy(service: str) -> str:
    if service == "s3":
        return "give the role deploy/aws/data-policy.json, and the control plane sts:AssumeRole"
    return (
        "give the account roles/storage.objectUser on the bucket, and the control plane's "
        "roles/iam.serviceAccountTokenCreator on it"
    )
