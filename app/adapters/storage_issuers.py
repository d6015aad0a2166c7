"""For which object stores the deployment issues machines' credentials, and what limits them.

Loads no cloud's SDK. Not here: the issuing (`job_data_role`, `job_data_token`), their opening
(`app.bootstrap`), who is given what and when (`app.api.agents.grant_cache`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from app.adapters.providers.aws.client.aws_variables import AwsVariables
from app.adapters.providers.aws.client.session_policy import policy_problem
from app.adapters.providers.gcp.client.access_boundary import boundary_problem
from app.adapters.providers.gcp.client.gcp_variables import GcpVariables
from app.domain.market.storage_places import StoragePlace
from trainer.protocol.storage_access import GOOGLE, S3

_PROBLEMS: Final = {S3: policy_problem, GOOGLE: boundary_problem}


def storage_services(
    aws: AwsVariables, gcp: GcpVariables, active: Collection[str]
) -> frozenset[str]:
    """Stores for which machines are given credentials. active: the providers in use."""
    limits = {S3: ("aws", aws.aws_data_role), GOOGLE: ("gcp", gcp.gcp_data_account)}
    return frozenset(
        service
        for service, (provider, limited_by) in limits.items()
        if provider in active and limited_by is not None
    )


def grant_problem(services: Collection[str], places: Sequence[StoragePlace]) -> str | None:
    """Why no credentials can be limited to a job's places; None if they can, or need not be."""
    for service in sorted(services):
        found = _PROBLEMS[service]([one for one in places if one.service == service])
        if found is not None:
            return found
    return None
