"""Giving machines back: many in one call, and none kept alive by another's trouble.

One id that EC2 does not know, that somebody has protected, or whose tags were taken away fails a
whole call of TerminateInstances. EC2 does not know a machine for some seconds after it has begun to
start it ("Eventual consistency in the Amazon EC2 API"). Not here: which machines, and where
(`provider`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.adapters.providers.aws.client.aws_errors import code_of
from app.adapters.providers.aws.client.clients import AwsClients
from app.ports.cloud_provider import ProviderError, RefusalKind, RefusalScope

MACHINES_MAX: Final = 200
"""Machines of one call: EC2 takes 1,000 and advises fewer."""
REFUSALS_MAX: Final = 64
"""Refused calls after which a batch is cut no more: ten refused of two hundred are found."""

_UNKNOWN: Final = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
_NOT_OF_A_MACHINE: Final = (RefusalKind.THROTTLED, RefusalKind.UNAVAILABLE)


def terminate_machines(
    clients: AwsClients, by_region: Mapping[str, Sequence[str]], draw: Callable[[], float]
) -> None:
    """Terminate them all; an id that EC2 does not know there is no error.

    draw: floats in [0, 1), by which a refused batch is halved in another way at each try. Raises
    the first ProviderError once every region has been tried.
    """
    failed: list[ProviderError] = []
    for region, ids in by_region.items():
        for start in range(0, len(ids), MACHINES_MAX):
            chunk = list(ids[start : start + MACHINES_MAX])
            _terminate(clients, region, chunk, draw, failed)
    if failed:
        raise failed[0]


def _terminate(
    clients: AwsClients,
    region: str,
    ids: list[str],
    draw: Callable[[], float],
    failed: list[ProviderError],
) -> None:
    """One call, and where it is refused one for each half, until the refused ones are alone.

    Ids that EC2 does not know are left out at once: its message names them. The halves are drawn
    by lot, so that the next try ends others where too many were refused to find them all.
    """
    groups, refusals = deque([ids]), 0
    while groups:
        some = groups.popleft()
        refused = _refusal(clients, region, some)
        if refused is None:
            continue
        refusals += 1
        known = _known(some, refused)
        if known is not None:
            groups.extend([known] if known else [])
        elif refused.kind in _NOT_OF_A_MACHINE or refused.scope is RefusalScope.REGION:
            failed.append(refused)
            return
        elif len(some) > 1 and refusals < REFUSALS_MAX:
            drawn = sorted(some, key=lambda _: draw())
            half = len(drawn) // 2
            groups.extend([drawn[:half], drawn[half:]])
        else:
            failed.append(refused)


def _refusal(clients: AwsClients, region: str, ids: list[str]) -> ProviderError | None:
    try:
        clients.change("ec2", region, "terminate_instances", InstanceIds=ids)
    except ProviderError as error:
        return error
    return None


def _known(ids: list[str], error: ProviderError) -> list[str] | None:
    """Those that EC2 did not call unknown; None where it named none of them."""
    code = "" if error.__cause__ is None else code_of(error.__cause__)
    if code not in _UNKNOWN:
        return None
    told = str(error)
    known = [one for one in ids if one not in told]
    if len(known) < len(ids):
        return known
    return None if len(ids) > 1 else []
