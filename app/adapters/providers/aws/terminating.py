"""Giving machines back: many in one call, and none kept alive by another's trouble.

One id that EC2 does not know, or that somebody has protected, fails a whole call of
TerminateInstances. EC2 does not know a machine for some seconds after it has begun to start it
("Eventual consistency in the Amazon EC2 API"). Not here: which machines, and where (`provider`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.adapters.providers.aws.clients import AwsClients
from app.adapters.providers.aws.errors import code_of
from app.ports.cloud_provider import ProviderError

MACHINES_MAX: Final = 200
"""Machines of one call: EC2 takes 1,000 and advises fewer."""

_PROTECTED: Final = "OperationNotPermitted"
_UNKNOWN: Final = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")


def terminate_machines(clients: AwsClients, by_region: Mapping[str, Sequence[str]]) -> None:
    """Terminate them all; an id that EC2 does not know there is no error.

    Raises the first ProviderError once every call has been tried.
    """
    failed: list[ProviderError] = []
    for region, ids in by_region.items():
        for start in range(0, len(ids), MACHINES_MAX):
            _terminate(clients, region, list(ids[start : start + MACHINES_MAX]), failed)
    if failed:
        raise failed[0]


def _terminate(
    clients: AwsClients, region: str, ids: list[str], failed: list[ProviderError]
) -> None:
    """One call, and more without the ids that it did not know: EC2's message names them."""
    try:
        clients.change("ec2", region, "terminate_instances", InstanceIds=ids)
    except ProviderError as error:
        code = "" if error.__cause__ is None else code_of(error.__cause__)
        unknown = code in _UNKNOWN
        if not unknown and (code != _PROTECTED or len(ids) == 1):
            failed.append(error)
            return
        told = str(error)
        others = [one for one in ids if one not in told] if unknown else ids
        if len(others) < len(ids):
            if others:
                _terminate(clients, region, others, failed)
        elif len(ids) > 1:  # it named none of them
            half = len(ids) // 2
            _terminate(clients, region, ids[:half], failed)
            _terminate(clients, region, ids[half:], failed)
