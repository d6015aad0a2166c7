"""The Credential Access Boundary that narrows a token of Google's to one job's folders.

Sources: IAM, "Restrict a credential's Cloud Storage permissions" (the expressions), Security Token
Service API, AccessBoundary: at most 10 rules; their union counts, each limited to predefined roles
on one bucket. Imports no SDK: submissions are checked with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from app.domain.market.storage_places import StoragePlace, StorageRight, odd_place

RULES_MAX: Final = 10
EXPRESSION_CHARACTERS_MAX: Final = 2_048
_ROLES: Final = {
    StorageRight.LINEAGE: ("roles/storage.objectViewer", "roles/storage.objectCreator"),
    StorageRight.READ: ("roles/storage.objectViewer",),
    # To replace an object is to delete it, there: an output that comes again replaces the first.
    StorageRight.WRITE: ("roles/storage.objectUser",),
}
_LISTS: Final = "roles/storage.objectViewer"


def boundary_problem(places: Sequence[StoragePlace]) -> str | None:
    """Why no boundary can name these places; None if one can."""
    odd = odd_place(places)
    if odd is not None:
        return (
            f"{odd} has characters that a condition of Google's cannot name; use letters, digits "
            "and !_.()@:+=,&;-"
        )
    rules = access_boundary(places)["accessBoundary"]["accessBoundaryRules"]
    longest = max((len(_expression_of(rule)) for rule in rules), default=0)
    if len(rules) <= RULES_MAX and longest <= EXPRESSION_CHARACTERS_MAX:
        return None
    return (
        f"the job's places in Cloud Storage need {len(rules)} rules, the longest of {longest:,} "
        f"characters, and Google takes {RULES_MAX} of {EXPRESSION_CHARACTERS_MAX:,}: name fewer "
        "inputs and outputs, or folders that contain them"
    )


def access_boundary(places: Iterable[StoragePlace]) -> dict[str, Any]:
    """The `options` of a token exchange: one rule for each bucket and role."""
    folders: dict[tuple[str, str], set[str]] = {}
    for one in places:
        for role in _ROLES[one.right]:
            folders.setdefault((one.bucket, role), set()).add(one.folder)
    rules = [
        _rule(bucket, role, sorted(found)) for (bucket, role), found in sorted(folders.items())
    ]
    return {"accessBoundary": {"accessBoundaryRules": rules}}


def _rule(bucket: str, role: str, folders: list[str]) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "availablePermissions": [f"inRole:{role}"],
    }
    if "" not in folders:
        named = [
            f"resource.name.startsWith('projects/_/buckets/{bucket}/objects/{folder}/')"
            for folder in folders
        ]
        if role == _LISTS:
            asked = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
            named += [f"{asked}.startsWith('{folder}/')" for folder in folders]
        rule["availabilityCondition"] = {"expression": " || ".join(named)}
    return rule


def _expression_of(rule: dict[str, Any]) -> str:
    return str(rule.get("availabilityCondition", {}).get("expression", ""))
