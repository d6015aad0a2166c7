"""AWS's error codes as the port's kinds, and a sentence on what to change for each.

Sources: the error code pages of EC2 and of the common query errors, and the codes that CreateFleet
puts into `Errors[]`. Not here: what the control plane does about a kind (`launch_instances`).
"""

from __future__ import annotations

import re
from typing import Any, Final

from botocore import exceptions as boto

from app.ports.cloud_provider import (
    LaunchOutcomeUnknown,
    ProviderError,
    RefusalKind,
    RefusalScope,
)

_KINDS: Final = {
    RefusalKind.NO_CAPACITY: (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "UnfulfillableCapacity",
        "ReservationCapacityExceeded",
        "InsufficientFreeAddressesInSubnet",
    ),
    RefusalKind.PRICE_TOO_LOW: ("SpotMaxPriceTooLow",),
    RefusalKind.QUOTA: (
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxIOPSLimitExceeded",
        "VolumeLimitExceeded",
        "NetworkInterfaceLimitExceeded",
        "AddressLimitExceeded",
        "PlacementGroupLimitExceeded",
        "LaunchTemplateLimitExceeded",
        "TargetCapacityLimitExceededException",
    ),
    RefusalKind.THROTTLED: (
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "BandwidthLimitExceeded",
        "SlowDown",
    ),
    RefusalKind.UNSUPPORTED: ("Unsupported", "UnsupportedOperation", "InvalidInstanceType"),
    RefusalKind.UNAVAILABLE: (
        "InternalError",
        "InternalFailure",
        "Unavailable",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "RequestTimeoutException",
        "InvalidPlacementGroup.Unknown",  # another process has just removed it as idle
    ),
    RefusalKind.DENIED: (
        "UnauthorizedOperation",
        "AuthFailure",
        "OptInRequired",
        "PendingVerification",
        "Blocked",
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
    ),
    RefusalKind.REJECTED: ("IdempotentParameterMismatch", "MissingParameter"),
}
_BY_CODE: Final = {code: kind for kind, codes in _KINDS.items() for code in codes}
_BY_PREFIX: Final = (
    ("Throttl", RefusalKind.THROTTLED),
    ("Insufficient", RefusalKind.NO_CAPACITY),
    ("Invalid", RefusalKind.REJECTED),
)

# EC2 has one code for our mistakes and for what a type lacks; its message tells them apart: it
# names a part of the type, and says of it that it is not to be had.
_NOUNS: Final = (
    r"(?:instance type|network card|network interface|\bEFA\b|Elastic Fabric|\bENA\b|"
    r"Elastic Network Adapter|cluster placement)"
)
_LACKS: Final = (
    r"(?:not support|n't support|unsupported|cannot be used|can't be used|must support|"
    r"exceeds|maximum|at most|incompatible|not match|not exist on|takes no|cannot be launched)"
)
_NEAR: Final = r"(?:[^.]|\.\w){0,120}?"  # within a sentence: g5.xlarge has a dot of its own
_OF_A_TYPE: Final = re.compile(
    f"{_NOUNS}{_NEAR}{_LACKS}|{_LACKS}{_NEAR}{_NOUNS}", re.IGNORECASE | re.DOTALL
)

_SCOPES: Final = {
    "MaxIOPSLimitExceeded": RefusalScope.REGION,
    "VolumeLimitExceeded": RefusalScope.REGION,
    "InstanceLimitExceeded": RefusalScope.REGION,
    "NetworkInterfaceLimitExceeded": RefusalScope.REGION,
    "InsufficientFreeAddressesInSubnet": RefusalScope.ZONE,
    "OptInRequired": RefusalScope.REGION,
    "AuthFailure": RefusalScope.REGION,
}
"""How far a code reaches where its kind alone would say less, or more."""

