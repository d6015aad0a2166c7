"""Compute Engine's error codes, from HTTP and from finished operations, in the port's words.

Source: Compute Engine documentation, "Troubleshooting resource availability" and "Error messages".
An operation's own `error.errors[].code` counts, never the class of exception that the client makes
of its HTTP status. Not here: which pools a refusal is reported for (`launching`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.ports.cloud_provider import ProviderError, RefusalKind, RefusalScope

_CAPACITY = (RefusalKind.NO_CAPACITY, RefusalScope.POOL)
_QUOTA = (RefusalKind.QUOTA, RefusalScope.FAMILY)
_SLOWER = (RefusalKind.THROTTLED, RefusalScope.ZONE)
_DENIED = (RefusalKind.DENIED, RefusalScope.PROVIDER)
_FAILED = (RefusalKind.UNAVAILABLE, RefusalScope.ZONE)
_WRONG = (RefusalKind.REJECTED, RefusalScope.REGION)

_CODES: Final[dict[str, tuple[RefusalKind, RefusalScope]]] = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": _CAPACITY,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": _CAPACITY,
    "REGION_RESOURCE_POOL_EXHAUSTED": _CAPACITY,
    "insufficientCapacity": _CAPACITY,
    "resourcePoolExhausted": _CAPACITY,
    # What an insert's operation says when the VM was preempted while it was being created.
    "UNSUPPORTED_OPERATION": _CAPACITY,
    "RESOURCE_NOT_FOUND": _CAPACITY,
    "VM_MIN_COUNT_NOT_REACHED": _CAPACITY,
    "QUOTA_EXCEEDED": _QUOTA,
    "quotaExceeded": _QUOTA,
    "limitExceeded": _QUOTA,
    "RESOURCE_OPERATION_RATE_EXCEEDED": _SLOWER,
    "rateLimitExceeded": _SLOWER,
    "userRateLimitExceeded": _SLOWER,
    "RESOURCE_NOT_READY": _SLOWER,
    "resourceNotReady": _SLOWER,
    "IAM_PERMISSION_DENIED": _DENIED,
    "PERMISSIONS_ERROR": _DENIED,
    "VPC_NOT_FOUND": _DENIED,
    "forbidden": _DENIED,
    "required": _DENIED,
    "authError": _DENIED,
    "accessNotConfigured": _DENIED,
    "SERVICE_DISABLED": _DENIED,
    "BILLING_DISABLED": _DENIED,
    "billingNotEnabled": _DENIED,
    "conditionNotMet": _DENIED,
    "CONDITION_NOT_MET": _DENIED,
    "INTERNAL_ERROR": _FAILED,
    "internalError": _FAILED,
    "backendError": _FAILED,
}

_BY_STATUS: Final = {
    400: _WRONG,
    401: _DENIED,
    403: _DENIED,
    404: _WRONG,
    408: _FAILED,
    409: _WRONG,
    412: _DENIED,
    429: _SLOWER,
}

# A feature that a type cannot have: another disk, network interface or policy. It comes as a 400,
# or inside an operation under the code of a preemption or of a pool that is exhausted.
_INCOMPATIBLE: Final = re.compile(
    r"disk type cannot be used by|features are not compatible"
    r"|(?:not support\w*|unsupported|not available|not allowed)[^.]*machine type"
    r"|machine type[^.]*(?:not support|unsupported)|Too many \S+ interfaces",
    re.IGNORECASE,
)

# What a person does about it. Source of the reasons: google/api/error_reason.proto.
_REMEDIES: Final = {
    "BILLING_DISABLED": "link a billing account to the project, on the console's Billing page",
    "billingNotEnabled": "link a billing account to the project, on the console's Billing page",
    "SERVICE_DISABLED": "enable the API: gcloud services enable {service}",
    "accessNotConfigured": "enable the API: gcloud services enable {service}",
    "authError": "the credentials are not accepted: are they this project's, and is the clock of "
    "this machine right?",
}
_COMPUTE: Final = "compute.googleapis.com"

EXISTS_CODES: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})


@dataclass(frozen=True)
class GceError:
    """One error of the API. `code` is its own; `exists`: a resource of this name is there."""

    kind: RefusalKind
    scope: RefusalScope
    code: str
    message: str

    @property
    def exists(self) -> bool:
        """The name is taken, and names being what they are, by us."""
        return self.code in EXISTS_CODES

    def error(self) -> ProviderError:
        """As an error of the call as a whole."""
        return ProviderError(self.kind, f"{self.code}: {self.message}", self.scope)


def refusal_of(code: str, message: str, http_status: int | None = None) -> GceError:
    """What a code means; for an unknown one its HTTP status decides, and a failure at last."""
    kind, scope = _CODES.get(code) or _of_status(http_status)
    if kind is RefusalKind.QUOTA and "GPUS_ALL_REGIONS" in message:
        scope = RefusalScope.PROVIDER
    wrong = kind is RefusalKind.REJECTED
    incompatible = _INCOMPATIBLE.search(message) is not None
    if (wrong and (incompatible or _is_about_the_type(message))) or (
        kind is RefusalKind.NO_CAPACITY and incompatible
    ):
        kind, scope = RefusalKind.UNSUPPORTED, RefusalScope.POOL
    return GceError(kind, scope, code, message)


def of_operation(operation: Any) -> tuple[GceError, ...]:
    """The errors inside a finished operation, in its order."""
    status = operation.http_error_status_code or None
    found = tuple(
        refusal_of(one.code, one.message or operation.http_error_message, status)
        for one in operation.error.errors
    )
    if found or status is None or status < 400:
        return found
    return (refusal_of(str(status), operation.http_error_message, status),)


def of_http(error: Any) -> GceError:
    """The refusal in a `google.api_core.exceptions.GoogleAPICallError`."""
    status = getattr(error, "code", None)
    number = int(status) if status is not None else None
    return _of_details(_details(error), str(error.message), number, _COMPUTE)


def of_document(document: Any, http_status: int, service: str) -> GceError:
    """The refusal in the JSON document of another Google API, the `service`.

    A document without an error gives one with an empty message.
    """
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return refusal_of(str(http_status), "", http_status)
    details = [*error.get("details", ()), *error.get("errors", ())]
    known = [one for one in details if isinstance(one, dict)]
    return _of_details(known, str(error.get("message", "")), http_status, service)


def _of_details(
    details: Sequence[dict[str, Any]], message: str, status: int | None, service: str
) -> GceError:
    """By the first reason that is known; those of `google.rpc.ErrorInfo` say more, and come first.

    The message ends with the remedy. service: the API that was called, for errors that do not
    name one.
    """
    reasons = [str(one.get("reason", "")) for one in details]
    known = next((reason for reason in reasons if reason in _CODES or reason in EXISTS_CODES), None)
    code = known or next(filter(None, reasons), str(status))
    remedy = _REMEDIES.get(code)
    if remedy is not None:
        told = (one.get("metadata") for one in details)
        metadata = next((one for one in told if isinstance(one, dict)), {})
        message = f"{message}; {remedy.format(service=metadata.get('service', service))}"
    return refusal_of(code, message, status)


def _details(error: Any) -> list[dict[str, Any]]:
    return [one for one in (*error.details, *error.errors) if isinstance(one, dict)]


def _of_status(http_status: int | None) -> tuple[RefusalKind, RefusalScope]:
    if http_status is None or http_status >= 500:
        return _FAILED
    return _BY_STATUS.get(http_status, _WRONG)


def _is_about_the_type(message: str) -> bool:
    """A type that a zone lacks is told in words only."""
    return "machineType" in message or "Machine type" in message or "acceleratorType" in message
