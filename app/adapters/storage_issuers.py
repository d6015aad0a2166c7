"""For which stores and secrets the deployment issues machines' credentials, and what limits them.

Loads no cloud's SDK. Not here: the issuing (`job_data_role`, `job_data_token`, `job_secret_role`,
`job_secret_token`), their opening (`app.bootstrap`), who is given what and when
(`app.api.agents`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from app.adapters.providers.aws.client.aws_variables import AwsVariables
from app.adapters.providers.aws.client.secret_policy import secret_policy_problem
from app.adapters.providers.aws.client.session_policy import policy_problem
from app.adapters.providers.gcp.client.access_boundary import boundary_problem
from app.adapters.providers.gcp.client.gcp_variables import GcpVariables
from app.domain.deployment.cloud_secrets import CloudSecretName
from app.domain.market.storage_places import StoragePlace
from trainer.protocol.run_config import AWS_SECRETS, GOOGLE_SECRETS
from trainer.protocol.storage_access import GOOGLE, S3

_PROBLEMS: Final = {S3: policy_problem, GOOGLE: boundary_problem}
_NEEDED: Final = {
    AWS_SECRETS: (S3, "LOWTIDE_AWS_DATA_ROLE"),
    GOOGLE_SECRETS: (GOOGLE, "LOWTIDE_GCP_DATA_ACCOUNT"),
}
"""What limits machines' credentials in a cloud, without which they get none for its secrets."""


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


def secret_grant_problem(
    aws: AwsVariables, services: Collection[str], named: Sequence[CloudSecretName]
) -> str | None:
    """Why machines cannot be given credentials for these secrets of clouds; None if they can.

    services: those of `storage_services`.
    """
    for service in sorted({one.service for one in named}):
        store, setting = _NEEDED[service]
        if store not in services:
            return (
                f"this deployment gives machines no credentials for {service}: whoever runs it can "
                f"set {setting}, or set the value with `lowtide secret set` and name that"
            )
    of_aws = [one for one in named if one.service == AWS_SECRETS]
    if not of_aws or aws.aws_data_role is None:
        return None
    return secret_policy_problem(of_aws, aws.aws_data_role, aws.aws_regions[0])
