"""Looking at a deployment's set-up before it costs a job: what is checked, and what it means.

Lives here: the checks that need only ports, and running any checks so that one that fails hides no
other. Not here: asking servers (`app.adapters.server_probes`), what each cloud checks of itself
(its provider's `diagnose`), or showing it (`app.cli.server.doctor_command`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from urllib.parse import urlsplit

from app.domain.deployment.check_result import CheckResult, warning
from app.ports.bucket_places import BucketPlaceSource
from app.ports.cloud_provider import CloudProvider, ProviderError
from app.ports.entropy import Entropy
from app.ports.object_store import ObjectExists, ObjectStore, ObjectStoreDenied, ObjectStoreError
from app.ports.provider_diagnosis import ProviderDiagnosis

_STORE_KEYS = "doctor"
_PAYLOAD_BYTES = 262_144
_STORE = "object store"
_STORES_PAGE = "docs/object-stores.md says what the store must allow"
_STRONG = "use a store with strong consistency: S3, Google's, MinIO"
_RIGHTS = {
    "write": "s3:PutObject (Google: storage.objects.create)",
    "read": "s3:GetObject (Google: storage.objects.get)",
    "list": "s3:ListBucket (Google: storage.objects.list)",
    "create only": "s3:PutObject (Google: storage.objects.create)",
    "delete": "s3:DeleteObject (Google: storage.objects.delete)",
}

_PLACE_RIGHT = "s3:GetBucketLocation (Google: storage.buckets.get)"

Check = tuple[str, Callable[[], Iterable[CheckResult]]]


def run_checks(checks: Iterable[Check]) -> tuple[CheckResult, ...]:
    """Every check's results, in order; a check that breaks is a result under its name."""
    found: list[CheckResult] = []
    for name, check in checks:
        try:
            found += check()
        except Exception as error:  # whatever it is, the other checks must still be seen
            found.append(
                CheckResult(
                    name, False, f"could not be checked: {_first_line(error)}", _broken(error)
                )
            )
    return tuple(found)


def check_object_store(store: ObjectStore, entropy: Entropy) -> tuple[CheckResult, ...]:
    """Write, read, list, create-only and delete, each by itself, with an object made for it.

    Leaves nothing behind, unless deleting is what fails: then its key is said.
    """
    key = f"{_STORE_KEYS}/{entropy.new_id()}"
    payload = (entropy.new_token().encode() * _PAYLOAD_BYTES)[:_PAYLOAD_BYTES]
    try:
        store.put_new(key, payload)
    except ObjectStoreError as error:
        # Nothing else can be tried.
        return (_store_refusal("write", error, correct_the_address=True),)
    found = [
        CheckResult(f"{_STORE}: write", True, "a new object can be written"),
        _look("read", lambda: _reads_back(store, key, payload)),
        _look("list", lambda: _is_listed(store, key)),
        _look("create only", lambda: _creates_only(store, key)),
    ]
    try:
        store.delete(key)
        found.append(CheckResult(f"{_STORE}: delete", True, "objects can be deleted"))
    except ObjectStoreError as error:
        refused = _store_refusal("delete", error)
        told = f"{refused.sentence}; {key} stays there: delete it by hand"
        found.append(replace(refused, sentence=told))
    return tuple(found)


def _look(what: str, ask: Callable[[], CheckResult]) -> CheckResult:
    try:
        return ask()
    except ObjectStoreError as error:
        return _store_refusal(what, error)


def _reads_back(store: ObjectStore, key: str, payload: bytes) -> CheckResult:
    name = f"{_STORE}: read"
    if hashlib.sha256(store.get(key)).digest() == hashlib.sha256(payload).digest():
        return CheckResult(name, True, "a new object can be read back at once, unchanged")
    return CheckResult(name, False, "an object does not come back as it was written", _STRONG)


def _is_listed(store: ObjectStore, key: str) -> CheckResult:
    name = f"{_STORE}: list"
    if key in store.list_keys(_STORE_KEYS):
        return CheckResult(name, True, "a new object is listed at once")
    return CheckResult(name, False, "a new object is not listed at once", _STRONG)


def _creates_only(store: ObjectStore, key: str) -> CheckResult:
    name = f"{_STORE}: create only"
    try:
        store.put_new(key, b"another")
    except ObjectExists:
        return CheckResult(name, True, "a second writer of one key is refused")
    return CheckResult(
        name,
        False,
        "a second write replaced the first",
        "this store ignores If-None-Match: checkpoints are not safe there, use another",
    )


def _store_refusal(
    what: str, error: ObjectStoreError, *, correct_the_address: bool = False
) -> CheckResult:
    """A refusal names the right that the action needs, at either cloud."""
    if isinstance(error, ObjectStoreDenied):
        remedy = f"allow the control plane {_RIGHTS[what]} on the bucket: {_STORES_PAGE}"
    else:
        remedy = f"correct the address: {_STORES_PAGE}" if correct_the_address else _STORES_PAGE
    return CheckResult(f"{_STORE}: {what}", False, _first_line(error), remedy)


def check_provider(name: str, provider: CloudProvider) -> tuple[CheckResult, ...]:
    """What a provider finds about itself; one that checks nothing is asked for its regions."""
    try:
        if isinstance(provider, ProviderDiagnosis):
            return tuple(
                replace(result, name=f"{name}: {result.name}") for result in provider.diagnose()
            )
        regions = ", ".join(provider.regions())
    except ProviderError as error:
        return (CheckResult(name, False, _first_line(error), f"correct the settings of {name}"),)
    return (CheckResult(name, True, f"needs no set-up; regions: {regions}"),)


def check_bucket_place(
    name: str, provider: CloudProvider, checkpoint_uri: str, region: str | None
) -> tuple[CheckResult, ...]:
    """Whether a cloud tells where the bucket of checkpoints is, by the very call that asks it.

    region: as a person has set it, for then it is not asked. Nothing for a bucket that is not its.
    """
    parts = urlsplit(checkpoint_uri)
    if (
        not isinstance(provider, BucketPlaceSource)
        or provider.bucket_scheme != parts.scheme
        or region
    ):
        return ()
    what = f"{name}: bucket of checkpoints"
    try:
        place = provider.locate_bucket(parts.netloc)
    except ProviderError as error:
        told = f"its region is unknown, so egress cannot be priced: {_first_line(error)}"
        return (warning(what, told, f"set LOWTIDE_CHECKPOINT_REGION, or allow {_PLACE_RIGHT}"),)
    return (CheckResult(what, True, f"{parts.netloc} is in {place}"),)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().split("\n", 1)[0]


def _broken(error: Exception) -> str:
    return f"report this as a bug of `lowtide doctor` ({type(error).__name__})"
