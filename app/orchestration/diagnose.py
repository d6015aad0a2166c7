"""Looking at a deployment's set-up before it costs a job: what is checked, and what it means.

Lives here: the checks that need only ports, and running any checks so that one that fails hides no
other. Not here: asking servers (`app.adapters.server_probes`), what each cloud checks of itself
(its provider's `diagnose`), or showing it (`app.cli.doctor`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from app.domain.finding import Finding
from app.ports.cloud_provider import CloudProvider, ProviderError
from app.ports.entropy import Entropy
from app.ports.object_store import ObjectExists, ObjectStore, ObjectStoreDenied, ObjectStoreError
from app.ports.provider_diagnosis import ProviderDiagnosis

_STORE_KEYS = "doctor"
_PAYLOAD_BYTES = 262_144
_STORES_PAGE = "docs/object-stores.md says what the store must allow"

Check = tuple[str, Callable[[], Iterable[Finding]]]


def run_checks(checks: Iterable[Check]) -> tuple[Finding, ...]:
    """Every check's findings, in order; a check that breaks is a finding under its name."""
    found: list[Finding] = []
    for name, check in checks:
        try:
            found += check()
        except Exception as error:  # whatever it is, the other checks must still be seen
            found.append(
                Finding(name, False, f"could not be checked: {_first_line(error)}", _broken(error))
            )
    return tuple(found)


def check_object_store(store: ObjectStore, entropy: Entropy) -> tuple[Finding, ...]:
    """Read after write, create-only, and whether what comes back is what was written.

    Leaves nothing behind, unless deleting is what fails.
    """
    key = f"{_STORE_KEYS}/{entropy.new_id()}"
    payload = (entropy.new_token().encode() * _PAYLOAD_BYTES)[:_PAYLOAD_BYTES]
    names = "object store: write and read", "object store: create only", "object store: delete"
    try:
        store.put_new(key, payload)
        back = store.get(key)
        listed = key in store.list_keys(_STORE_KEYS)
    except ObjectStoreError as error:
        what = "allow it" if isinstance(error, ObjectStoreDenied) else "correct the address"
        return (Finding(names[0], False, _first_line(error), f"{what}: {_STORES_PAGE}"),)
    same = hashlib.sha256(back).digest() == hashlib.sha256(payload).digest()
    found = [
        Finding(
            names[0],
            same and listed,
            "what is written is there at once, unchanged and listed"
            if same and listed
            else "what is written does not come back unchanged, or is not listed at once",
            "" if same and listed else "use a store with strong consistency: S3, Google's, MinIO",
        )
    ]
    try:
        store.put_new(key, b"another")
        found.append(
            Finding(
                names[1],
                False,
                "a second write replaced the first",
                "this store ignores If-None-Match: checkpoints are not safe there, use another",
            )
        )
    except ObjectExists:
        found.append(Finding(names[1], True, "a second writer of one key is refused"))
    except ObjectStoreError as error:
        found.append(Finding(names[1], False, _first_line(error), _STORES_PAGE))
    try:
        store.delete(key)
        found.append(Finding(names[2], True, "what is no longer needed can be deleted"))
    except ObjectStoreError as error:
        found.append(Finding(names[2], False, _first_line(error), f"allow it: {_STORES_PAGE}"))
    return tuple(found)


def check_provider(name: str, provider: CloudProvider) -> tuple[Finding, ...]:
    """What a provider finds about itself; one that checks nothing is asked for its regions."""
    try:
        if isinstance(provider, ProviderDiagnosis):
            return tuple(
                replace(finding, name=f"{name}: {finding.name}") for finding in provider.diagnose()
            )
        regions = ", ".join(provider.regions())
    except ProviderError as error:
        return (Finding(name, False, _first_line(error), f"correct the settings of {name}"),)
    return (Finding(name, True, f"needs no set-up; regions: {regions}"),)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().split("\n", 1)[0]


def _broken(error: Exception) -> str:
    return f"report this as a bug of `lowtide doctor` ({type(error).__name__})"
