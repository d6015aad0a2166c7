"""What issues credentials for object stores, by service, from the settings of the clouds.

Loads a cloud's SDK only where credentials of that cloud are to be issued. Not here: the issuing
(`job_data_role`, `job_data_token`), who is given what and when (`app.api.agents.storage_grants`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from app.adapters.providers.aws.client.aws_variables import AwsVariables, aws_settings_of
from app.adapters.providers.aws.client.session_policy import policy_problem
from app.adapters.providers.gcp.client.access_boundary import boundary_problem
from app.adapters.providers.gcp.client.gcp_variables import GcpVariables, gcp_settings_of
from app.domain.market.storage_places import StoragePlace
from app.ports.storage_grants import StorageGrantIssuer
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


def open_issuers(
    aws: AwsVariables, gcp: GcpVariables, active: Collection[str]
) -> dict[str, StorageGrantIssuer]:
    """The issuers. Asks no cloud. Raises ModuleNotFoundError where an SDK is missing."""
    services = storage_services(aws, gcp, active)
    issuers: dict[str, StorageGrantIssuer] = {}
    if S3 in services and aws.aws_data_role is not None:
        from app.adapters.providers.aws.client.job_data_role import JobDataRole

        issuers[S3] = JobDataRole(aws.aws_data_role, aws_settings_of(aws))
    if GOOGLE in services and gcp.gcp_data_account is not None:
        from app.adapters.providers.gcp.client.job_data_token import JobDataToken

        issuers[GOOGLE] = JobDataToken(gcp.gcp_data_account, gcp_settings_of(gcp))
    return issuers


def grant_problem(services: Collection[str], places: Sequence[StoragePlace]) -> str | None:
    """Why no credentials can be limited to a job's places; None if they can, or need not be."""
    for service in sorted(services):
        found = _PROBLEMS[service]([one for one in places if one.service == service])
        if found is not None:
            return found
    return None
