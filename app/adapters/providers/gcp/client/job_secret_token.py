"""Tokens of Google for the secrets that a project's jobs name: of the project's own account.

Credential Access Boundaries narrow tokens for Cloud Storage alone (IAM, "Credential Access
Boundaries overview"), so a token cannot be limited to the secrets of one job. What limits it is
the account: its rights have a condition on the names of secrets (docs/secrets.md). It is given to
the agent of a machine for minutes, and no job's command gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from app.adapters.providers.gcp.client.account_tokens import TOKEN_ERRORS, AccountTokens
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.client.google_credentials import first_line
from app.domain.deployment.cloud_secrets import CloudSecretName
from app.ports.storage_grants import GrantRefused, IssuedCredential

SECRETS_URL: Final = "https://secretmanager.googleapis.com"
TOKEN_SECONDS: Final = 300
"""A machine reads all its secrets within two minutes, or gives up (`cloud_secrets`)."""


class JobSecretToken:
    """Implements `app.ports.secret_grants.SecretGrantIssuer` for Google Secret Manager."""

    def __init__(self, data_account: str, settings: GcpSettings) -> None:
        """data_account: of jobs' data, which is no account for secrets."""
        self._data_account = data_account
        self._settings = settings
        self._tokens = AccountTokens(settings)

    def place_of(self, named: CloudSecretName) -> str:
        """The project."""
        return named.place or self._settings.project

    def endpoint(self, place: str) -> str:
        """Source: Secret Manager API, "Service endpoint"; one for all projects."""
        return (self._settings.endpoint or SECRETS_URL).rstrip("/")

    def issue(
        self, named: Sequence[CloudSecretName], account: str | None, job_id: UUID
    ) -> IssuedCredential:
        """As the port says. Google's audit log shows the account, not the job."""
        if account is None:
            raise GrantRefused("the project's rules name no `secret_account` for secrets of Google")
        if account == self._data_account:
            raise GrantRefused(
                f"{account} is the account of jobs' data, whose token would open every bucket of "
                "the deployment: make one for the secrets of the project"
            )
        try:
            token = self._tokens.token(account, TOKEN_SECONDS)
        except TOKEN_ERRORS as error:
            raise GrantRefused(f"no token for {account}: {first_line(error)}") from error
        return IssuedCredential({"token": token}, float(TOKEN_SECONDS))