_NEW_KEYS: Final = "renew the credentials of the worker (docs/aws.md, Credentials)"
_CLOCK: Final = (
    "this machine's clock is wrong by more than five minutes (compare it with a time server), or "
    f"the secret key does not fit: {_NEW_KEYS}"
)
_ADVICE: Final = {
    "MaxSpotInstanceCountExceeded": "the Spot vCPU quota of this family in the region is used up "
    "(0 on a new account): ask for more under Service Quotas, Amazon EC2",
    "VcpuLimitExceeded": "the On-Demand vCPU quota of this family in the region is used up: "
    "ask for more under Service Quotas, Amazon EC2",
    "InstanceLimitExceeded": "the On-Demand quota in the region is used up: ask for more under "
    "Service Quotas, Amazon EC2",
    "MaxIOPSLimitExceeded": "the EBS quota of the region is used up: ask for more",
    "VolumeLimitExceeded": "the EBS quota of the region is used up: ask for more, or delete "
    "volumes that nobody uses",
    "InsufficientFreeAddressesInSubnet": "the subnet has no free addresses left: give the zone a "
    "larger subnet",
    "UnauthorizedOperation": "the worker's role lacks a permission: compare it with "
    "deploy/aws/control-plane-policy.json",
    "AccessDenied": "the worker's role lacks a permission: compare it with "
    "deploy/aws/control-plane-policy.json",
    "AccessDeniedException": "the worker's role lacks a permission: compare it with "
    "deploy/aws/control-plane-policy.json",
    "AuthFailure": "AWS does not accept the credentials in this region: check them, and that the "
    "region is enabled for the account",
    "OptInRequired": "the region or the service is not enabled for this account: enable it, or "
    "take the region out of LOWTIDE_AWS_REGIONS",
    "PendingVerification": "AWS is still verifying the account: wait for its mail",
    "Blocked": "AWS has blocked the account: contact AWS Support",
    "ExpiredToken": _NEW_KEYS,
    "ExpiredTokenException": _NEW_KEYS,
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "InvalidSignatureException": _CLOCK,
    "InvalidClientTokenId": f"AWS does not know the access key: {_NEW_KEYS}",
    "UnrecognizedClientException": f"AWS does not know the access key: {_NEW_KEYS}",
    "SignatureDoesNotMatch": _CLOCK,
}
_ADVICE_BY_PREFIX: Final = (
    ("InvalidAMIID", "LOWTIDE_AWS_IMAGE names no image that this account may use in the region"),
    ("InvalidSubnetID", "LOWTIDE_AWS_SUBNETS names a subnet that is not there"),
    ("InvalidGroup", "LOWTIDE_AWS_SECURITY_GROUPS names a group that is not there"),
    ("InvalidSecurityGroup", "LOWTIDE_AWS_SECURITY_GROUPS names a group that is not there"),
    ("InvalidIamInstanceProfile", "LOWTIDE_AWS_INSTANCE_PROFILE names no instance profile"),
)

_NO_CREDENTIALS: Final = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.ProfileNotFound,
    boto.ConfigNotFound,
    boto.InvalidConfigError,
)
_NEVER_SENT: Final = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
    boto.SSLError,
)
_OURS: Final = (boto.ParamValidationError, boto.NoRegionError, boto.InvalidRegionError)
_NO_EFFECT: Final = frozenset(RefusalKind) - {RefusalKind.UNAVAILABLE}


def kind_of(code: str, status: int | None = None, message: str = "") -> RefusalKind:
    """The kind of a code; one that nobody knows by its HTTP class, 4xx being our mistake.

    A parameter that a machine type does not take is `unsupported`, for another type may take it.
    """
    known = _BY_CODE.get(code)
    if known is not None:
        return known
    if code.startswith("Invalid") and _OF_A_TYPE.search(message) is not None:
        return RefusalKind.UNSUPPORTED
    for prefix, kind in _BY_PREFIX:
        if code.startswith(prefix):
            return kind
    if code.endswith(("LimitExceeded", "QuotaExceeded", "LimitExceededException")):
        return RefusalKind.QUOTA
    return RefusalKind.UNAVAILABLE if status is not None and status >= 500 else RefusalKind.REJECTED


def scope_of(code: str) -> RefusalScope | None:
    """How far a code reaches; None where its kind says all."""
    return _SCOPES.get(code)


def sentence(code: str, message: str) -> str:
    """What AWS said, and what to change where we know it."""
    told = f"{code}: {message.rstrip('.')}" if message else code
    advice = _ADVICE.get(code) or next(
        (text for prefix, text in _ADVICE_BY_PREFIX if code.startswith(prefix)), None
    )
    return told if advice is None else f"{told}; {advice}"


def code_of(error: BaseException) -> str:
    """The error code of an answer of AWS, else an empty string."""
    if not isinstance(error, boto.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def typed(
    error: Exception, action: str, region: str, *, starts_machines: bool = False
) -> ProviderError:
    """The port's error for one of boto's.

    starts_machines: an answer that is missing or unclear may hide machines, so that the error is
    LaunchOutcomeUnknown unless AWS, or the connection, says that nothing was done.
    """
    where = f"{action} in {region}"
    if isinstance(error, boto.ClientError):
        return _answered(error, where, starts_machines)
    if isinstance(error, _NO_CREDENTIALS):
        text = f"{where}: no usable AWS credentials ({error}): {_NEW_KEYS}"
        return ProviderError(RefusalKind.DENIED, text)
    if isinstance(error, _OURS):
        return ProviderError(RefusalKind.REJECTED, f"{where}: {error}")
    if isinstance(error, _NEVER_SENT):
        text = f"{where}: no connection to AWS ({error}): check the network of the worker"
        return ProviderError(RefusalKind.UNAVAILABLE, text)
    text = f"{where}: no clear answer ({type(error).__name__}: {str(error)[:300]})"
    if starts_machines:
        return LaunchOutcomeUnknown(text)
    return ProviderError(RefusalKind.UNAVAILABLE, text)


def _answered(error: Any, where: str, starts_machines: bool) -> ProviderError:
    told = error.response.get("Error", {})
    code, message = str(told.get("Code") or "no error code"), str(told.get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    # Without a code it is no word of AWS but of something between us, whatever its status.
    kind = kind_of(code, status, message) if told.get("Code") else RefusalKind.UNAVAILABLE
    text = f"{where}: {sentence(code, message)}"
    if starts_machines and kind not in _NO_EFFECT:
        return LaunchOutcomeUnknown(text)
    return ProviderError(kind, text, scope_of(code))
