"""Credentials of AWS for the secrets that one job names: the role of jobs' data, narrowed to them.

Not here: the policy (`secret_policy`), or who is given what (`app.api.agents.secret_access`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.job_data_role import session_values
from app.adapters.providers.aws.client.secret_policy import secret_policy, secret_policy_problem
from app.domain.deployment.cloud_secrets import CloudSecretName
from app.ports.cloud_provider import ProviderError
from app.ports.secret_grants import LIFETIME_SECONDS
from app.ports.storage_grants import GrantRefused, IssuedCredential

_SUFFIXES: Final = {"aws-cn": "amazonaws.com.cn"}


class JobSecretRole:
    """Implements `app.ports.secret_grants.SecretGrantIssuer` for AWS Secrets Manager."""

    def __init__(
        self, role_arn: str, settings: AwsSettings, clients: AwsClients | None = None
    ) -> None:
        self._role_arn = role_arn
        self._settings = settings
        self._clients = clients or AwsClients(settings)

    def place_of(self, named: CloudSecretName) -> str:
        """The region."""
        return named.place or self._settings.regions[0]

    def endpoint(self, place: str) -> str:
        """Source: AWS General Reference, "AWS Secrets Manager endpoints and quotas"."""
        suffix = _SUFFIXES.get(self._role_arn.split(":")[1], "amazonaws.com")
        own = self._settings.endpoint_url
        return f"https://secretsmanager.{place}.{suffix}" if own is None else own.rstrip("/")

    def issue(
        self, named: Sequence[CloudSecretName], account: str | None, job_id: UUID
    ) -> IssuedCredential:
        """As the port says; a project's account is Google's. CloudTrail shows the job."""
        region = self._settings.regions[0]
        problem = secret_policy_problem(named, self._role_arn, region)
        if problem is not None:
            raise GrantRefused(problem)
        try:
            reply = self._clients.ask(
                "sts",
                region,
                "assume_role",
                RoleArn=self._role_arn,
                RoleSessionName=f"lowtide-{job_id}",
                DurationSeconds=LIFETIME_SECONDS,
                Policy=secret_policy(named, self._role_arn, region),
            )
        except ProviderError as error:
            raise GrantRefused(f"{self._role_arn} cannot be assumed: {error}") from error
        return IssuedCredential(session_values(reply), float(LIFETIME_SECONDS))
